package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/wattmark/wattmark/measure/chunk"
)

// ErrMissing is wrapped where the stream no longer has, or never had, a message that an end names.
var ErrMissing = errors.New("message is missing in the stream")

// fetcher reads the messages of one task by their sequence numbers.
type fetcher struct {
	bus    *Bus
	stream jetstream.Stream
	name   string
	key    [16]byte // of the task
	source [16]byte // of its samples
	end    *End
}

// fetcher returns the fetcher of the task that end names.
func (b *Bus) fetcher(ctx context.Context, partition int, end *End) (*fetcher, error) {
	s, err := b.js.Stream(ctx, StreamName(partition))
	if err != nil {
		return nil, err
	}
	// The key of an end is of the task, that of its samples' source of the capture: several tasks may
	// share the samples.
	f := &fetcher{bus: b, stream: s, name: StreamName(partition), end: end}
	if f.key, err = end.Key.bytes(); err == nil {
		f.source, err = end.Source().bytes()
	}
	return f, err
}

// ahead is the number of messages requested before they are needed.
const ahead = 16

// pieces yields the pieces at sequence numbers, in that order. A request takes a round trip to a replica;
// ahead of them are under way at once, each in a goroutine that answers on a channel of its own. It blocks for
// one round trip, and then for as long as the slowest of the requests ahead. An error ends the sequence. No
// request outlives it.
func (f *fetcher) pieces(ctx context.Context, seqs []uint64, kind pieceKind) iter.Seq2[piece, error] {
	type answer struct {
		p   piece
		err error
	}
	return func(yield func(piece, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var requests sync.WaitGroup
		defer requests.Wait()
		defer cancel()                 // open requests end at once
		var answers [ahead]chan answer // by the place in the sequence, modulo ahead
		asked := 0
		for i := range seqs {
			for ; asked < min(i+ahead, len(seqs)); asked++ {
				c, seq := make(chan answer, 1), seqs[asked] // with room, so that no request waits to be read
				answers[asked%ahead] = c
				requests.Go(func() {
					p, err := f.piece(ctx, seq, kind)
					c <- answer{p, err}
				})
			}
			// The first error ends the sequence: what follows it in the order would be of no use.
			if a := <-answers[i%ahead]; !yield(a.p, a.err) || a.err != nil {
				return
			}
		}
	}
}

// piece reads one message, and checks that it is of this task.
// A message may be another than expected where the stream was made anew, or where its publisher wrote
// wrong numbers: kind, key and publisher are compared.
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
	if err == nil && (p.Key != key || p.Kind != kind) {
		err = malformed("another message stands there")
		// Chunks may be a monitor's (anyone), or the user's own; another user's must not pass as either.
	} else if err == nil && !parseSubject(m.Subject).by.publishesFor(f.end.User) {
		err = malformed("another user's message stands there")
	}
	if err != nil {
		return p, fmt.Errorf("%s, message %d: %w", f.name, seq, err)
	}
	return p, nil
}

// missingTries is the number of requests after which a message counts as missing.
const missingTries = 4

// message reads one message from any replica, and from the leader where the replica does not
// have it: it may lag behind the acknowledgements. It blocks while the cluster does not answer.
func (f *fetcher) message(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	missing := 0
	for wait := pauses(); ; {
		m, err := f.ask(ctx, seq)
		if err == nil {
			return m, nil
		}
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if missing++; missing == missingTries {
				return nil, fmt.Errorf("%s, message %d: %w", f.name, seq, ErrMissing)
			}
		}
		// The pauses grow; the context bounds them all.
		if wait.Wait(ctx) != nil {
			return nil, fmt.Errorf("%s, message %d: %w (%w)", f.name, seq, err, context.Cause(ctx))
		}
	}
}

// ask requests a message once. Any replica answers GetMsg from its own log. The leader's API, for which the
// library has no call, goes by the leader alone, and has every message that was acknowledged.
func (f *fetcher) ask(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	m, err := f.stream.GetMsg(ctx, seq)
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return m, err
	}
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

// rest reads the index of a task's chunks and the database of all else. The SHA-256 in the end covers all
// of it: a rest that was pieced together wrongly does not pass. Errors wrap ErrMalformed or ErrMissing.
func (f *fetcher) rest(ctx context.Context) (list []*indexed, database []byte, err error) {
	var pieces []piece
	for p, err := range f.pieces(ctx, f.end.Rest, restPiece) {
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
	// The bound keeps a wrong count from asking for memory.
	list, database, err = unpack(content, f.end.Chunks)
	if err == nil && uint64(len(list)) != f.end.Chunks {
		err = malformed("task %s: %d chunks are indexed, its end says %d", f.end.Key, len(list), f.end.Chunks)
	}
	return list, database, err
}

// chunks yields the chunks from a number on. Chunks that are stored already are not asked for. A chunk is
// one piece, or several that follow each other in the index; each is compared with the index by number and
// checksum before the pieces are joined.
func (f *fetcher) chunks(ctx context.Context, list []*indexed, from uint64) iter.Seq2[*chunk.Chunk, error] {
	for len(list) > 0 && list[0].no < from {
		list = list[1:]
	}
	var seqs []uint64
	for _, x := range list {
		seqs = append(seqs, x.seqs...)
	}
	return func(yield func(*chunk.Chunk, error) bool) {
		at, pieces := 0, []piece(nil)
		for p, err := range f.pieces(ctx, seqs, chunkPiece) {
			x := list[at]
			// x is the chunk whose pieces are being collected.
			if err == nil && (p.No != x.no || p.CRC != x.crc) {
				err = malformed("%s: chunk %d stands where chunk %d should", f.name, p.No, x.no)
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

// has reports whether a task's end is in its stream. A replica that lags may not have
// it yet; the task is then published twice, and the stores recognise it.
// An end may have been published by this program, or for anyone by a monitor.
func (b *Bus) has(ctx context.Context, partition int, source, key Key) bool {
	_, err := b.last(ctx, partition, subject(partition, b.by, source, key, kindEnd))
	if errors.Is(err, jetstream.ErrMsgNotFound) && b.by != anyone {
		_, err = b.last(ctx, partition, subject(partition, anyone, source, key, kindEnd))
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		b.log.Debug("cannot tell whether a task is in its stream", "error", err)
	}
	return err == nil
}

// last returns the last message of a subject.
func (b *Bus) last(ctx context.Context, partition int, subject string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, StreamName(partition))
	if err != nil {
		return nil, err
	}
	return s.GetLastMsgForSubject(ctx, subject)
}

// index returns the chunks of a source that its monitor has published; nil where it has not, or
// the stream does not answer: they are sent then, and the stream drops those that it has.
// The samples of a capture are published once, by its monitor or its host; the index has their sequence
// numbers, so that a host need not send them again.
func (b *Bus) index(ctx context.Context, partition int, source Key) map[uint64]*indexed {
	m, err := b.last(ctx, partition, subject(partition, anyone, source, sourceItself, kindIndex))
	if errors.Is(err, jetstream.ErrMsgNotFound) && b.by != anyone {
		m, err = b.last(ctx, partition, subject(partition, b.by, source, sourceItself, kindIndex))
	}
	if err != nil {
		return nil
	}
	list, _, err := unpack(m.Data, m.Sequence)
	if err != nil {
		return nil
	}
	out := map[uint64]*indexed{}
	for _, x := range list {
		out[x.no] = x
	}
	return out
}
