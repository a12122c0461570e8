package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
)

// Consumer brings tasks from the streams into a database.
type Consumer struct {
	Bus *Bus
	DB  *store.DB
	// Name of the store, the same each time it starts: the cluster keeps the store's progress
	// under it. Several programs of one name share the work.
	Name string
	// Partitions are those that this store takes; all when empty.
	Partitions []int
	// Retry is the pause after a task could not be stored for a reason that may not be its
	// own; 2 s when zero. Each further pause is five times as long; after the fourth try it is set aside.
	Retry time.Duration
	// Free is the time between two removals of what all stores have; 0 leaves it in the streams.
	Free time.Duration
	// Taken is called with each task, from one goroutine a partition; it may be nil.
	Taken func(Taken)
	Log   *slog.Logger
}

// Taken is a task that was stored.
type Taken struct {
	End
	store.CopiedTask `json:"copy"`
	Stored           time.Duration // from the end's arrival
}

var nameForm = lazy.Regexp(`^[A-Za-z0-9_-]{1,64}$`)

// CheckName refuses names of stores and nodes that the cluster cannot use in subjects.
func CheckName(name string) error {
	if !nameForm().MatchString(name) {
		return fmt.Errorf("name %q: want 1 to 64 letters, digits, - or _", name)
	}
	return nil
}

// Run takes tasks until the context ends. Failures are logged and tried
// again; a task that can never be stored is set aside with the reason.
func (c *Consumer) Run(ctx context.Context) error {
	if err := CheckName(c.Name); err != nil {
		return err
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Retry = cmp.Or(c.Retry, 2*time.Second)
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

// taker takes the tasks of one partition, one at a time.
// A store is one durable consumer for each stream, of ends only: samples and rest are fetched by
// sequence number. With one task at a time, an acknowledgement stands for all that was read.
type taker struct {
	*Consumer
	partition int
	log       *slog.Logger
	cons      jetstream.Consumer
	freed     time.Time
	trouble   time.Time // since then no task can be taken
	// failed counts how often each task could not be stored for a reason that is not known
	// to be its own. Only run's goroutine uses it.
	failed map[Key]int
}

// ackWait is the time without a sign of life after which another program of this name gets the task. It is renewed
// while the task is being stored. A task sent over a connection that broke waits as long.
const ackWait = 10 * time.Second

// waitFor is the length of one request for tasks. A request that is lost, as in an election, costs as much.
const waitFor = 5 * time.Second

// run takes tasks until the context ends.
// Errors are logged once when the trouble begins and once when it is over, not for each try.
func (t *taker) run(ctx context.Context) error {
	for wait := pauses(); ; {
		err := t.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			if wait.Reset(); !t.trouble.IsZero() {
				t.log.Info("tasks are taken again", "waited", time.Since(t.trouble).Round(time.Millisecond))
				t.trouble = time.Time{}
			}
			continue
		}
		if t.trouble.IsZero() {
			t.trouble = time.Now()
			t.log.Warn("no tasks can be taken: waiting", "error", err)
		}
		if wait.Wait(ctx) != nil {
			return nil
		}
	}
}

// round waits for one task, at most waitFor, and stores it. Every so often it first frees what
// all stores have.
func (t *taker) round(ctx context.Context) error {
	// The store's consumer of the stream is looked up, or made, where it is not known.
	if t.cons == nil {
		cons, err := t.Bus.js.CreateOrUpdateConsumer(ctx, StreamName(t.partition), jetstream.ConsumerConfig{
			Durable: t.Name, Description: "wattmark store " + t.DB.Path(),
			// Of all publishers, sources and keys: ends alone.
			FilterSubject: subject(t.partition, "*", "*", "*", kindEnd),
			DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
			// A task that is to be tried again is pending: a low limit would let a few such
			// tasks keep all others back.
			AckWait: ackWait, MaxAckPending: -1, MaxDeliver: -1,
		})
		if err != nil {
			return err
		}
		t.cons = cons
	}
	// Freeing runs between two tasks, on the goroutine that takes them.
	if t.Free > 0 && time.Since(t.freed) >= t.Free {
		t.freed = time.Now()
		if n, err := t.Bus.Free(ctx, t.partition, Unclaimed); err != nil {
			t.log.Debug("could not free what all stores have", "error", err)
		} else if n > 0 {
			t.log.Info("freed what all stores have", "tasks", n)
		}
	}
	asking, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	// One at a time: a task that waits in a batch would use up its ackWait.
	batch, err := t.cons.Fetch(1, jetstream.FetchContext(asking))
	if err == nil {
		for m := range batch.Messages() {
			if err := t.take(ctx, m); err != nil {
				return err
			}
		}
		err = batch.Error()
	}
	switch {
	// No task within waitFor is the usual outcome of an idle stream.
	case isAny(err, context.DeadlineExceeded, jetstream.ErrNoMessages):
		return nil
	case isAny(err, jetstream.ErrConsumerDeleted, jetstream.ErrConsumerNotFound, jetstream.ErrStreamNotFound):
		t.cons = nil
	}
	return err
}

// take stores the task of an end, and acknowledges it. It returns the errors that keep every
// task from being stored; a task that itself cannot be stored is tried again or set aside.
func (t *taker) take(ctx context.Context, m jetstream.Msg) error {
	// The end is acknowledged after the last transaction: a crash before that has the task sent again, and
	// here finds it whole. From here the task is kept from other programs of this name until it is
	// acknowledged: its wait is renewed after each third of it, so that two renewals may be lost.
	keeping, stop := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for backoff.Sleep(keeping, ackWait/3) == nil {
			_ = m.InProgress() // the next one may arrive
		}
	})
	key := parseSubject(m.Subject()).key
	got, err := t.store(ctx, m, key)
	stop()
	renewals.Wait()
	var system syscall.Errno
	switch {
	case err == nil:
		delete(t.failed, key)
		// DoubleAck blocks until the server has confirmed the acknowledgement: Free relies on the
		// floor. Where it fails, the task is sent again and found whole.
		if err := m.DoubleAck(ctx); err != nil {
			t.log.Debug("a task is stored, and the cluster does not know it yet", "key", key, "error", err)
		}
		if t.Taken != nil {
			t.Taken(*got)
		}
	case ctx.Err() != nil:
		_ = m.Nak() // another program of this name may go on at once
	// Of the database, the disk or the cluster – away, full or damaged – rather than of the task: no other
	// task could be stored either.
	case errors.As(err, &system) || isAny(err, errAway, store.ErrUnreachable, store.ErrFull, store.ErrBusy, store.ErrIO,
		store.ErrReadOnly, store.ErrCannotOpen, store.ErrDamaged, store.ErrNotDatabase):
		_ = m.NakWithDelay(longestStep)
		return err
	default:
		return t.refused(ctx, m, key, err)
	}
	return nil
}

// end reads an end and checks that its subject allows it.
func (t *taker) end(m jetstream.Msg, key Key) (*End, error) {
	end, err := parseEnd(m.Data(), key)
	if err != nil {
		return nil, err
	}
	from := parseSubject(m.Subject())
	by := from.by
	// The subject is checked by the cluster's permissions, the content is not: both must name the same
	// source and user.
	switch {
	case from.source != end.Source():
		return nil, malformed("end of %s stands under another source than its samples'", key)
	case !by.publishesFor(end.User):
		return nil, malformed("%s has published it in the name of %s", by.user(), end.User)
	}
	end.by = by
	// Each chunk takes one message at least, before the end: a larger count is false, and would cost
	// memory.
	if meta, err := m.Metadata(); err == nil && end.Chunks >= meta.Sequence.Stream {
		return nil, malformed("end of %s names %d chunks and is itself message %d of its stream",
			key, end.Chunks, meta.Sequence.Stream)
	}
	return end, nil
}

// store stores the task of an end, in transactions.
// Order of steps: check the end, look for the task, read the index and the rows, store rows and samples
// (TakeTask, in transactions that a restart continues), settle with the monitor's task.
// A panic becomes an error: the content comes from other machines, and one task must not end the store.
func (t *taker) store(ctx context.Context, m jetstream.Msg, key Key) (got *Taken, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("panic while a task was stored", "key", key, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	began := time.Now()
	end, err := t.end(m, key)
	if err != nil {
		return nil, err
	}
	got = &Taken{End: *end}
	// A task that is here already is not read: the stream may no longer have it.
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

// put stores a task, whose rows come from database and whose samples from the stream.
func (t *taker) put(
	ctx context.Context, f *fetcher, list []*indexed, database []byte,
) (out store.CopiedTask, err error) {
	// The rows come as an SQLite file, which another machine made: it is opened in a private folder,
	// checked, and read within a bound of time.
	from, err := store.OpenReceived(ctx, func(path string) error { return os.WriteFile(path, database, 0o600) })
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
	// From here errors are of this store's database or of the stream.
	// The checksums are known before the first chunk is read: the database compares each with them.
	return t.DB.TakeTask(ctx, from, id, store.Arriving{
		CRCs: lists.Map(list, func(x *indexed) uint32 { return x.crc }),
		Chunks: func(ctx context.Context, from uint64) iter.Seq2[*chunk.Chunk, error] {
			return f.chunks(ctx, list, from)
		},
	})
}

// readWithin bounds the reading of a task from its own small database.
const readWithin = 2 * time.Minute

// one returns the only task of the database in which it came, after a check of both.
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

// here reports whether a task need not be stored: it is here whole, or it is a monitor's
// and its host's has all of its samples.
//
// A capture has one task in a store: its host's, or the one that its monitor filed while
// no host had published one. Both may come, in any order, also at once to two programs of one
// store; so each looks for the other once it has stored its own (settle).
func (t *taker) here(ctx context.Context, end *End) (id store.TaskID, known bool, err error) {
	task := store.NewTask{
		Monitor: end.Monitor, CaptureID: end.Capture, GPUUUID: end.GPU, User: end.User, Name: end.Name,
	}
	if end.LaunchedNS != 0 {
		task.Launched = time.Unix(0, end.LaunchedNS)
	}
	id, known, err = t.DB.Whole(ctx, task)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return 0, false, err
	}
	if known || !end.Orphan {
		return id, known, nil
	}
	of, err := t.DB.OfBenchCapture(ctx, end.Bench, end.Capture)
	// A monitor's task is not stored where the host's has at least as many chunks.
	for _, x := range of {
		if x.Tags[TagOrphan] == "" && x.State != store.Running && x.Chunks >= end.Chunks {
			return x.ID, true, err
		}
	}
	return 0, false, err
}

// settle removes a monitor's task of a capture where the host's is here and has no fewer
// samples: a host that lost some must not remove those that the monitor kept.
func (t *taker) settle(ctx context.Context, end *End) error {
	if end.Capture == "" {
		return nil
	}
	of, err := t.DB.OfBenchCapture(ctx, end.Bench, end.Capture)
	if err != nil {
		return err
	}
	var most uint64
	hosts := false
	for _, x := range of {
		if x.Tags[TagOrphan] == "" {
			hosts, most = true, max(most, x.Chunks)
		}
	}
	// The monitor's task stays where it has more samples than each host's.
	for _, x := range of {
		if !hosts || x.Tags[TagOrphan] == "" || x.Chunks > most {
			continue
		}
		if !end.by.publishesFor(x.User) { // of another user's capture
			continue
		}
		switch err := t.DB.DeleteTask(ctx, x.ID); {
		case errors.Is(err, store.ErrPinned):
			continue // it is to be kept
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return err
		}
		t.log.Info("a capture's host has published its task: the one that its monitor filed is removed",
			"task", int64(x.ID), "capture", end.Capture)
	}
	return nil
}
