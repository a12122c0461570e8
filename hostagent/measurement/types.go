// Package measurement is the life of a measurement on the GPU machine:
//
//	GetBench → StartCapture → BeginTask → warm up → start marker → work →
//	stop marker → StopCapture → trailer checked → clock fit → window →
//	joules → Finish → ReleaseCapture
//
// The samples are read and stored while the work runs. Cancelling the context
// at any step leaves a task with a state and a reason, the capture stopped and
// the bench free.
package measurement

import (
	"context"
	"fmt"
	"iter"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/methods"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
	"wattmark/store"
)

// Monitor is what a measurement asks of the monitor. *monitorclient.Client is one.
type Monitor interface {
	Address() string
	GetBench(ctx context.Context) (monitorclient.Bench, error)
	Start(ctx context.Context, r monitorclient.StartRequest) (monitorclient.Started, error)
	// KeepLease renews the capture's lease until ctx ends or the capture has
	// ended; it returns an error when the monitor no longer has the capture.
	KeepLease(ctx context.Context, captureID string, lease time.Duration) error
	Stop(ctx context.Context, captureID string) (monitorclient.Summary, error)
	Read(ctx context.Context, o monitorclient.ReadOptions, sink monitorclient.Sink) (monitorclient.Trailer, error)
	Release(ctx context.Context, captureID string) error
}

// Store is what a measurement asks of the task database. *store.DB is one.
type Store interface {
	// Room refuses what BeginTask would for want of room.
	Room(ctx context.Context) error
	BeginTask(ctx context.Context, t store.NewTask) (store.TaskID, error)
	PutHeader(ctx context.Context, id store.TaskID, h store.Header) error
	AppendChunks(ctx context.Context, id store.TaskID, chunks []*chunk.Chunk, events []measure.Event) error
	NextChunk(ctx context.Context, id store.TaskID) (no uint64, any bool, err error)
	Chunks(ctx context.Context, id store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error]
	PutReadings(ctx context.Context, id store.TaskID, r []store.Reading) error
	PutKernels(ctx context.Context, id store.TaskID, k []store.Kernel) error
	PutFailure(ctx context.Context, id store.TaskID, f store.Failure) error
	PutPlayed(ctx context.Context, id store.TaskID, p []store.Played) error
	PutEvents(ctx context.Context, id store.TaskID, events []measure.Event) error
	PutMethods(ctx context.Context, id store.TaskID, m []store.MethodResult) error
	Readings(ctx context.Context, id store.TaskID) ([]store.Reading, error)
	Kernels(ctx context.Context, id store.TaskID) ([]store.Kernel, error)
	Played(ctx context.Context, id store.TaskID) ([]store.Played, error)
	Finish(ctx context.Context, id store.TaskID, o store.Outcome) error
	Task(ctx context.Context, id store.TaskID) (store.Task, error)
	Unfinished(ctx context.Context) ([]store.Row, error)
	Tasks(ctx context.Context, q store.Query) ([]store.Row, error)
	TaskResult(ctx context.Context, id store.TaskID, number int) (store.Task, error)
	AddResult(ctx context.Context, id store.TaskID, s measure.Setup, r *measure.Result) (number int, added bool, err error)
}

// Work is what is measured. It runs between the markers and returns the kernels
// that ran, with the host's wall clock; with none, the time from its call to its
// return is the window. An error makes the task failed; what was measured is kept.
type Work func(ctx context.Context) ([]hostagent.Kernel, error)

// ProgramError is the error of work that is a program which did not end with exit code 0.
type ProgramError struct {
	Program string
	How     string // "exit status 7", "signal: killed"
	Code    int    // its exit code, or 128 and the number of the signal that killed it
}

func (e *ProgramError) Error() string { return fmt.Sprintf("%s ended with %s", e.Program, e.How) }

// Config is a measurement to make.
type Config struct {
	DB      Store
	Monitor Monitor
	Device  hostagent.Device
	// Sensor is the GPU's own sensor, sampled beside the truth; nil for none.
	Sensor hostagent.PowerSensor

	Name, User string
	Job        string // that the task is a part of, on however many hosts
	Holder     string // user@host, shown to others who want the bench

	// Owner is this process, as store.Owner names it, by which others know whether the
	// task is left to it; empty to say nothing.
	Owner string

	// Tags and Note label the task; Provenance says what it is run from, nil for
	// nothing. The monitor's version is filled in.
	Tags       map[string]string
	Note       string
	Provenance *store.Provenance

	// Open opens the GPU, and what else the work needs, once the bench is held and before
	// there is a task; it returns the GPU's own sensor, nil to keep Sensor. Its error frees
	// the bench. Nil where Device is open already.
	Open func(ctx context.Context) (hostagent.PowerSensor, error)

	// Process is the one whose processes are not strangers on the GPU, beside those that bear
	// EnvWork; this one when zero.
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
	// SampleEvery is the distance of the sensor's readings; 10 ms when zero.
	SampleEvery time.Duration
	// Methods tune the software methods that read the sensor beside the truth;
	// NoMethods leaves them out.
	Methods   methods.Options
	NoMethods bool
	// Now is the host's clock: time.Now when nil.
	Now func() time.Time
	// Records says that programs take times of their own while the work runs, which are
	// stored later, as of recorded kernels.
	Records bool
	// Tag is carried by the markers; zero for a random one.
	Tag uint32
	// Group is the measurement of several GPUs that this one is a part of; the
	// zero value for none.
	Group store.GroupRef
	// MustSayGPU refuses a bench that does not say which GPU it measures.
	MustSayGPU bool
	// Played tells which markers the work played itself, around single kernels. It is
	// asked when the work has ended; nil where there are none.
	Played func() ([]hostagent.Played, error)
	// Progress is told what goes on, from several goroutines; nil for silence.
	Progress func(Progress)
	// Warn is told at once, from another goroutine, that the samples no longer come or are
	// no longer stored while the work goes on; nil for silence.
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
