package client

import (
	"fmt"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
)

// Task is one measurement.
type Task struct {
	ID         int64
	Name, User string
	State      State
	Reason     string // why it is incomplete, untrimmed or failed
	Launched   time.Time
	GPU        string
	GPUUUID    string // empty where it is not known
	Job        string // that the task is a part of; empty for none
	Tags       map[string]string
	Pinned     bool   // retention leaves it
	Stored     uint64 // samples stored, also outside the window
	// Group is the measurement of several GPUs that the task is one of; 0 for none.
	Group int64
	// Window is the result over the window; nil while there is none.
	Window *Window
	// Verdict is how far the result may be trusted: in a Detail, and in lists that
	// were asked for by verdicts.
	Verdict Verdict
	// NVML is the energy by the GPU's own sensor over the same window; nil where
	// none was read.
	NVML *measure.Joule
}

// Window is the result over the time between the markers.
type Window struct {
	From, To   measure.Seconds // in device time; both zero from a host of version 0.1
	Duration   measure.Seconds
	Samples    uint64
	Gaps, Lost uint64
	Energy     measure.Estimate // k = 2
	Mean, Peak measure.Watt
}

// Detail is one task with all but its samples.
type Detail struct {
	Task
	Reasons    []*Reason // why the verdict is not Good, the gravest first
	Notes      []Note    // oldest first
	Provenance *Provenance
	Instrument measure.Identity
	// Setup turns counts into watts; nil until the capture has begun.
	Setup *measure.Setup
	Rails []measure.RailResult // over the window, without their budgets
	// Budget is the total's uncertainty budget; empty where it was not kept.
	Budget []measure.Contribution
	// Started is the monitor's wall clock at device time zero; zero where it is not known.
	Started time.Time
	Markers []marker.Found
	Events  []measure.Event
	Clock   *clock.Fit // nil without markers
	// From and To are the window in device time; both zero without one.
	From, To measure.Seconds
	// FirstScan is the scan of sequence number 0.
	FirstScan uint64
	// Result is the number of the result shown; Results are all of them, the
	// original first.
	Result  uint32
	Results []Result
}

// Result is one of a task's results: the original, or that of
// the same counts under a newer calibration.
type Result struct {
	Number        uint32 // 1 is the original
	CalibrationID string
	Computed      time.Time // zero where it is not known
	Energy        measure.Estimate
	InUse         bool // lists, samples and exports follow it
}

// parseTask reads a task of a list. A state of a later version is refused, as its meaning
// is not known.
func parseTask(p *pb.Task) (Task, error) {
	var f wire.Fields
	t := Task{
		ID: p.GetTaskId(), Name: p.GetName(), User: p.GetUser(), State: p.GetState(), Reason: p.GetReason(),
		Launched: f.Time("launched", p.GetLaunched()), GPU: p.GetGpu(), GPUUUID: p.GetGpuUuid(), Job: p.GetJob(),
		Stored: p.GetStored(), Group: p.GetGroupId(), Verdict: p.GetVerdict(), Tags: p.GetTags(), Pinned: p.GetPinned(),
	}
	if f.Err == nil && (t.State < pb.TaskState_TASK_STATE_RUNNING || t.State > pb.TaskState_TASK_STATE_FAILED) {
		f.Err = fmt.Errorf("%w: state %v is not known to this version", wire.ErrMessage, t.State)
	}
	if n, ok := p.GetNvml().(*pb.Task_NvmlJ); ok {
		j := measure.Joule(n.NvmlJ)
		t.NVML = &j
	}
	if p.GetEnergy() != nil {
		t.Window = &Window{
			From: measure.Seconds(p.GetWindow().GetFromS()), To: measure.Seconds(p.GetWindow().GetToS()),
			Duration: measure.Seconds(p.DurationS), Samples: p.Samples, Gaps: p.Gaps, Lost: p.Lost,
			Energy: wire.Field(&f, wire.ParseEnergy, p.Energy), Mean: measure.Watt(p.MeanW), Peak: measure.Watt(p.PeakW),
		}
	}
	if f.Err != nil {
		return Task{}, fmt.Errorf("task %d: %w", t.ID, f.Err)
	}
	return t, nil
}

// parseDetail reads a task with all but its samples; an error names the task.
func parseDetail(p *pb.GetTaskResponse) (Detail, error) {
	task, err := parseTask(p.Task)
	if err != nil {
		return Detail{}, err
	}
	var f wire.Fields
	d := Detail{
		Task: task, Reasons: p.Reasons, Provenance: p.Provenance, FirstScan: p.FirstScan, Result: p.Result,
		Instrument: wire.Field(&f, wire.ParseInstrument, p.Instrument), Clock: wire.Field(&f, wire.ParseClock, p.Clock),
		Rails: fields(&f, wire.ParseRailResult, p.Rails), Events: fields(&f, wire.ParseEvent, p.Events),
		Markers: fields(&f, wire.ParseMarker, p.Markers), Budget: wire.Field(&f, wire.ParseBudget, p.Budget),
		Started: f.Time("started", p.Started), Results: fields(&f, parseResult, p.Results),
		Notes: fields(&f, parseNote, p.Notes),
	}
	if p.Setup != nil {
		setup := wire.Field(&f, wire.ParseSetup, p.Setup)
		d.Setup = &setup
		for i := range d.Rails { // their roles do not travel with the results
			for _, s := range setup.Rails {
				if s.Name == d.Rails[i].Name {
					d.Rails[i].Role = s.Role
				}
			}
		}
	}
	if w := wire.Field(&f, wire.ParseWindow, p.Window); w != nil {
		d.From, d.To = w.From, w.To
	}
	if f.Err != nil {
		return Detail{}, fmt.Errorf("task %d: %w", task.ID, f.Err)
	}
	return d, nil
}

// parseResult reads one of a task's results.
func parseResult(r *pb.TaskResult) (Result, error) {
	var f wire.Fields
	x := Result{
		Number: r.GetNumber(), CalibrationID: r.GetCalibrationId(), InUse: r.GetInUse(),
		Computed: f.Time("computed", r.GetComputed()), Energy: wire.Field(&f, wire.ParseEnergy, r.GetEnergy()),
	}
	return x, f.Err
}

// fields reads a list of a message.
func fields[A, B any](f *wire.Fields, parse func(A) (B, error), list []A) []B {
	return wire.Field(f, func(list []A) ([]B, error) { return wire.ParseEach(list, parse) }, list)
}
