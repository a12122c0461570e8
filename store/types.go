package store

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store/internal/process"
)

// TaskID identifies a task: the column taskID of the view data.
type TaskID int64

// State is the state of a task. The numbers are stored: never renumber.
//
//	Running ─▶ Complete, Incomplete, Untrimmed   and among these by a revision
//	Running ─▶ Failed
//	Partial ─▶ any of them                      when a copy is whole
type State uint8

// The states.
const (
	Running    State = 1 // captured or transferred right now, or interrupted there
	Complete   State = 2
	Incomplete State = 3 // something is missing; Reason names it
	Untrimmed  State = 4 // samples are there, no window was found; trim by hand
	Failed     State = 5 // the work failed, see Failure; samples up to then are there
	// Partial is a task that is being stored or deleted in parts: no list, sum, search or
	// read by number has it, but for reads by the handle that began it.
	Partial State = 6
)

// stateNames are the names of the states, by their numbers.
var stateNames = map[State]string{
	Running: "running", Complete: "complete", Incomplete: "incomplete", Untrimmed: "untrimmed",
	Failed: "failed", Partial: "partial",
}

// String returns the state's name, as JSON and tables show it.
func (s State) String() string { return measure.NameOf(stateNames, s, "state") }

// Instrument is the identity that the meter reported.
type Instrument = measure.Identity

// NewTask is the state of a task at its begin.
type NewTask struct {
	Name, User string
	// Job is the job that the task is part of, on however many hosts; empty for none.
	Job      string
	Launched time.Time
	// Monitor is the address of the monitor, CaptureID the capture there: with both a
	// restarted host fetches the rest.
	Monitor, CaptureID string
	GPU, GPUUUID       string
	Driver             string
	Marker             marker.Spec
	// Owner is the process that measures, as the function Owner names it, by which others
	// know whether it still runs; empty where it is unknown.
	Owner string
	// Partial begins the task in state Partial: others see it from Finish on.
	Partial bool
	// Group is the measurement of several GPUs that the task is a member of.
	Group GroupRef
	// Tags and Note label it; Provenance is its origin, nil where it is unknown.
	Tags       map[string]string
	Note       string // a first note; read back as Notes
	Provenance *Provenance
}

// Header is the content of the stream's header.
type Header struct {
	Bench string
	// BenchGPU is the UUID of the GPU that the bench measures, by its monitor; empty where it is unknown.
	BenchGPU      string
	Instrument    Instrument
	Setup         measure.Setup
	CalibrationID string
	// Started is the monitor's wall clock at device time zero.
	Started time.Time
}

// Brief is a task as lists show it: its identity, labels and result. It has too little for a
// verdict; Task reads the rest.
type Brief struct {
	ID              TaskID
	Name, User, Job string
	Launched        time.Time
	GPU, GPUUUID    string
	State           State
	Reason          string
	Result          *measure.Result // nil until there is a window; lists leave out its rails and budgets
	// NVML, Scans, Tags and Pinned are as in Task.
	NVML   *measure.Joule
	Scans  uint64
	Group  GroupID // 0 for none
	Tags   map[string]string
	Pinned bool
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
	// Failure describes how the work failed; nil where it did not.
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
	// Chunks and Scans count the stored samples, also outside the window.
	Chunks, Scans uint64
	// ResultNumber is the number of Result, under whose calibration Setup is; 0 without one.
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

// Brief returns the task as lists show it.
func (t *Task) Brief() Brief {
	return Brief{
		ID: t.ID, Name: t.Name, User: t.User, Job: t.Job, Launched: t.Launched, GPU: t.GPU, GPUUUID: t.GPUUUID,
		State: t.State, Reason: t.Reason, Result: t.Result, NVML: t.NVML, Scans: t.Scans, Group: t.Group.Group,
		Tags: t.Tags, Pinned: t.Pinned,
	}
}

// Row returns the task as Tasks lists it.
func (t *Task) Row() Row {
	return Row{
		Brief: t.Brief(), Monitor: t.Monitor, CaptureID: t.CaptureID, Driver: t.Driver, Bench: t.Bench,
		Instrument: t.Instrument, CalibrationID: t.CalibrationID, Clock: t.Clock, Cold: t.Cold,
	}
}

// OwnSensor reports whether the meter was the GPU's own sensor.
func (t *Task) OwnSensor() bool { return t.Instrument.OwnSensor() }

// Verdict judges the task by all that is known of it; ok is false while it runs.
func (t *Task) Verdict() (v quality.Verdict, ok bool) {
	if t.State == Running {
		return v, false
	}
	var sensor measure.Joule
	if t.NVML != nil {
		sensor = *t.NVML
	}
	return quality.Judge(quality.Input{
		Setup: &t.Setup, Result: t.Result, Events: t.Events, Clipped: t.Clipped, Marker: t.Marker, Markers: t.Markers,
		Clock: t.Clock, Failure: t.Failure.Text(), At: t.Launched, OwnSensor: t.OwnSensor(), Sensor: sensor,
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
	Number        int    `json:"number"` // 1 is the original
	CalibrationID string `json:"calibration_id"`
	// Computed is zero for an original that is older than this record of it.
	Computed         time.Time `json:"computed,omitzero"`
	measure.Estimate           // of all rails
	InUse            bool      `json:"in_use"` // lists, the view data and exports follow it
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
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Reading is one reading by a software method, on the host's wall clock.
type Reading struct {
	// Method is "nvml.instant", "nvml.average", "nvml.usage" (watts), "nvml.energy" (joules, a counter), or
	// a condition, whose name ends in its unit: "gpu.sm_clock_hz", "gpu.memory_clock_hz",
	// "gpu.temperature_c", "gpu.throttle_bits". "machine.energy.package-0" (J) and "machine.power.…" (W) are the host's
	// own sensors, "machine.clock_error_s" how far its clock may be off UTC, "method.sma" and its like readings by the
	// software methods themselves, "witness" the seconds that a call took which switched a line (package
	// hostagent/witness), "nvidia-smi power.draw" and its like an imported log.
	Method string
	At     time.Time
	Value  float64
}

// Played is a chip edge as the host played it.
type Played struct {
	Kind marker.Kind `json:"kind"`
	// Number counts a kind's markers around single kernels from 1; 0 is the one that bounds the work.
	Number int       `json:"number,omitempty"`
	Chip   int       `json:"chip"`
	At     time.Time `json:"at"`
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
	// Once is set by the process that measured or recovered the task: a task that has
	// ended already is ErrEnded.
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
	// Search wants all of these words, or beginnings of words, in a task's name, notes and tags; Tags wants
	// tags of these values, of any value where it is empty.
	Search string
	Tags   map[string]string
	// Without wants none of these tags.
	Without []Tag
	// Verdicts wants one of these. They are not stored: tasks are read whole and judged until the page is full.
	Verdicts []quality.Level
	Before   TaskID // only tasks with a smaller id, in the order ByID; 0 from the newest
	Limit    int    // 0 for 100
	// Order is that of the list, the greatest first unless it is Ascending; 0 is ByID.
	Order     Order
	Ascending bool
}

// UserTasks is a user with the number of their tasks.
type UserTasks struct {
	User  string `json:"user"`
	Tasks uint64 `json:"tasks"`
}

// ErrEnded: the task has ended already, and the call is for running tasks only.
var ErrEnded = errors.New("task has ended already")

// Event moves a task from state to state.
type Event uint8

// The events. An end comes from the measurement itself, once; a revision is made of a task that may have
// ended before, as when its window is set by hand.
const (
	Begun             Event = iota + 1 // the capture has started
	Postponed                          // the transfer stopped, and the monitor keeps the rest
	EndedComplete                      // all is there
	EndedIncomplete                    // something is missing for good
	EndedUntrimmed                     // all is there, and no window was found
	RevisedComplete                    // looked at anew: all is there
	RevisedIncomplete                  // looked at anew: something is missing
	RevisedUntrimmed                   // looked at anew: no window
	EndedFailed                        // the work failed
	RevisedFailed                      // looked at anew: the work failed
)

var eventNames = map[Event]string{
	Begun: "begun", Postponed: "postponed", EndedComplete: "ended complete", EndedIncomplete: "ended incomplete",
	EndedUntrimmed: "ended untrimmed", RevisedComplete: "revised complete", RevisedIncomplete: "revised incomplete",
	RevisedUntrimmed: "revised untrimmed", EndedFailed: "ended failed", RevisedFailed: "revised failed",
}

func (e Event) String() string { return measure.NameOf(eventNames, e, "event") }

// Transitions is a table of a task's life. State 0 is that of a task that is not there yet.
type Transitions map[State]map[Event]State

// transitions is the whole life of a task: steps that are not in the table are refused.
// docs/reliability.md shows the same table (a test compares the two).
var transitions = Transitions{
	0: {Begun: Running},
	Running: {
		Postponed: Running, EndedComplete: Complete, EndedIncomplete: Incomplete, EndedUntrimmed: Untrimmed,
		RevisedComplete: Complete, RevisedIncomplete: Incomplete, RevisedUntrimmed: Untrimmed,
		EndedFailed: Failed, RevisedFailed: Failed,
	},
	Complete:   {RevisedComplete: Complete, RevisedIncomplete: Incomplete, RevisedUntrimmed: Untrimmed},
	Incomplete: {RevisedComplete: Complete, RevisedIncomplete: Incomplete, RevisedUntrimmed: Untrimmed},
	Untrimmed:  {RevisedComplete: Complete, RevisedIncomplete: Incomplete, RevisedUntrimmed: Untrimmed},
	Failed:     {RevisedFailed: Failed},
}

// Life returns a copy of the table that tasks follow, for checkers.
func Life() Transitions {
	t := Transitions{}
	for s, m := range transitions {
		t[s] = maps.Clone(m)
	}
	return t
}

// Next returns the state that an event leads to. Errors wrap ErrEnded.
func (t Transitions) Next(s State, on Event) (State, error) {
	if n, ok := t[s][on]; ok {
		return n, nil
	}
	return s, fmt.Errorf("%w: state %d, %v", ErrEnded, s, on)
}

// Liveness is the state of a process that owns a task.
type Liveness = process.Liveness

// The states: unknown, as of a process of another machine; running; ended.
const (
	LivenessUnknown = process.Unknown
	Alive           = process.Alive
	Gone            = process.Gone
)

// Owner names this process, for Lives; empty where the system does not reveal enough.
func Owner() string { return process.Owner() }

// Lives returns the state of the process that Owner named, and its number.
func Lives(name string) (Liveness, int) { return process.Lives(name) }

// TempDir makes a temporary folder that is removed by the next program of this machine once
// this process is gone.
func TempDir() (string, error) { return process.TempDir() }
