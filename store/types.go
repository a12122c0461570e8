package store

import (
	"time"

	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
	"wattmark/measure/quality"
)

// TaskID identifies a task: the column taskID of the view data.
type TaskID int64

// State is the state of a task. The numbers are stored: never renumber.
type State uint8

// The states.
const (
	Running    State = 1 // captured or transferred right now, or interrupted there
	Complete   State = 2
	Incomplete State = 3 // something is missing; Reason says what
	Untrimmed  State = 4 // samples are there, no window was found; trim by hand
	Failed     State = 5 // the work failed: Failure says how; what was measured of it is there
	// Partial is a task that is being stored or deleted in parts: no list, sum, search or
	// read by number has it, but for reads by the handle that began it.
	Partial State = 6
)

// Instrument is what the meter said of itself.
type Instrument = measure.Identity

// NewTask is what is known when a task begins.
type NewTask struct {
	Name, User string
	// Job is what the task is a part of, on however many hosts; empty for none.
	Job      string
	Launched time.Time
	// Monitor is the address of the monitor, CaptureID the capture there: what a
	// restarted host needs to fetch the rest.
	Monitor, CaptureID string
	GPU, GPUUUID       string
	Driver             string
	Marker             marker.Spec
	// Owner is the process that measures, as the function Owner names it, by which others
	// know whether it still runs; empty where nobody said.
	Owner string
	// Partial begins the task in state Partial: others see it from Finish on.
	Partial bool
	// Group is the measurement of several GPUs that the task is a member of.
	Group GroupRef
	// Tags and Note label it; Provenance says what it was run from, nil where nobody knows.
	Tags       map[string]string
	Note       string // a first note; read back as Notes
	Provenance *Provenance
}

// Header is what the stream's header brings.
type Header struct {
	Bench string
	// BenchGPU is the UUID of the GPU that the bench measures, as its monitor
	// says; empty where nobody said.
	BenchGPU      string
	Instrument    Instrument
	Setup         measure.Setup
	CalibrationID string
	// Started is the monitor's wall clock at device time zero.
	Started time.Time
}

// Brief is what a list tells of a task: what identifies and labels it, and what it
// came to. It holds nothing that a task could be judged by; Task reads that.
type Brief struct {
	ID              TaskID
	Name, User, Job string
	Launched        time.Time
	GPU, GPUUUID    string
	State           State
	Reason          string
	Result          *Figures // nil until there is a window
	// NVML, Scans, Tags and Pinned are as in Task.
	NVML   *measure.Joule
	Scans  uint64
	Group  GroupID // 0 for none
	Tags   map[string]string
	Pinned bool
}

// Figures are the figures of a result over its window, without what they are made of.
type Figures struct {
	From, To            measure.Seconds
	Samples, Gaps, Lost uint64
	Total               measure.Estimate
	Mean, Peak          measure.Watt
}

// Row is a task as Tasks and Unfinished list it: a Brief, and where its samples came
// from. The other fields are as in Task.
type Row struct {
	Brief
	Monitor, CaptureID string
	Driver             string
	Bench              string
	Instrument         Instrument
	CalibrationID      string
	Clock              *clock.Fit
	Cold               bool
}

// Task is one task with all but its samples and readings. The reads of one task
// return it whole; lists return Brief or Row.
type Task struct {
	ID TaskID
	NewTask
	Header
	State  State
	Reason string
	// Failure says how the work failed; nil where it did not.
	Failure *Failure
	Markers []marker.Found
	Clock   *clock.Fit      // nil without markers
	Result  *measure.Result // nil until there is a window; see Results
	// NVML is the energy by the GPU's own sensor over the same window; nil where none was read.
	NVML *measure.Joule
	// NVMLMethod is the method whose readings NVML integrates, as in Reading; empty without
	// NVML and where it was not recorded.
	NVMLMethod string
	Events     []measure.Event
	// Clipped are the channels with readings at an end of their range, where there is
	// a window; nil where neither samples nor over-range events are stored.
	Clipped []quality.Clipping
	// Chunks and Scans count what is stored, also outside the window.
	Chunks, Scans uint64
	// ResultNumber is the number of Result, under whose calibration Setup is; 0
	// without one.
	ResultNumber int
	// Results are all results over the window, the original first.
	Results []ResultInfo
	// Notes are remarks on it.
	Notes []Note
	// Pinned tasks stay when others are deleted for their age.
	Pinned bool
	// Cold tasks are packed tighter, and read as any other.
	Cold bool
}

// Brief returns what a list tells of the task.
func (t *Task) Brief() Brief {
	b := Brief{
		ID: t.ID, Name: t.Name, User: t.User, Job: t.Job, Launched: t.Launched, GPU: t.GPU, GPUUUID: t.GPUUUID,
		State: t.State, Reason: t.Reason, NVML: t.NVML, Scans: t.Scans, Group: t.Group.Group, Tags: t.Tags, Pinned: t.Pinned,
	}
	if r := t.Result; r != nil {
		b.Result = &Figures{r.From, r.To, r.Samples, r.Gaps, r.Lost, r.Total, r.Mean, r.Peak}
	}
	return b
}

// Row returns the task as Tasks lists it.
func (t *Task) Row() Row {
	return Row{
		Brief: t.Brief(), Monitor: t.Monitor, CaptureID: t.CaptureID, Driver: t.Driver, Bench: t.Bench,
		Instrument: t.Instrument, CalibrationID: t.CalibrationID, Clock: t.Clock, Cold: t.Cold,
	}
}

// Verdict judges the task by all that is known of it; ok is false while it runs.
func (t *Task) Verdict() (v quality.Verdict, ok bool) {
	if t.State == Running {
		return v, false
	}
	return quality.Judge(quality.Input{
		Setup: &t.Setup, Result: t.Result, Events: t.Events, Clipped: t.Clipped, Marker: t.Marker, Markers: t.Markers, Clock: t.Clock, Failure: t.Failure.Text(),
	}), true
}

// Failure is how the work of a task failed.
type Failure struct {
	Reason string // one sentence
	// ExitCode is the program's: its own, or 128 and the number of the signal that
	// killed it; nil where the work was not a program.
	ExitCode *int
}

// Text is the failure's sentence; empty for none.
func (f *Failure) Text() string {
	if f == nil {
		return ""
	}
	return f.Reason
}

// ResultInfo is one result of a task in short.
type ResultInfo struct {
	Number        int // 1 is the original
	CalibrationID string
	// Computed is zero for an original that is older than this record of it.
	Computed time.Time
	Total    measure.Estimate
	InUse    bool // lists, the view data and exports follow it
}

// Calibration is a setup that tasks were measured or recalculated with.
type Calibration struct {
	CalibrationID string // its name: a hash of the numbers
	Bench         string
	Since         time.Time    // launch of the first task that used it
	Instruments   []Instrument // of the tasks that were measured or recalculated with it
	Setup         measure.Setup
}

// Kernel is one kernel, on the host's wall clock.
type Kernel struct {
	Name       string
	Start, End time.Time
}

// Reading is one reading by a software method, on the host's wall clock.
type Reading struct {
	// Method is "nvml.instant", "nvml.average", "nvml.usage" (watts), "nvml.energy"
	// (joules, a counter), or a condition, whose name ends in its unit:
	// "gpu.sm_clock_hz", "gpu.memory_clock_hz", "gpu.temperature_c", "gpu.throttle_bits".
	// "method.sma" and its like are what the software methods read by themselves,
	// "nvidia-smi power.draw" and its like an imported log.
	Method string
	At     time.Time
	Value  float64
}

// Played is a chip edge as the host played it.
type Played struct {
	Kind marker.Kind
	// Number counts a kind's markers around single kernels from 1; 0 is the one that
	// bounds the work.
	Number int
	Chip   int
	At     time.Time
}

// Outcome ends a task.
type Outcome struct {
	State   State
	Reason  string
	Markers []marker.Found
	Clock   *clock.Fit
	Result  *measure.Result
	// NVML is the energy by the GPU's own sensor over the window, NVMLMethod the method
	// whose readings it integrates.
	NVML       *measure.Joule
	NVMLMethod string
	// Once is set by who measured or recovered the task: it is ended only if nobody
	// has ended it before, else ErrEnded.
	Once bool
	// Owner is NewTask.Owner where the process that measured ends its task: its end
	// replaces one that was made in its place (Recovered), though the task has ended.
	Owner string
	// Recovered is set by another process that ends the task in place of its owner.
	Recovered bool
}

// Query selects tasks, newest first.
type Query struct {
	User         string // empty for all
	Name         string // exact; a trailing * matches by prefix; empty for all
	Job          string // exact; empty for all
	Since, Until time.Time
	// Search wants all of these words, or beginnings of words, in a task's name,
	// notes and tags; Tags wants tags of these values, of any value where it is
	// empty.
	Search string
	Tags   map[string]string
	// Without wants none of these tags.
	Without []Tag
	Before  TaskID // only tasks with a smaller id; 0 from the newest
	Limit   int    // 0 for 100
}

// UserTasks is a user with the number of their tasks.
type UserTasks struct {
	User  string
	Tasks uint64
}
