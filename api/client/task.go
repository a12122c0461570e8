package client

import (
	"fmt"
	"time"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
)

// State is the state of a task. The numbers are those of the protocol.
type State uint8

// The states.
const (
	Running    State = 1
	Complete   State = 2
	Incomplete State = 3
	Untrimmed  State = 4
	Failed     State = 5 // the work failed; what was measured of it is there
)

func (s State) String() string {
	switch s {
	case Running:
		return "running"
	case Complete:
		return "complete"
	case Incomplete:
		return "incomplete"
	case Untrimmed:
		return "untrimmed"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

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
	// Window is what the window came to; nil while there is none.
	Window *Window
	// Verdict is how far the result may be trusted: in a Detail, and in lists that
	// were asked for by verdicts.
	Verdict Verdict
	// NVML is the energy by the GPU's own sensor over the same window; nil where
	// none was read.
	NVML *measure.Joule
}

// Window is what the time between the markers came to.
type Window struct {
	Duration   measure.Seconds
	Samples    uint64
	Gaps, Lost uint64
	Energy     measure.Estimate // k = 2
	Mean, Peak measure.Watt
}

// Detail is one task with all but its samples.
type Detail struct {
	Task
	Reasons    []Reason // why the verdict is not Good, the gravest first
	Notes      []Note   // oldest first
	Provenance *Provenance
	Instrument measure.Identity
	// Setup turns counts into watts; nil until the capture has begun.
	Setup *measure.Setup
	Rails []measure.RailResult // over the window, without their budgets
	// Budget is what the total's uncertainty is made of; empty where nobody kept it.
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

// Result is one of a task's results: the original, or what a newer calibration
// made of the same counts.
type Result struct {
	Number        uint32 // 1 is the original
	CalibrationID string
	Computed      time.Time // zero where it is not known
	Energy        measure.Estimate
	InUse         bool // lists, samples and exports follow it
}

func parseTask(p *wattmarkv1.Task) (Task, error) {
	launched, err := wire.ParseTime("launched", p.GetLaunched())
	if err != nil {
		return Task{}, fmt.Errorf("task %d: %w", p.GetTaskId(), err)
	}
	state := p.GetState()
	if state < wattmarkv1.TaskState_TASK_STATE_RUNNING || state > wattmarkv1.TaskState_TASK_STATE_FAILED {
		return Task{}, fmt.Errorf("task %d: %w: state %v is not known to this version", p.GetTaskId(), wire.ErrMessage, state)
	}
	t := Task{
		ID: p.GetTaskId(), Name: p.GetName(), User: p.GetUser(), State: State(state), Reason: p.GetReason(),
		Launched: launched, GPU: p.GetGpu(), GPUUUID: p.GetGpuUuid(), Job: p.GetJob(), Stored: p.GetStored(), Group: p.GetGroupId(),
		Verdict: Verdict(p.GetVerdict()), Tags: p.GetTags(), Pinned: p.GetPinned(),
	}
	if n, ok := p.Nvml.(*wattmarkv1.Task_NvmlJ); ok {
		j := measure.Joule(n.NvmlJ)
		t.NVML = &j
	}
	if p.Energy != nil {
		energy, err := wire.ParseEnergy(p.Energy)
		if err != nil {
			return Task{}, fmt.Errorf("task %d: %w", p.TaskId, err)
		}
		t.Window = &Window{
			Duration: measure.Seconds(p.DurationS), Samples: p.Samples, Gaps: p.Gaps, Lost: p.Lost,
			Energy: energy, Mean: measure.Watt(p.MeanW), Peak: measure.Watt(p.PeakW),
		}
	}
	return t, nil
}

func parseDetail(p *wattmarkv1.GetTaskResponse) (d Detail, err error) {
	bad := func(err error) (Detail, error) {
		return Detail{}, fmt.Errorf("task %d: %w", p.GetTask().GetTaskId(), err)
	}
	if d.Task, err = parseTask(p.Task); err != nil {
		return Detail{}, err
	}
	if d.Instrument, err = wire.ParseInstrument(p.Instrument); err != nil {
		return bad(err)
	}
	if p.Setup != nil {
		setup, err := wire.ParseSetup(p.Setup)
		if err != nil {
			return bad(err)
		}
		d.Setup = &setup
	}
	for _, r := range p.Rails {
		rail, err := wire.ParseRailResult(r)
		if err != nil {
			return bad(err)
		}
		if d.Setup != nil {
			for _, s := range d.Setup.Rails {
				if s.Name == rail.Name {
					rail.Role = s.Role
				}
			}
		}
		d.Rails = append(d.Rails, rail)
	}
	for _, e := range p.Events {
		event, err := wire.ParseEvent(e)
		if err != nil {
			return bad(err)
		}
		d.Events = append(d.Events, event)
	}
	if d.Markers, err = wire.ParseMarkers(p.Markers); err != nil {
		return bad(err)
	}
	if d.Clock, err = wire.ParseClock(p.Clock); err != nil {
		return bad(err)
	}
	if d.From, d.To, _, err = wire.ParseWindow(p.Window); err != nil {
		return bad(err)
	}
	if d.Budget, err = wire.ParseBudget(p.Budget); err != nil {
		return bad(err)
	}
	if d.Started, err = wire.ParseTime("started", p.Started); err != nil {
		return bad(err)
	}
	if d.Results, err = parseResults(p.Results); err != nil {
		return bad(err)
	}
	if d.Notes, err = parseNotes(p.Notes); err != nil {
		return bad(err)
	}
	d.Reasons, d.Provenance = parseReasons(p.Reasons), parseProvenance(p.Provenance)
	d.FirstScan, d.Result = p.FirstScan, p.Result
	return d, nil
}

func parseResults(p []*wattmarkv1.TaskResult) (out []Result, err error) {
	for _, r := range p {
		x := Result{Number: r.GetNumber(), CalibrationID: r.GetCalibrationId(), InUse: r.GetInUse()}
		if x.Computed, err = wire.ParseTime("computed", r.GetComputed()); err != nil {
			return nil, err
		}
		if x.Energy, err = wire.ParseEnergy(r.GetEnergy()); err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}
