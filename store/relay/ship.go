package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// Shipper publishes all tasks of a database, present and future.
type Shipper struct {
	*Publisher
	// Release lets a monitor remove a capture; nil where others release captures.
	Release func(ctx context.Context, monitor, capture string) error
	// Every is the time between two looks for tasks; 2 s when zero.
	Every time.Duration
	// Shipped is called with each task; it may be nil.
	Shipped func(Published)
	Log     *slog.Logger

	later   map[store.TaskID]later // tasks that could not be published
	release time.Time              // not before
}

// later is when a task is tried again, and how long the pause before was.
type later struct {
	at    time.Time
	pause time.Duration
}

// The longest pause after a task that cannot be published, the one after a monitor that does not answer, and the
// bound of one request to a monitor.
const (
	longestWait = 10 * time.Minute
	awayFor     = time.Minute
	askMonitors = 10 * time.Second
)

// Run publishes until the context ends.
func (s *Shipper) Run(ctx context.Context) error {
	for {
		if err := s.All(ctx); err != nil && ctx.Err() == nil {
			cmp.Or(s.Log, slog.New(slog.DiscardHandler)).Warn("could not publish all tasks", "error", err)
		}
		if backoff.Sleep(ctx, max(s.Every, 2*time.Second)) != nil {
			return nil
		}
	}
}

// atOnce is the number of tasks looked up at a time.
const atOnce = 256

// All publishes the tasks that are there, and releases the captures that were kept for them. A
// task that cannot be published is among the errors, and passed over for a while: twice as long each time, from 2 s to
// longestWait.
func (s *Shipper) All(ctx context.Context) error {
	if s.later == nil {
		s.later = map[store.TaskID]later{}
	}
	var errs []error
	for {
		// As many more as wait: those come back in the answer and are left out.
		ids, err := s.DB.Untagged(ctx, TagReplicated, atOnce+len(s.later))
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		now := time.Now()
		ids = slices.DeleteFunc(ids, func(id store.TaskID) bool { return now.Before(s.later[id].at) })
		if len(ids) == 0 {
			break
		}
		for _, id := range ids {
			p, err := s.Replicate(ctx, id)
			if err == nil {
				delete(s.later, id)
				if s.Shipped != nil {
					s.Shipped(p)
				}
				continue
			}
			errs = append(errs, err)
			if ctx.Err() != nil {
				return errors.Join(errs...)
			}
			// It must not keep all others back.
			pause := min(max(2*s.later[id].pause, 2*time.Second), longestWait)
			s.later[id] = later{time.Now().Add(pause), pause}
		}
	}
	return errors.Join(append(errs, s.letGo(ctx))...)
}

// letGo releases the captures of tasks that the streams have.
func (s *Shipper) letGo(ctx context.Context) error {
	// A monitor that is away is not asked again for awayFor.
	if s.Release == nil || time.Now().Before(s.release) {
		return nil
	}
	held, err := s.DB.Tagged(ctx, TagHeld)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(held)) {
		t, err := s.DB.Task(ctx, id)
		if err == nil && t.Tags[TagReplicated] == "" {
			// Not in the streams yet: its capture stays at the monitor.
			continue
		}
		if err == nil {
			asking, cancel := context.WithTimeout(ctx, askMonitors)
			err = s.Release(asking, held[id], t.CaptureID)
			cancel()
		}
		if err == nil {
			err = s.DB.SetTags(ctx, id, nil, []string{TagHeld})
		}
		if err != nil {
			s.release = time.Now().Add(awayFor)
			errs = append(errs, fmt.Errorf("release the capture of task %d at %s: %w", id, held[id], err))
		}
	}
	return errors.Join(errs...)
}

// TagOrphan marks tasks that a monitor has filed, because no host had published a task of its
// capture. Its value is the bench.
const TagOrphan = "orphan"

// CaptureHeader describes a capture before its samples.
type CaptureHeader struct {
	store.Header
	// Task is the task that it is filed as where no host publishes one. Its Monitor stays empty:
	// the monitor does not know the address by which hosts reach it.
	Task store.NewTask
}

// Capture is the publishing of one capture by its monitor. One goroutine uses it.
type Capture struct {
	*sending
	header CaptureHeader
	ctx    context.Context
	out    *outbox
	events []measure.Event
	whole  bool // the stream has all chunks and their index
}

// Capture begins, or takes up again, the publishing of a capture. The context bounds the
// publishing of all its samples.
func (p *Publisher) Capture(ctx context.Context, h CaptureHeader) (*Capture, error) {
	h.Task.Monitor = ""
	s, err := p.sending(IdentityOf(&store.Task{NewTask: h.Task, Header: h.Header}))
	if err != nil {
		return nil, fmt.Errorf("publish capture %s: %w", h.Task.CaptureID, err)
	}
	s.end.Orphan = true
	c := &Capture{sending: s, header: h, ctx: ctx}
	c.begin()
	c.reuse = p.Bus.index(ctx, s.partition, s.source)
	return c, nil
}

// begin starts a run over the capture's chunks.
func (c *Capture) begin() {
	c.out = c.outbox(c.ctx)
	c.events, c.whole = nil, false
}

// Chunk publishes a chunk by its coded payload, which is lent; one that an earlier index lists
// is not sent. It blocks while too many are under way.
func (c *Capture) Chunk(x *chunk.Chunk, payload []byte) error { return c.out.chunk(x, payload) }

// Event adds an event of the capture.
func (c *Capture) Event(e measure.Event) { c.events = append(c.events, e) }

// Published blocks until the stream has acknowledged all chunks, and publishes their index for hosts.
// again: chunks that the stream had were freed meanwhile, and the capture must be read once more.
func (c *Capture) Published(ctx context.Context) (again bool, err error) {
	if err := c.out.g.Wait(); err != nil {
		return false, err
	}
	if c.lost(ctx); c.again() {
		c.begin()
		return true, nil
	}
	content, err := pack(c.index, []byte(c.end.User))
	// An index is one message: of some 70 000 chunks, four hours. Of longer captures a host sends all chunks
	// itself.
	if err == nil && len(content) <= maxPiece && len(c.reuse) != len(c.index) {
		to := subject(c.partition, c.by, c.source, sourceItself, kindIndex)
		_, err = c.one(ctx, to, c.messageID(c.source, "i", len(c.index)), content)
	}
	c.whole = err == nil
	return false, err
}

// Claimed reports whether a host's task of the capture is in the stream.
func (c *Capture) Claimed(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	ends, err := c.p.Bus.subjects(ctx, c.partition, "*", c.source, kindEnd)
	for sub := range ends {
		// Another user's task may name the capture too.
		if a := parseSubject(sub); a.key != c.end.Key && a.by.publishesFor(c.end.User) {
			return true, nil
		}
	}
	return false, err
}

// Filed reports whether the capture's own task is in the stream.
func (c *Capture) Filed(ctx context.Context) (bool, error) {
	return c.p.Bus.has(ctx, c.partition, c.source, c.end.Key), nil
}

// File publishes the capture as a task of its own, from its header, events and outcome. All
// its chunks must be published.
func (c *Capture) File(ctx context.Context, o store.Outcome) (Published, error) {
	out := Published{Key: c.end.Key}
	if !c.whole {
		return out, errors.New("file a capture: its chunks are not published yet")
	}
	err := c.run(ctx, func() error { return nil }, func() ([]byte, error) {
		return c.p.database(ctx, func(db *store.DB) error { return c.fill(ctx, db, o) })
	})
	if err == nil && c.gone {
		err = errors.New("its samples were removed from the stream meanwhile")
	}
	if err != nil {
		return out, fmt.Errorf("file capture %s: %w", c.header.Task.CaptureID, err)
	}
	out.Chunks, out.Bytes = c.end.Chunks, c.end.Bytes
	return out, nil
}

// fill writes the capture as a task without samples.
func (c *Capture) fill(ctx context.Context, db *store.DB, o store.Outcome) error {
	t := c.header.Task
	t.Tags = map[string]string{TagOrphan: strings.TrimSpace(c.header.Bench)}
	id, err := db.BeginTask(ctx, t)
	if err == nil {
		err = db.PutHeader(ctx, id, c.header.Header)
	}
	if err == nil && len(c.events) > 0 {
		err = db.AppendChunks(ctx, id, nil, c.events)
	}
	if err != nil {
		return err
	}
	return db.Finish(ctx, id, o)
}
