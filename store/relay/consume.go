package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"wattmark/store"
)

// Consumer brings tasks from the streams into a database.
type Consumer struct {
	Bus *Bus
	DB  *store.DB
	// Name is the store's, the same each time it starts: the cluster remembers by it what
	// the store has. Several programs of one name share the work.
	Name string
	// Partitions are those that this store takes; all when empty.
	Partitions []int
	// AckWait is how long a task may be left alone before another program of this name
	// is given it; 10 s when zero. It is renewed while one is being stored. A task that
	// was given over a line that broke waits as long.
	AckWait time.Duration
	// Retry is how long a task is left alone that could not be stored for a reason that may
	// not be its own; five times as long the next time, and then it is set aside. 2 s when zero.
	Retry time.Duration
	// Free removes from the streams what all stores have, every so often; 0 leaves it there.
	Free time.Duration
	// Unclaimed is how long samples stay there of which no host has said what they are;
	// the usual when zero.
	Unclaimed time.Duration
	// Taken is told of each task; nil for silence.
	Taken func(Taken)
	Log   *slog.Logger
}

// Taken is a task that was stored.
type Taken struct {
	End
	store.CopiedTask
	Stored time.Duration // that it took
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckName refuses names of stores that the cluster cannot take.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("name %q: want 1 to 64 letters, digits, - or _", name)
	}
	return nil
}

// Run takes tasks until the context ends. What goes wrong on the way is logged and tried
// again; a task that can never be stored is set aside with the reason.
func (c *Consumer) Run(ctx context.Context) error {
	if err := CheckName(c.Name); err != nil {
		return err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	parts := c.Partitions
	if len(parts) == 0 {
		for p := range c.Bus.partitions {
			parts = append(parts, p)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range parts {
		if p < 0 || p >= c.Bus.partitions {
			return fmt.Errorf("partition %d: the cluster has 0 to %d", p, c.Bus.partitions-1)
		}
		t := &taker{Consumer: c, partition: p, log: c.Log.With("stream", StreamName(p)), failed: map[Key]int{}}
		g.Go(func() error { return t.run(ctx) })
	}
	return g.Wait()
}

func (c *Consumer) ackWait() time.Duration {
	if c.AckWait > 0 {
		return c.AckWait
	}
	return 10 * time.Second
}

func (c *Consumer) unclaimed() time.Duration {
	if c.Unclaimed > 0 {
		return c.Unclaimed
	}
	return Unclaimed
}

// taker takes the tasks of one partition, one at a time.
type taker struct {
	*Consumer
	partition int
	log       *slog.Logger
	cons      jetstream.Consumer
	freed     time.Time
	trouble   time.Time // since when nothing can be taken
	// failed counts how often each task could not be stored for a reason that is not known
	// to be its own. Only run's goroutine uses it.
	failed map[Key]int
}

// waitFor is how long one request for tasks lasts. One that is lost on its way, as in an
// election, costs as much.
const waitFor = 5 * time.Second

func (t *taker) run(ctx context.Context) error {
	for wait := firstPause; ; {
		err := t.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			if wait = firstPause; !t.trouble.IsZero() {
				t.log.Info("tasks are taken again", "waited", since(t.trouble))
				t.trouble = time.Time{}
			}
			continue
		}
		if t.trouble.IsZero() {
			t.trouble = time.Now()
			t.log.Warn("no tasks can be taken: waiting", "error", err)
		}
		if pause(ctx, wait) != nil {
			return nil
		}
		wait = min(2*wait, longestStep)
	}
}

// round asks for one task and stores it.
func (t *taker) round(ctx context.Context) error {
	if err := t.attach(ctx); err != nil {
		return err
	}
	if t.Free > 0 && time.Since(t.freed) >= t.Free {
		t.freed = time.Now()
		if n, err := t.Bus.Free(ctx, t.partition, t.unclaimed()); err != nil {
			t.log.Debug("could not free what all stores have", "error", err)
		} else if n > 0 {
			t.log.Info("freed what all stores have", "tasks", n)
		}
	}
	asking, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	batch, err := t.cons.Fetch(1, jetstream.FetchContext(asking))
	if err != nil {
		return t.detached(err)
	}
	for m := range batch.Messages() {
		if err := t.take(ctx, m); err != nil {
			return err
		}
	}
	if err := batch.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, jetstream.ErrNoMessages) {
		return t.detached(err)
	}
	return nil
}

// attach finds the store's place in the stream, or makes it.
func (t *taker) attach(ctx context.Context) (err error) {
	if t.cons != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	t.cons, err = t.Bus.js.CreateOrUpdateConsumer(ctx, StreamName(t.partition), jetstream.ConsumerConfig{
		Durable: t.Name, Description: "wattmark store " + t.DB.Path(),
		FilterSubject: subject(t.partition, "*", "*", "*", kindEnd),
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		// A task that is to be tried again is pending: a low limit would let a few such
		// tasks keep all others back.
		AckWait: t.ackWait(), MaxAckPending: -1, MaxDeliver: -1,
	})
	if err != nil {
		t.cons = nil
	}
	return err
}

// detached makes the next round look for its place again where that is gone.
func (t *taker) detached(err error) error {
	if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		t.cons = nil
	}
	return err
}

// take stores the task that an end is of, and acknowledges it. Errors are of what keeps any
// task from being stored; a task that cannot be stored itself is tried again or set aside.
func (t *taker) take(ctx context.Context, m jetstream.Msg) error {
	stop := t.keep(ctx, m)
	key := keyOf(m.Subject())
	got, err := t.guarded(ctx, m, key)
	stop()
	switch {
	case err == nil:
		delete(t.failed, key)
		acked, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		if err := m.DoubleAck(acked); err != nil {
			t.log.Debug("a task is stored, and the cluster does not know it yet", "key", key, "error", err)
		}
		if t.Taken != nil {
			t.Taken(*got)
		}
	case ctx.Err() != nil:
		_ = m.Nak() // another program of this name may go on at once
	case passing(err):
		_ = m.NakWithDelay(longestStep)
		return err
	default:
		return t.refused(ctx, m, key, err)
	}
	return nil
}

// guarded turns a panic over a task's content into an error.
func (t *taker) guarded(ctx context.Context, m jetstream.Msg, key Key) (got *Taken, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("panic while a task was stored", "key", key, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return t.store(ctx, m, key)
}

// keep tells the cluster that a task is being worked on, until it is stopped.
func (t *taker) keep(ctx context.Context, m jetstream.Msg) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, t.ackWait()/3) == nil {
			_ = m.InProgress() // the next one may arrive
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// end reads the end that a message carries.
func (t *taker) end(m jetstream.Msg, key Key) (*End, error) {
	end, err := parseEnd(m.Data(), key)
	if err != nil {
		return nil, err
	}
	by := byOf(m.Subject())
	switch {
	case sourceOf(m.Subject()) != end.Source():
		return nil, malformed("end of %s stands under another source than its samples'", key)
	case by != anyone && by.user() != end.User:
		return nil, malformed("%s has published it in the name of %s", by.user(), end.User)
	}
	end.by = by
	if meta, err := m.Metadata(); err == nil && end.Chunks >= meta.Sequence.Stream {
		return nil, malformed("end of %s names %d chunks and is itself message %d of its stream", key, end.Chunks, meta.Sequence.Stream)
	}
	return end, nil
}

func (t *taker) store(ctx context.Context, m jetstream.Msg, key Key) (*Taken, error) {
	began := time.Now()
	end, err := t.end(m, key)
	if err != nil {
		return nil, err
	}
	got := &Taken{End: *end}
	// What is here already is not read: the stream may no longer have it.
	if got.To, got.Known, err = t.here(ctx, end); err != nil {
		return nil, err
	}
	if got.Known {
		return got, t.settle(ctx, end)
	}
	f, err := t.Bus.fetcher(ctx, t.partition, end)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAway, err)
	}
	list, database, err := f.rest(ctx)
	if err != nil {
		return nil, err
	}
	if got.CopiedTask, err = t.put(ctx, f, list, database); err != nil {
		return nil, err
	}
	got.Stored = time.Since(began)
	return got, t.settle(ctx, end)
}

// put stores a task whose rest is here.
func (t *taker) put(ctx context.Context, f *fetcher, list []indexed, database []byte) (out store.CopiedTask, err error) {
	dir, err := store.TempDir()
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "task.db")
	if err := os.WriteFile(path, database, 0o600); err != nil {
		return out, err
	}
	from, err := store.OpenSource(ctx, path)
	if err != nil {
		return out, ofContent(ctx, err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	reading, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	id, err := one(reading, from, f.end)
	if err != nil && reading.Err() != nil && ctx.Err() == nil {
		return out, fmt.Errorf("its rows cannot be read within %s", readWithin)
	} else if err != nil {
		return out, ofContent(ctx, err)
	}
	return t.DB.TakeTask(ctx, from, id, f.arriving(list))
}

// readWithin is how long reading a task from its own small database may take.
const readWithin = 2 * time.Minute

// one is the only task of the database in which it came, which is sound.
func one(ctx context.Context, from *store.DB, end *End) (id store.TaskID, err error) {
	var found string
	if err := from.SQL().QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found); err != nil {
		return 0, err
	}
	if found != "ok" {
		return 0, malformed("its rows are damaged: %s", found)
	}
	ids, err := from.TaskIDs(ctx)
	if err != nil {
		return 0, err
	}
	if len(ids) != 1 {
		return 0, malformed("%d tasks come as one", len(ids))
	}
	x, err := from.Task(ctx, ids[0])
	if err == nil && IdentityOf(&x) != end.Identity {
		err = malformed("end and rest are of different tasks")
	}
	return ids[0], err
}
