package measurement

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// Errors of a Recorder.
var (
	// ErrRecording: a recording of the bench runs.
	ErrRecording = errors.New("the bench is being recorded")
	// ErrNotRecording: no recording of the bench runs here.
	ErrNotRecording = errors.New("this host records nothing of the bench")
)

// Recorder measures benches from a start until a stop, without work or markers of its own. The window of such a task is
// all that was sampled. Its methods are safe for concurrent use.
type Recorder struct {
	db    *store.DB
	dial  Dial
	owner string

	mu      sync.Mutex
	closed  bool
	running map[string]*recording // by the monitor's address
	all     sync.WaitGroup
}

// NewRecorder returns a recorder that stores its tasks in db as those of owner.
func NewRecorder(db *store.DB, dial Dial, owner string) *Recorder {
	return &Recorder{db: db, dial: dial, owner: owner, running: map[string]*recording{}}
}

// recording is one task between start and stop.
type recording struct {
	until context.Context   // ends by stop; the measurement outlives the call that starts it
	stop  func()            // may be called more than once
	begun chan store.TaskID // receives the task when it is sampled
	done  chan struct{}     // closed when the task has its outcome
	id    store.TaskID      // set before done is closed
	err   error             // likewise
}

// Start takes a bench at a monitor's address, and returns the task once it is sampled. A bench that somebody holds
// is refused (monitorclient.ErrBusy), one that is recorded here too (ErrRecording).
func (r *Recorder) Start(ctx context.Context, address, name, user string) (store.TaskID, error) {
	x := &recording{begun: make(chan store.TaskID, 1), done: make(chan struct{})}
	x.until, x.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.mu.Lock()
	if r.closed || r.running[address] != nil {
		defer r.mu.Unlock()
		if r.closed {
			return 0, context.Canceled
		}
		return 0, ErrRecording
	}
	r.running[address] = x
	r.all.Go(func() { r.record(context.WithoutCancel(ctx), x, address, Config{Name: name, User: user}) })
	r.mu.Unlock()
	select {
	case id := <-x.begun:
		return id, nil
	case <-x.done:
		return 0, x.err
	case <-ctx.Done():
		x.stop()
		return 0, ctx.Err()
	}
}

// Stop ends the recording of a bench, and returns its task when that has its outcome.
func (r *Recorder) Stop(ctx context.Context, address string) (store.TaskID, error) {
	r.mu.Lock()
	x := r.running[address]
	r.mu.Unlock()
	if x == nil {
		return 0, ErrNotRecording
	}
	x.stop()
	select {
	case <-x.done:
		return x.id, x.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Recording reports whether a bench is recorded here.
func (r *Recorder) Recording(address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[address] != nil
}

// Close stops all recordings and refuses new ones. It blocks until each task has its outcome.
func (r *Recorder) Close() {
	r.mu.Lock()
	r.closed = true
	for _, x := range r.running {
		x.stop()
	}
	r.mu.Unlock()
	r.all.Wait()
}

// record makes a measurement whose work is to wait for the stop.
func (r *Recorder) record(ctx context.Context, x *recording, address string, cfg Config) {
	defer func() {
		r.mu.Lock()
		delete(r.running, address)
		r.mu.Unlock()
		close(x.done)
	}()
	m, hangUp, err := r.dial(ctx, address)
	if x.err = err; err != nil {
		return
	}
	defer func() { x.err = errors.Join(x.err, hangUp()) }()
	bench, err := m.GetBench(ctx)
	if x.err = err; err != nil {
		return
	}
	cfg.DB, cfg.Monitor, cfg.Owner, cfg.Device = r.db, m, r.owner, Onlooker{UUID: bench.GPU}
	cfg.Marker = new(marker.Spec) // none is played, and none is missed
	var once sync.Once
	cfg.Progress = func(p Progress) {
		if p.Phase == PhaseWork {
			once.Do(func() { x.begun <- p.Task })
		}
	}
	x.id, x.err = Measure(ctx, cfg, func(context.Context) ([]gpu.Kernel, error) {
		<-x.until.Done()
		return nil, nil
	})
	if x.err == nil {
		x.err = r.whole(ctx, x.id)
	}
}

// whole makes all samples of a task without markers its window; one whose capture broke off stays incomplete.
func (r *Recorder) whole(ctx context.Context, id store.TaskID) error {
	t, err := r.db.Task(ctx, id)
	if err != nil || t.Result != nil {
		return err
	}
	from, to, err := r.db.Extent(ctx, id)
	if err != nil {
		return err
	}
	scan := t.Setup.Timebase.Seconds(t.Setup.Timebase.TicksPerScan) // the last one ends where nothing follows it
	o := store.Outcome{State: store.Complete}
	if t.State == store.Incomplete {
		o.State, o.Reason = t.State, t.Reason
	}
	return rework(ctx, r.db, &t, Window{From: from, To: to - scan}, measure.Edges{}, o)
}

// Onlooker is a gpu.Device that this program cannot load: it plays no markers.
type Onlooker gpu.Info

// Info returns what is known of the GPU.
func (o Onlooker) Info() gpu.Info { return gpu.Info(o) }

// PlayMarker returns a marker without an edge.
func (Onlooker) PlayMarker(_ context.Context, _ marker.Spec, kind marker.Kind) (gpu.Played, error) {
	return gpu.Played{Kind: kind}, nil
}

// RunBenchmark is not supported, and nor is WarmUp.
func (Onlooker) RunBenchmark(context.Context, gpu.Benchmark, time.Duration) ([]gpu.Kernel, error) {
	return nil, errors.ErrUnsupported
}

func (Onlooker) WarmUp(context.Context, time.Duration) error { return errors.ErrUnsupported }
func (Onlooker) Close() error                                { return nil }
