package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nuid"
	"golang.org/x/sync/errgroup"

	"wattmark/measure/chunk"
	"wattmark/store"
)

// sending is the publishing of one task.
type sending struct {
	p         *Publisher
	line      *line
	partition int
	by        publisher
	source    Key
	from, key [16]byte // source and task
	end       End
	index     []*indexed
	packed    uint64
	// reuse are the chunks that a monitor has published, by their numbers.
	reuse map[uint64]indexed
	// known is the first place of samples that were in the stream before, zero for none;
	// gone says that it was freed meanwhile, and all that was taken for known with it.
	known atomic.Uint64
	gone  bool
	// fresh is a part of the ids of all that is sent once more.
	fresh string
}

// ErrReader: the cluster lets this program read alone.
var ErrReader = errors.New("the cluster knows this program as a viewer, who publishes nothing")

// ErrNotYours: the cluster knows this program as another user than the task's, and as nobody
// who may publish for others.
var ErrNotYours = errors.New("it is another user's task")

// sending prepares the publishing of a task.
func (p *Publisher) sending(i Identity) (*sending, error) {
	if p.Bus.by == nobody {
		return nil, fmt.Errorf("%w: publish with the token or certificate of a measurer or an operator", ErrReader)
	}
	if me := p.Bus.by.user(); p.Bus.by != anyone && i.User != me {
		return nil, fmt.Errorf("%w: it is %s's, and the cluster knows this program as %s: publish it with an operator's token or certificate", ErrNotYours, i.User, me)
	}
	s := &sending{p: p, by: p.Bus.by, source: i.Source(), end: End{Format: endFormat, Key: i.Key(), Identity: i, Program: p.Program}}
	s.partition = s.source.Partition(p.Bus.partitions)
	s.line = p.line(s.partition)
	var err error
	if s.from, err = s.source.bytes(); err == nil {
		s.key, err = s.end.Key.bytes()
	}
	return s, err
}

// run publishes samples, rest and end, in this order.
func (s *sending) run(ctx context.Context, samples func() error, bare func() ([]byte, error)) error {
	if err := samples(); err != nil {
		return err
	}
	if s.lost(ctx) {
		return nil
	}
	database, err := bare()
	if err != nil {
		return fmt.Errorf("its rows but samples: %w", err)
	}
	if err := s.rest(ctx, database); err != nil {
		return err
	}
	content, err := json.Marshal(&s.end)
	if err != nil {
		return err
	}
	return s.one(ctx, subject(s.partition, s.by, s.source, s.end.Key, kindEnd), s.messageID(s.end.Key, "e", s.end.SHA256), content)
}

// one publishes a message that must be there when it returns, also where the server knows
// its id and no longer has it.
func (s *sending) one(ctx context.Context, to, id string, content []byte) error {
	at, err := s.line.publish(ctx, to, id, content)
	if err == nil && at.known && s.missing(ctx, at.seq) {
		_, err = s.line.publish(ctx, to, id+"/"+nuid.Next(), content)
	}
	return err
}

// knew takes note of samples that were there.
func (s *sending) knew(seq uint64) {
	for {
		was := s.known.Load()
		if was != 0 && was <= seq || s.known.CompareAndSwap(was, seq) {
			return
		}
	}
}

// lost looks whether samples that were taken for known have been freed since. A source is
// freed all at once: where the first is there, all are.
func (s *sending) lost(ctx context.Context) bool {
	seq := s.known.Load()
	s.gone = seq != 0 && s.missing(ctx, seq)
	return s.gone
}

// again prepares a second run where the first has found what it relied on gone.
func (s *sending) again() bool {
	if !s.gone {
		return false
	}
	s.gone, s.reuse, s.index, s.fresh = false, nil, nil, nuid.Next()
	s.end.Chunks, s.end.Scans, s.end.Bytes = 0, 0, 0
	s.known.Store(0)
	return true
}

// missing reports whether the stream says that it does not have a message.
func (s *sending) missing(ctx context.Context, seq uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	there, err := s.line.there(ctx, seq)
	return err == nil && !there
}

func (s *sending) messageID(key Key, parts ...any) string {
	out := string(key)
	for _, p := range parts {
		out += "/" + fmt.Sprint(p)
	}
	if s.fresh != "" {
		out += "/" + s.fresh
	}
	return out
}

// outbox publishes with several messages under way.
type outbox struct {
	s   *sending
	g   *errgroup.Group
	ctx context.Context
}

func (s *sending) outbox(ctx context.Context) *outbox {
	o := &outbox{s: s}
	o.g, o.ctx = errgroup.WithContext(ctx)
	o.g.SetLimit(max(1, firstOf(s.p.Window, 32)))
	return o
}

// send publishes a piece, and waits while too many are under way. Its place is known when
// wait has returned.
func (o *outbox) send(to, id string, p *piece, seq *uint64) {
	content := p.append(make([]byte, 0, pieceHead+len(p.body)))
	o.g.Go(func() error {
		at, err := o.s.line.publish(o.ctx, to, id, content)
		if err == nil && at.known && p.kind == restPiece && o.s.missing(o.ctx, at.seq) {
			at, err = o.s.line.publish(o.ctx, to, id+"/"+nuid.Next(), content)
		}
		if *seq = at.seq; at.known && p.kind == chunkPiece {
			o.s.knew(at.seq)
		}
		return err
	})
}

// chunk publishes a chunk of which the payload is coded, unless its monitor has.
func (o *outbox) chunk(c *chunk.Chunk, payload []byte) error {
	s := o.s
	if x, known := s.reuse[c.No]; known && x.crc == c.CRC {
		s.knew(slices.Min(x.seqs))
		s.count(&x, c, len(payload))
		return nil
	}
	pieces, err := piecesOf(s.from, c, payload)
	if err != nil {
		return fmt.Errorf("chunk %d: %w", c.No, err)
	}
	x := &indexed{no: c.No, crc: c.CRC, seqs: make([]uint64, len(pieces))}
	s.count(x, c, len(payload))
	to := subject(s.partition, s.by, s.source, sourceItself, kindChunk)
	for i := range pieces {
		o.send(to, s.messageID(s.source, "c", c.No, fmt.Sprintf("%08x", c.CRC), i), &pieces[i], &x.seqs[i])
	}
	return nil
}

func (s *sending) count(x *indexed, c *chunk.Chunk, size int) {
	s.index = append(s.index, x)
	s.end.Chunks++
	s.end.Scans += uint64(c.Scans)
	s.end.Bytes += uint64(size)
}

// chunks publishes the samples of a stored task, in the coding in which they are stored.
func (s *sending) chunks(ctx context.Context, id store.TaskID) error {
	o := s.outbox(ctx)
	err := func() error {
		for c, err := range s.p.DB.Chunks(ctx, id, 0) {
			if err != nil {
				return err
			}
			if err := o.chunk(c, chunk.AppendPayload(make([]byte, 0, chunk.PayloadSize(c)), c)); err != nil {
				return err
			}
		}
		return nil
	}()
	return errors.Join(err, o.g.Wait())
}

// list is the index by value.
func (s *sending) list() []indexed {
	out := make([]indexed, len(s.index))
	for i, x := range s.index {
		out[i] = *x
	}
	return out
}

// rest publishes all but the samples, and where those are.
func (s *sending) rest(ctx context.Context, database []byte) error {
	content, err := pack(s.list(), database)
	if err != nil {
		return err
	}
	s.packed = uint64(len(content))
	sum := sha256.Sum256(content)
	s.end.SHA256 = hex.EncodeToString(sum[:])
	pieces, err := split(piece{key: s.key, kind: restPiece}, content)
	if err != nil {
		return err
	}
	s.end.Rest = make([]uint64, len(pieces))
	to := subject(s.partition, s.by, s.source, s.end.Key, kindRest)
	o := s.outbox(ctx)
	for i := range pieces {
		o.send(to, s.messageID(s.end.Key, "r", s.end.SHA256, i), &pieces[i], &s.end.Rest[i])
	}
	return o.g.Wait()
}

func firstOf(a, b int) int {
	if a != 0 {
		return a
	}
	return b
}
