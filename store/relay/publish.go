package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
)

// The tags that a host's database keeps.
const (
	// TagReplicated has the time (RFC 3339) since which the streams have a task.
	TagReplicated = "replicated"
	// TagHeld has the monitor that keeps a task's capture until the streams have it.
	TagHeld = store.TagHeld
)

// Publisher publishes the tasks of a database. Its methods may be called at the same time.
type Publisher struct {
	DB  *store.DB
	Bus *Bus
	// Program that publishes, with its version.
	Program string

	lines sync.Map // int → *line: one for each stream, shared by the tasks that are published at once
	mu    sync.Mutex
	empty []byte // database, made once
}

// Published is the result of publishing a task.
type Published struct {
	Task   store.TaskID
	Key    Key
	Chunks uint64
	Bytes  uint64 // of coded samples
	// Known: the streams had it whole already.
	Known bool
}

// Replicate publishes a task that has ended and tags it as replicated. When it returns without an error,
// the stream's replicas have acknowledged all of its messages. It blocks while the stream does not
// acknowledge, until the context ends. A task is replicated once the last of its messages, the end, is
// acknowledged: stores look at ends alone, so a task that was published in part is not seen.
func (p *Publisher) Replicate(ctx context.Context, id store.TaskID) (out Published, err error) {
	defer func() {
		if err == nil {
			err = p.DB.SetTags(ctx, id, map[string]string{TagReplicated: time.Now().UTC().Format(time.RFC3339)}, nil)
		}
		if err != nil {
			err = fmt.Errorf("replicate task %d: %w", id, err)
		}
	}()
	t, err := p.DB.Task(ctx, id)
	if err != nil {
		return out, err
	}
	if t.State == store.Running {
		return out, store.ErrRunning
	}
	s, err := p.sending(IdentityOf(&t))
	if err != nil {
		return out, err
	}
	out = Published{Task: id, Key: s.end.Key}
	// The end is there: a second publication, as after a crash before the tag was set, is a look-up.
	if out.Known = p.Bus.has(ctx, s.partition, s.source, s.end.Key); out.Known {
		return out, nil
	}
	s.reuse = p.Bus.index(ctx, s.partition, s.source)
	// Once more from the beginning where samples that the stream had are removed meanwhile; at most once, since
	// after again no message is taken for known by its id.
	for {
		err := s.run(ctx, func() error { return s.chunks(ctx, id) }, func() ([]byte, error) { return p.bare(ctx, id) })
		if err != nil {
			return out, err
		}
		if !s.again() {
			break
		}
	}
	out.Chunks, out.Bytes = s.end.Chunks, s.end.Bytes
	return out, nil
}

// line returns the line to a partition's stream, which all tasks share.
func (p *Publisher) line(partition int) *line {
	l, _ := p.lines.LoadOrStore(partition, &line{
		js: p.Bus.js, stream: StreamName(partition), log: p.Bus.log, turn: make(chan struct{}, 1),
	})
	return l.(*line)
}

// bare returns a database of all of a task but its samples.
// Tags of this host's bookkeeping are taken out: they mean nothing in other databases.
func (p *Publisher) bare(ctx context.Context, id store.TaskID) ([]byte, error) {
	return p.database(ctx, func(to *store.DB) error {
		in, err := to.Import(ctx, p.DB, store.ImportOptions{Tasks: []store.TaskID{id}, KeepIDs: true, NoSamples: true})
		if err == nil && len(in.Tasks) != 1 {
			err = store.ErrRunning
		}
		if err != nil {
			return err
		}
		return to.SetTags(ctx, in.Tasks[0].To, nil, []string{TagReplicated, TagHeld})
	})
}

// database returns the bytes of a new database as fill leaves it.
func (p *Publisher) database(ctx context.Context, fill func(*store.DB) error) (content []byte, err error) {
	dir, err := store.TempDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "task.db")
	// Making the schema anew for each task would take longer than filling it. mu also keeps two tasks from
	// making it at once.
	p.mu.Lock()
	if p.empty == nil {
		if err = store.NewBare(ctx, path); err == nil {
			p.empty, err = os.ReadFile(path)
		}
	}
	empty := p.empty
	p.mu.Unlock()
	if err == nil {
		err = os.WriteFile(path, empty, 0o600)
	}
	if err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(fill(db), db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

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
	// reuse are the chunks that the monitor has published, by their numbers.
	reuse map[uint64]*indexed
	// known is the first sequence number of samples that were in the stream before, zero for
	// none. gone: it was freed meanwhile, and with it all samples taken for known.
	known atomic.Uint64
	gone  bool
	// fresh is a part of the ids of all messages of a second run, which the server takes for new.
	fresh string
}

// ErrReader is wrapped where the cluster lets this program read only.
var ErrReader = errors.New("the cluster knows this program as a viewer, who publishes nothing")

// ErrNotYours is wrapped where this program may publish its own user's tasks only, and the task
// is another user's.
var ErrNotYours = errors.New("it is another user's task")

// sending prepares the publishing of a task.
func (p *Publisher) sending(i Identity) (*sending, error) {
	if p.Bus.by == nobody {
		return nil, fmt.Errorf("%w: publish with the token or certificate of a measurer or an operator", ErrReader)
	}
	if !p.Bus.by.publishesFor(i.User) {
		return nil, fmt.Errorf("%w: it is %s's, and the cluster knows this program as %s: "+
			"publish it with an operator's token or certificate",
			ErrNotYours, i.User, p.Bus.by.user())
	}
	end := End{Format: endFormat, Key: i.Key(), Identity: i, Program: p.Program}
	s := &sending{p: p, by: p.Bus.by, source: i.Source(), end: end}
	// All messages of a source go to one stream, so that one consumer sees them in order.
	s.partition = s.source.Partition(p.Bus.partitions)
	s.line = p.line(s.partition)
	var err error
	if s.from, err = s.source.bytes(); err == nil {
		s.key, err = s.end.Key.bytes()
	}
	return s, err
}

// run publishes samples, rest and end, in this order, each acknowledged before the next: the
// rest has the sequence numbers of the samples, the end those of the rest. It returns without an
// end where samples taken for known are gone (again).
func (s *sending) run(ctx context.Context, samples func() error, bare func() ([]byte, error)) error {
	if err := samples(); err != nil {
		return err
	}
	// Checked before the end: the end is the commit of the whole publication.
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
	// The id repeats where the content does: the server drops an end that was published before.
	to := subject(s.partition, s.by, s.source, s.end.Key, kindEnd)
	_, err = s.one(ctx, to, s.messageID(s.end.Key, "e", s.end.SHA256), content)
	return err
}

// one publishes a message and blocks until the stream has it, also where the server knows its
// id and no longer has the message.
func (s *sending) one(ctx context.Context, to, id string, content []byte) (place, error) {
	at, err := s.line.publish(ctx, to, id, content)
	// The server drops a message by its id for a while after the message itself was removed:
	// under another id it takes the content as new.
	if err == nil && at.known && s.missing(ctx, at.seq) {
		return s.line.publish(ctx, to, id+"/"+nuid.Next(), content)
	}
	return at, err
}

// knew notes a message of samples that was in the stream before.
func (s *sending) knew(seq uint64) {
	for { // the least of all, which several goroutines report
		was := s.known.Load()
		if was != 0 && was <= seq || s.known.CompareAndSwap(was, seq) {
			return
		}
	}
}

// lost reports whether samples that were taken for known have been freed since. A source is
// freed at once: where its first message is there, all are.
func (s *sending) lost(ctx context.Context) bool {
	seq := s.known.Load()
	s.gone = seq != 0 && s.missing(ctx, seq)
	return s.gone
}

// again prepares a second run where the first relied on samples that are gone.
func (s *sending) again() bool {
	if !s.gone {
		return false
	}
	// fresh makes other ids of all messages, which the server has not seen.
	s.gone, s.reuse, s.index, s.fresh = false, nil, nil, nuid.Next()
	s.end.Chunks, s.end.Scans, s.end.Bytes = 0, 0, 0
	s.known.Store(0)
	return true
}

// missing reports whether the stream answers that it does not have a message.
func (s *sending) missing(ctx context.Context, seq uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	stream, err := s.line.js.Stream(ctx, s.line.stream)
	if err == nil {
		_, err = stream.GetMsg(ctx, seq)
	}
	return errors.Is(err, jetstream.ErrMsgNotFound)
}

// messageID returns the id by which the server recognises a message that it has.
func (s *sending) messageID(key Key, parts ...any) string {
	out := string(key)
	for _, p := range parts {
		// Ids are deterministic: a message that is sent again after a lost answer is a duplicate.
		out += "/" + fmt.Sprint(p)
	}
	if s.fresh != "" {
		out += "/" + s.fresh
	}
	return out
}

// window is the most messages under way at once.
const window = 32

// outbox publishes with several messages under way.
type outbox struct {
	s   *sending
	g   *errgroup.Group
	ctx context.Context
}

// outbox returns an outbox whose context ends with its first error.
func (s *sending) outbox(ctx context.Context) *outbox {
	o := &outbox{s: s}
	o.g, o.ctx = errgroup.WithContext(ctx)
	// SetLimit makes Go block while as many messages wait for their acknowledgement.
	o.g.SetLimit(window)
	return o
}

// send publishes a piece, and blocks while too many are under way. seq is set to its sequence
// number when the group's Wait has returned.
func (o *outbox) send(to, id string, p *piece, seq *uint64) {
	// Coded here, by the caller: p is not touched afterwards.
	content := p.append(make([]byte, 0, pieceHead+len(p.body)))
	o.g.Go(func() (err error) {
		var at place
		if p.Kind == restPiece {
			at, err = o.s.one(o.ctx, to, id, content)
		} else if at, err = o.s.line.publish(o.ctx, to, id, content); at.known {
			o.s.knew(at.seq)
		}
		*seq = at.seq
		return err
	})
}

// chunk publishes a chunk by its coded payload, unless its monitor has.
func (o *outbox) chunk(c *chunk.Chunk, payload []byte) error {
	s := o.s
	// Published by the monitor: only the index names it again.
	if x, known := s.reuse[c.No]; known && x.crc == c.CRC {
		s.knew(slices.Min(x.seqs))
		s.count(x, c, len(payload))
		return nil
	}
	pieces, err := split(piece{head: head{
		Key: s.from, Kind: chunkPiece,
		No: c.No, FirstScan: c.FirstScan, FirstTick: c.FirstTick, Scans: uint32(c.Scans), CRC: c.CRC,
	}}, payload)
	if err != nil {
		return fmt.Errorf("chunk %d: %w", c.No, err)
	}
	// The sequence numbers are filled in by the outbox; x must not move.
	x := &indexed{no: c.No, crc: c.CRC, seqs: make([]uint64, len(pieces))}
	s.count(x, c, len(payload))
	to := subject(s.partition, s.by, s.source, sourceItself, kindChunk)
	for i := range pieces {
		o.send(to, s.messageID(s.source, "c", c.No, fmt.Sprintf("%08x", c.CRC), i), &pieces[i], &x.seqs[i])
	}
	return nil
}

// count adds a chunk to the index and the totals.
func (s *sending) count(x *indexed, c *chunk.Chunk, size int) {
	s.index = append(s.index, x)
	s.end.Chunks++
	s.end.Scans += uint64(c.Scans)
	s.end.Bytes += uint64(size)
}

// chunks publishes the samples of a stored task, coded as they are stored.
func (s *sending) chunks(ctx context.Context, id store.TaskID) error {
	o := s.outbox(ctx)
	var failed error
	for c, err := range s.p.DB.Chunks(ctx, id, 0) {
		if err == nil {
			err = o.chunk(c, chunk.AppendPayload(make([]byte, 0, chunk.PayloadSize(c)), c))
		}
		if failed = err; err != nil {
			break
		}
	}
	// Wait also where reading failed: no message is under way when the call returns.
	return errors.Join(failed, o.g.Wait())
}

// rest publishes the index of the samples and the database of all else.
func (s *sending) rest(ctx context.Context, database []byte) error {
	// The rest is compressed as one text, its digest goes into the end, and the numbers of its pieces.
	content, err := pack(s.index, database)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	s.end.SHA256 = hex.EncodeToString(sum[:])
	pieces, err := split(piece{head: head{Key: s.key, Kind: restPiece}}, content)
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
