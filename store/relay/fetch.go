package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"wattmark/measure/chunk"
	"wattmark/store"
)

// ErrMissing: the stream no longer has, or never had, a message that an end names.
var ErrMissing = errors.New("message is missing in the stream")

// fetcher reads the messages of one task by their places.
type fetcher struct {
	bus    *Bus
	stream jetstream.Stream
	name   string
	// of the task, and of the source of its samples
	key, source [16]byte
	end         *End
}

func (b *Bus) fetcher(ctx context.Context, partition int, end *End) (*fetcher, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, StreamName(partition))
	if err != nil {
		return nil, err
	}
	f := &fetcher{bus: b, stream: s, name: StreamName(partition), end: end}
	if f.key, err = end.Key.bytes(); err == nil {
		f.source, err = end.Source().bytes()
	}
	return f, err
}

// ahead is how many messages are asked for before they are wanted.
const ahead = 16

// answer is one message, when it has come.
type answer struct {
	p   piece
	err error
}

// pieces yields the pieces at places of a stream, in that order.
func (f *fetcher) pieces(ctx context.Context, seqs iter.Seq[uint64], kind pieceKind) iter.Seq2[piece, error] {
	return func(yield func(piece, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		next, stop := iter.Pull(seqs)
		defer stop()
		var queue []chan answer
		defer func() { // leave nobody behind
			cancel()
			for _, c := range queue {
				<-c
			}
		}()
		ask := func() {
			if seq, some := next(); some {
				c := make(chan answer, 1)
				queue = append(queue, c)
				go func() {
					p, err := f.piece(ctx, seq, kind)
					c <- answer{p, err}
				}()
			}
		}
		for range ahead {
			ask()
		}
		for len(queue) > 0 {
			a := <-queue[0]
			queue = queue[1:]
			if !yield(a.p, a.err) || a.err != nil {
				return
			}
			ask()
		}
	}
}

// piece reads one message, and sees that it is of this task.
func (f *fetcher) piece(ctx context.Context, seq uint64, kind pieceKind) (piece, error) {
	m, err := f.message(ctx, seq)
	if err != nil {
		return piece{}, err
	}
	p, err := parsePiece(m.Data)
	key := f.key
	if kind == chunkPiece {
		key = f.source
	}
	if err == nil && (p.key != key || p.kind != kind) {
		err = malformed("another message stands there")
	} else if by := byOf(m.Subject); err == nil && by != anyone && by != publisherOf(f.end.User) {
		err = malformed("another user's message stands there")
	}
	if err != nil {
		return p, fmt.Errorf("%s, message %d: %w", f.name, seq, err)
	}
	return p, nil
}

// How often a message is asked for that is not found.
const missingTries = 4

// message reads one message from any replica, and from the leader where that one does
// not have it: it may lag behind what was acknowledged.
func (f *fetcher) message(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	missing := 0
	for wait := firstPause; ; wait = min(2*wait, longestStep) {
		m, err := f.ask(ctx, seq)
		if err == nil {
			return m, nil
		}
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if missing++; missing == missingTries {
				return nil, fmt.Errorf("%s, message %d: %w", f.name, seq, ErrMissing)
			}
		}
		if pause(ctx, wait) != nil {
			return nil, fmt.Errorf("%s, message %d: %w (%w)", f.name, seq, err, context.Cause(ctx))
		}
	}
}

func (f *fetcher) ask(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	m, err := f.stream.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return f.askLeader(ctx, seq)
	}
	return m, err
}

// askLeader reads a message through the stream's leader.
func (f *fetcher) askLeader(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	r, err := f.bus.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+f.name, fmt.Appendf(nil, `{"seq":%d}`, seq))
	if err != nil {
		return nil, err
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string `json:"subject"`
			Data    []byte `json:"data"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(r.Data, &got); {
	case err != nil:
		return nil, err
	case got.Error != nil && got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, jetstream.ErrMsgNotFound
	case got.Error != nil:
		return nil, got.Error
	case got.Message == nil:
		return nil, errors.New("an answer without a message")
	}
	return &jetstream.RawStreamMsg{Subject: got.Message.Subject, Data: got.Message.Data}, nil
}

// rest reads all of a task but its chunks.
func (f *fetcher) rest(ctx context.Context) (list []indexed, database []byte, err error) {
	var pieces []piece
	for p, err := range f.pieces(ctx, eachOf(f.end.Rest), restPiece) {
		if err == nil {
			err = p.stands(len(pieces), len(f.end.Rest))
		}
		if err != nil {
			return nil, nil, err
		}
		pieces = append(pieces, p)
	}
	content, err := join(pieces)
	if err != nil {
		return nil, nil, err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != f.end.SHA256 {
		return nil, nil, malformed("the rest of task %s is not what its end says", f.end.Key)
	}
	list, database, err = unpack(content, f.end.Chunks)
	if err == nil && uint64(len(list)) != f.end.Chunks {
		err = malformed("task %s: %d chunks are indexed, its end says %d", f.end.Key, len(list), f.end.Chunks)
	}
	return list, database, err
}

func eachOf(list []uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, s := range list {
			if !yield(s) {
				return
			}
		}
	}
}

// chunks yields the chunks from a number on.
func (f *fetcher) chunks(ctx context.Context, list []indexed, from uint64) iter.Seq2[*chunk.Chunk, error] {
	for len(list) > 0 && list[0].no < from {
		list = list[1:]
	}
	seqs := func(yield func(uint64) bool) {
		for _, x := range list {
			for _, s := range x.seqs {
				if !yield(s) {
					return
				}
			}
		}
	}
	return func(yield func(*chunk.Chunk, error) bool) {
		at, pieces := 0, []piece(nil)
		for p, err := range f.pieces(ctx, seqs, chunkPiece) {
			x := list[at]
			if err == nil && (p.no != x.no || p.crc != x.crc) {
				err = malformed("%s: chunk %d stands where chunk %d should", f.name, p.no, x.no)
			}
			if err == nil {
				err = p.stands(len(pieces), len(x.seqs))
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if pieces = append(pieces, p); len(pieces) < len(x.seqs) {
				continue
			}
			c, err := chunkOf(pieces)
			if !yield(c, err) || err != nil {
				return
			}
			at, pieces = at+1, nil
		}
	}
}

// since is a duration for people.
func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

// arriving are the chunks as a database takes them.
func (f *fetcher) arriving(list []indexed) store.Arriving {
	crcs := make([]uint32, len(list))
	for i, x := range list {
		crcs[i] = x.crc
	}
	return store.Arriving{CRCs: crcs, Chunks: func(ctx context.Context, from uint64) iter.Seq2[*chunk.Chunk, error] {
		return f.chunks(ctx, list, from)
	}}
}
