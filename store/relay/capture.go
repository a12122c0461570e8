package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// TagOrphan is borne by tasks that a monitor has filed, because no host had said what its
// capture was of. Its value is the bench.
const TagOrphan = "orphan"

// CaptureHeader is what a monitor knows of a capture before its samples.
type CaptureHeader struct {
	store.Header
	// Task is what it is filed as where no host ever says more. Its Monitor stays empty: the
	// address by which hosts know the monitor is not known to itself.
	Task store.NewTask
}

// Capture is the publishing of one capture by its monitor. One goroutine uses it.
type Capture struct {
	*sending
	header CaptureHeader
	ctx    context.Context
	out    *outbox
	events []measure.Event
	whole  bool // the stream has all chunks, and the index of them
}

// Capture begins, or takes up again, the publishing of a capture. The context is that of
// all its samples.
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

func (c *Capture) begin() {
	c.out = c.outbox(c.ctx)
	c.events, c.whole = nil, false
}

// Chunk publishes a chunk by its coded payload, which is lent; one that the stream has by
// an index of before is not sent. It waits while too many are under way.
func (c *Capture) Chunk(x *chunk.Chunk, payload []byte) error { return c.out.chunk(x, payload) }

// Event takes note of what befell the capture.
func (c *Capture) Event(e measure.Event) { c.events = append(c.events, e) }

// maxIndex is how large an index may be that goes into one message: some 70 000 chunks,
// four hours. Of longer captures a host sends all chunks itself.
const maxIndex = maxPiece

// Published returns when the stream has acknowledged all chunks, and tells hosts which
// those are. again says that what the stream had was freed meanwhile: the capture must be
// read once more.
func (c *Capture) Published(ctx context.Context) (again bool, err error) {
	if err := c.out.g.Wait(); err != nil {
		return false, err
	}
	if c.lost(ctx); c.again() {
		c.begin()
		return true, nil
	}
	content, err := pack(c.list(), []byte(c.end.User))
	if err == nil && len(content) <= maxIndex && len(c.reuse) != len(c.index) {
		err = c.one(ctx, subject(c.partition, c.by, c.source, sourceItself, kindIndex), c.messageID(c.source, "i", len(c.index)), content)
	}
	c.whole = err == nil
	return false, err
}

// Claimed reports whether a host's task of the capture is in the stream.
func (c *Capture) Claimed(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	ends, err := c.p.Bus.filtered(ctx, c.partition, subject(c.partition, "*", c.source, "*", kindEnd))
	for sub := range ends {
		// Another user's task may name the capture too.
		if by := byOf(sub); keyOf(sub) != c.end.Key && (by == anyone || by.user() == c.end.User) {
			return true, nil
		}
	}
	return false, err
}

// Filed reports whether the capture's own task is in the stream.
func (c *Capture) Filed(ctx context.Context) (bool, error) {
	return c.p.Bus.has(ctx, c.partition, c.source, c.end.Key)
}

// File publishes the capture as a task of its own, with what the monitor knows of it. All
// its chunks must be published.
func (c *Capture) File(ctx context.Context, o store.Outcome) (Published, error) {
	out := Published{Key: c.end.Key}
	if !c.whole {
		return out, errors.New("file a capture: its chunks are not published yet")
	}
	err := c.run(ctx, func() error { return nil }, func() ([]byte, error) { return c.bare(ctx, o) })
	if err == nil && c.gone {
		err = errors.New("its samples were removed from the stream meanwhile")
	}
	if err != nil {
		return out, fmt.Errorf("file capture %s: %w", c.header.Task.CaptureID, err)
	}
	out.Chunks, out.Bytes, out.Rest = c.end.Chunks, c.end.Bytes, c.packed
	return out, nil
}

// bare makes a database of the capture as a task without samples.
func (c *Capture) bare(ctx context.Context, o store.Outcome) (content []byte, err error) {
	dir, err := store.TempDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "task.db")
	empty, err := c.p.emptyDatabase(ctx, filepath.Join(dir, "empty.db"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, empty, 0o600); err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.fill(ctx, db, o), db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

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
