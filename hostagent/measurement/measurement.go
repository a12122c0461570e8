// Package measurement makes one measurement on the GPU machine:
//
//	GetBench → StartCapture → BeginTask → warm up → start marker → work →
//	stop marker → StopCapture → trailer checked → clock fit → window →
//	joules → Finish → ReleaseCapture
//
// Its parts:
//
//	Measure       the sequence above around a Work function; samples are read and
//	              stored while the work runs
//	Bracket       the same sequence advanced step by step by the caller's own code:
//	              StartBracket → Begin → Mark … → End → Stopped → Wait
//	MeasureGroup  several GPUs, one Measure each, aligned at a barrier
//	Recover       finishes tasks that another process left behind
//	Recalculate   a new result from stored samples
//	Attribute     a task's energy by recorded kernel
//	FindGPUs      the GPUs that a selector names:  "all", "0,2", "GPU-…,GPU-…"
//
// Cancelling the context at any step leaves a task with a state and a reason, the
// capture stopped and the bench free.
package measurement

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/hostagent/witness"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// Monitor is the monitor's side of a measurement; *monitorclient.Client, Held, and test
// monitors that fail implement it.
type Monitor interface {
	Address() string
	GetBench(ctx context.Context) (session.Bench, error)
	Start(ctx context.Context, r session.Request) (session.Started, error)
	// KeepLease renews the capture's lease until ctx ends or the capture has
	// ended; it returns an error when the monitor no longer has the capture.
	KeepLease(ctx context.Context, captureID string, lease time.Duration) error
	Stop(ctx context.Context, captureID string) (session.Summary, error)
	Read(ctx context.Context, o monitorclient.ReadOptions, sink monitorclient.Sink) (session.Trailer, error)
	Release(ctx context.Context, captureID string) error
}

// Store is the part of the task database that a measurement writes and reads. *store.DB
// implements it, and databases for tests that fail at a chosen step.
type Store interface {
	// Room returns the error that BeginTask would return for want of space.
	Room(ctx context.Context) error
	BeginTask(ctx context.Context, t store.NewTask) (store.TaskID, error)
	// The samples, as the stream brings them; a task may be resumed behind its last chunk.
	PutHeader(ctx context.Context, id store.TaskID, h store.Header) error
	AppendChunks(ctx context.Context, id store.TaskID, chunks []*chunk.Chunk, events []measure.Event) error
	NextChunk(ctx context.Context, id store.TaskID) (no uint64, any bool, err error)
	Chunks(ctx context.Context, id store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error]
	// Analyses, of which windows are one kind.
	Analysis(ctx context.Context, kind, name string, version int) (*store.Analysis, error)
	PutAnalysis(ctx context.Context, a store.Analysis) (version int, err error)
	// Thin deletes samples of a running task but for windows to keep.
	Thin(ctx context.Context, id store.TaskID, from uint64, before measure.Seconds, keep []Window) (next uint64, err error)
	// The host's own record of the work.
	PutReadings(ctx context.Context, id store.TaskID, r []store.Reading) error
	PutKernels(ctx context.Context, id store.TaskID, k []store.Kernel) error
	PutFailure(ctx context.Context, id store.TaskID, f store.Failure) error
	PutPlayed(ctx context.Context, id store.TaskID, p []store.Played) error
	PutEvents(ctx context.Context, id store.TaskID, events []measure.Event) error
	PutMethods(ctx context.Context, id store.TaskID, m []store.MethodResult) error
	// The same, read back for the analysis; Finish stores its outcome.
	ReadingsWithin(ctx context.Context, id store.TaskID, method string, from, to time.Time) ([]store.Reading, error)
	Kernels(ctx context.Context, id store.TaskID) ([]store.Kernel, error)
	Played(ctx context.Context, id store.TaskID) ([]store.Played, error)
	Finish(ctx context.Context, id store.TaskID, o store.Outcome) error
	Task(ctx context.Context, id store.TaskID) (store.Task, error)
	// Tasks for recovery and recalculation.
	Unfinished(ctx context.Context) ([]store.Row, error)
	Tasks(ctx context.Context, q store.Query) ([]store.Row, error)
	TaskResult(ctx context.Context, id store.TaskID, number int) (store.Task, error)
	AddResult(ctx context.Context, id store.TaskID, s measure.Setup, r *measure.Result) (number int, added bool,
		err error)
}

// Work is the measured work. It runs between the markers and returns the kernels that ran,
// on the host's wall clock; with none, the time from its call to its return is the window.
// An error makes the task failed; the samples are kept.
type Work func(ctx context.Context) ([]gpu.Kernel, error)

// ProgramError is the error of work that is a program which did not end with exit code 0.
type ProgramError struct {
	Program string
	How     string // "exit status 7", "signal: killed"
	Code    int    // its exit code, or 128 and the number of the signal that killed it
}

// Error words the program's end as a shell would.
func (e *ProgramError) Error() string { return fmt.Sprintf("%s ended with %s", e.Program, e.How) }

// Config is a measurement to make.
type Config struct {
	DB      Store
	Monitor Monitor
	Device  gpu.Device
	// Sensor is the GPU's own sensor, sampled beside the truth; nil for none.
	Sensor gpu.PowerSensor

	Name, User string
	Job        string // that the task is a part of, on however many hosts
	Holder     string // user@host, shown to other users of the bench

	// Owner is this process, as store.Owner names it: other processes leave the task to it
	// while it lives. Empty for none.
	Owner string

	// Tags and Note label the task; Provenance is its origin, nil for unknown. The monitor's
	// version is filled in.
	Tags       map[string]string
	Note       string
	Provenance *store.Provenance

	// Open opens the GPU, and all else that the work needs, while the bench is held and before
	// there is a task; it returns the GPU's own sensor, nil to keep Sensor. Its error frees the
	// bench. Nil where Device is open already.
	Open func(ctx context.Context) (gpu.PowerSensor, error)

	// Process is the process whose descendants count as this measurement's on the GPU, beside
	// those that bear EnvWork; this process when zero.
	Process int

	// Marker replaces the profile that fits the bench; nil to choose.
	Marker *marker.Spec
	// WarmUp loads the GPU before the first marker; zero for none.
	WarmUp time.Duration
	// Lead is kept idle before the start marker and after the stop marker, so
	// that the detector sees the level before the first chip; 50 ms when zero,
	// more where the instrument is slow.
	Lead time.Duration
	// Wait is how long to queue for a busy bench.
	Wait time.Duration
	// Lease ends the capture when this host goes silent for so long; 30 s when zero.
	Lease time.Duration
	// Methods tune the software methods that read the sensor beside the truth;
	// NoMethods leaves them out.
	Methods   sensor.MethodOptions
	NoMethods bool
	// Machine are the host's own sensors, read beside the meter; nil for none.
	Machine []*machine.Sensor
	// Witness is switched beside the work, as a second witness of time; nil for none. The caller closes it.
	Witness witness.Line
	// Now is the host's clock: time.Now when nil.
	Now func() time.Time
	// Records: programs take times of their own while the work runs, which are stored later, as
	// those of recorded kernels.
	Records bool
	// Tag is carried by the markers; zero for a random one.
	Tag uint32
	// Group is the measurement of several GPUs that this one is a part of; the
	// zero value for none.
	Group store.GroupRef
	// MustSayGPU refuses a bench that does not state its GPU.
	MustSayGPU bool
	// Played returns the markers that the work played itself, around single kernels. It is
	// called when the work has ended; nil for none.
	Played func() ([]gpu.Played, error)
	// Marks are markers amid the work, which leaves the Device alone then.
	Marks Marks
	// Unmarked: the Device plays no markers. The clocks are related by when the capture began, to a part of a second.
	Unmarked bool
	// Rolling deletes samples while the work runs.
	Rolling Rolling
	// Progress receives each step, from several goroutines; nil for none.
	Progress func(Progress)
	// Warn receives a text at once, from another goroutine, when samples no longer arrive or
	// are no longer stored while the work goes on; nil for none.
	Warn func(text string)

	line *timeline // of the group; nil for one of its own
}

// Phase is a step of a measurement.
type Phase string

// The phases, in order.
const (
	PhaseBench    Phase = "bench"
	PhaseCapture  Phase = "capture"
	PhaseWarmUp   Phase = "warm-up"
	PhaseMarker   Phase = "marker"
	PhaseWork     Phase = "work"
	PhaseStop     Phase = "stop"
	PhaseTransfer Phase = "transfer"
	PhaseAnalysis Phase = "analysis"
	PhaseDone     Phase = "done"
)

// Progress is a moment of a measurement.
type Progress struct {
	Task   store.TaskID // zero before there is one
	Phase  Phase
	Chunks uint64
	Scans  uint64
	Bytes  uint64 // coded, as they travel and are stored
}

// Dial connects to the monitor of an unfinished task.
type Dial func(ctx context.Context, address string) (Monitor, func() error, error)

// Window is a span of device time.
type Window = measure.Window

// ErrBench: the monitor cannot use its instrument.
var ErrBench = errors.New("the bench cannot measure now")

const (
	// farewell bounds the time in which a cancelled measurement stops the capture, stores the
	// samples on their way, and ends its task.
	farewell = 10 * time.Second
	// courtesy is how long a monitor that is asked to start still has to answer a
	// host that gives up.
	courtesy = 2 * time.Second
	// leastLead shows the detector the level before the first chip.
	leastLead = 50 * time.Millisecond
	// defaultLease ends the capture of a host that vanished.
	defaultLease = 30 * time.Second
)

// Measure makes one measurement and returns its task. Once the capture has
// started the task exists, and it ends with a state and a reason also when an
// error is returned. An error of the work itself is returned after the
// measurement has been brought to its end.
func Measure(ctx context.Context, cfg Config, work Work) (id store.TaskID, err error) {
	s, err := begin(ctx, cfg)
	if err != nil {
		return 0, fmt.Errorf("measure: %w", err)
	}
	defer measuring.Delete(s.capture)
	if err := s.run(ctx, work); err != nil {
		return s.id, fmt.Errorf("measure: task %d: %w", s.id, err)
	}
	return s.id, nil
}

// attempt is one Measure.
type attempt struct {
	cfg      Config
	id       store.TaskID
	bench    session.Bench
	spec     marker.Spec
	capture  string
	phase    atomic.Value // Phase
	n        Counters
	line     *timeline
	watcher  *sensor.Watcher // nil without
	failed   error           // of the work
	answers  time.Duration   // how long the monitor took to answer a question
	began    gpu.Span        // from the request of the capture to the answer
	worked   gpu.Span        // from the first kernel's begin to the last one's end
	unmarked string          // why marks amid the work are missing; empty where none are
	rolled   roll
}

// validate refuses a measurement without its parts, and names that cannot be stored.
func (c *Config) validate() error {
	switch {
	case c.DB == nil || c.Monitor == nil || c.Device == nil:
		return errors.New("a measurement needs a database, a monitor and a GPU")
	case c.Name == "":
		return errors.New("a measurement needs a name")
	case c.Rolling.Keep > 0 && c.Witness != nil:
		return errors.New("the changes of a witness line are looked for in all samples: keep them")
	}
	return errors.Join(measure.CheckText("name", c.Name), measure.CheckText("user", c.User),
		measure.CheckText("holder", c.Holder))
}

// enter begins a phase and reports it.
func (s *attempt) enter(p Phase) {
	if p == PhaseMarker && s.cfg.Unmarked {
		return
	}
	s.phase.Store(p)
	s.tell()
}

// tell reports the phase and the transfer's counts.
func (s *attempt) tell() {
	if s.cfg.Progress != nil {
		s.cfg.Progress(Progress{s.id, s.phase.Load().(Phase), s.n.Chunks.Load(), s.n.Scans.Load(), s.n.Bytes.Load()})
	}
}

// run plays, measures, fetches and concludes. The transfer and the lease outlive the
// caller's context by farewell at most: a cancelled task still gets its samples.
func (s *attempt) run(ctx context.Context, work Work) error {
	side, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	// The transfer and the lease run beside the work, on a context that the caller's end does
	// not cancel: samples that are taken are worth storing.
	go func() { // ten times a second
		for sensor.Pause(side, 100*time.Millisecond) == nil {
			s.tell()
		}
	}()
	transfer := s.transfer(side)
	lease := s.keepLease(side)
	playErr := s.play(ctx, work)
	cancelled := ctx.Err() != nil
	failed := s.phase.Load() // where play gave up
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(farewell, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(side, func() { timer.Stop() })
	})()
	// The lease is renewed until the stop has been answered: a bench whose lease ran out
	// between the two would be another user's already.
	s.enter(PhaseStop)
	_, stopErr := s.cfg.Monitor.Stop(side, s.capture)
	stopErr, leaseErr := unlessGone(stopErr), unlessGone(lease())
	s.enter(PhaseTransfer)
	got := <-transfer
	v := verdict{owner: s.cfg.Owner, clock: s.unmarkedClock()}
	for _, text := range []string{s.bench.Bridged, s.line.clockNote(), s.unmarked, s.rolled.why} {
		v.note("%s", text)
	}
	_, broken := errors.AsType[*playError](playErr)
	switch {
	case cancelled:
		v.incomplete("cancelled during %s%s", failed, because(ctx))
	case broken:
		v.incomplete("%v", playErr)
	}
	if stopErr != nil {
		v.note(notStopped+"%v", stopErr)
	}
	s.enter(PhaseAnalysis)
	err := end(context.WithoutCancel(ctx), s.cfg.DB, s.cfg.Monitor, s.id, s.capture, got, v)
	s.enter(PhaseDone)
	return errors.Join(s.failed, playErr, leaseErr, stopErr, err)
}

// unlessGone drops ErrGone: a recovery has released the capture, and has had all of it.
func unlessGone(err error) error {
	if errors.Is(err, monitorclient.ErrGone) {
		return nil
	}
	return err
}

// because returns the cause of a cancelled context, where there is one beside ctx.Err.
func because(ctx context.Context) string {
	if cause := context.Cause(ctx); cause != nil && cause.Error() != ctx.Err().Error() {
		return ": " + measure.Printable(cause.Error())
	}
	return ""
}

// arrival is the end of a transfer.
type arrival struct {
	trailer session.Trailer
	err     error
}

// transfer stores the samples while the capture runs. A transfer that ends though the work goes
// on is a warning.
func (s *attempt) transfer(ctx context.Context) <-chan arrival {
	out := make(chan arrival, 1)
	go func() {
		t, err := Transfer(ctx, s.cfg.DB, s.cfg.Monitor, s.id,
			monitorclient.ReadOptions{CaptureID: s.capture, Follow: true}, &s.n)
		phase := s.phase.Load().(Phase)
		works := phase == PhaseWarmUp || phase == PhaseMarker || phase == PhaseWork
		switch {
		case ctx.Err() != nil || !works || s.cfg.Warn == nil:
		case err != nil:
			s.cfg.Warn(fmt.Sprintf("task %d: its samples are no longer stored, and the work goes on: %v", s.id, err))
		default:
			s.cfg.Warn(fmt.Sprintf("task %d: the capture has ended, and the work goes on without being measured: %s",
				s.id, t.Summary.Reason))
		}
		out <- arrival{t, err}
	}()
	return out
}

// keepLease renews the lease until the returned function is called.
func (s *attempt) keepLease(ctx context.Context) (stop func() error) {
	return beside(ctx, func(ctx context.Context) error { return s.cfg.Monitor.KeepLease(ctx, s.capture, s.cfg.Lease) })
}
