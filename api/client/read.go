package client

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
)

// Range is a range of sequence numbers: scans counted from the window's first
// (Detail.FirstScan), jumping over scans that were lost. The zero Range is all.
type Range struct {
	From  uint64 // first one wanted
	Limit uint64 // length of the range; 0 to the window's end
	// Result is the number of the result whose calibration is wanted; 0 for the one in use.
	Result uint32
}

// Batch holds up to 4096 consecutive samples, one slice a quantity, each with one value a sample.
type Batch struct {
	FirstSeq uint64            // the others follow one by one
	Time     []measure.Seconds // since the window's begin
	Power    []measure.Watt    // all rails
	Rails    []Rail            // in the order of the setup
}

// Rail holds one rail's samples of a batch.
type Rail struct {
	Name    string
	Current []measure.Ampere // empty for a sensor that reads watts
	Voltage []measure.Volt   // empty for a sensor that reads watts
	Power   []measure.Watt
}

// Item is an element of a stream: exactly one of its fields is set.
type Item struct {
	Batch *Batch
	// Event is a gap or another event; it comes before the first sample that it
	// concerns. Its scans count from the capture's start, not from the window's.
	Event *measure.Event
}

// Samples yields a task's calibrated samples with the events between them. The stream is closed when the loop is
// left. A batch is the caller's to keep. An error is the last thing it yields.
func (c *Client) Samples(ctx context.Context, id int64, r Range) iter.Seq2[Item, error] {
	return items(ctx, c.stub.ReadSamples, r.request(id, false), parseItem)
}

// RawItem is an element of a raw stream: exactly one of its fields is set.
type RawItem struct {
	// Chunk holds raw counts; chunk.Decode and measure.PowerMeter make watts of
	// them. It is borrowed until the next item is asked for.
	Chunk *chunk.Chunk
	Event *measure.Event
}

// Chunks yields the chunks that hold the samples of a range, whole and with their checksums verified against setup
// (Detail.Setup), and the events between them. It is the fast way: nothing is converted.
func (c *Client) Chunks(ctx context.Context, id int64, setup *measure.Setup, r Range) iter.Seq2[RawItem, error] {
	return func(yield func(RawItem, error) bool) {
		if setup == nil {
			yield(RawItem{}, fmt.Errorf("read chunks of task %d: no setup: the capture has not begun", id))
			return
		}
		var ch chunk.Chunk
		items(ctx, c.stub.ReadSamples, r.request(id, true), func(m *pb.ReadSamplesResponse) (RawItem, error) {
			return parseRaw(m, setup, &ch)
		})(yield)
	}
}

// request asks for the range's samples or, raw, for its chunks.
func (r Range) request(id int64, raw bool) *pb.ReadSamplesRequest {
	return &pb.ReadSamplesRequest{TaskId: id, FromSeq: r.From, Limit: r.Limit, Result: r.Result, Raw: raw}
}

// parseRaw reads an event, or a chunk into ch, whose columns are views of the message. The checksum is verified.
func parseRaw(m *pb.ReadSamplesResponse, setup *measure.Setup, ch *chunk.Chunk) (RawItem, error) {
	if m.GetEvent() != nil {
		e, err := wire.ParseEvent(m.GetEvent())
		return RawItem{Event: &e}, err
	}
	if err := wire.ParseChunk(m.GetChunk(), chunk.Columns(setup.Timebase, len(setup.Channels)), ch); err != nil {
		return RawItem{}, err
	}
	return RawItem{Chunk: ch}, ch.Validate(setup.Timebase, len(setup.Channels))
}

// parseItem reads an event, or a batch with its columns as quantities. Columns of
// different lengths wrap wire.ErrMessage.
func parseItem(m *pb.ReadSamplesResponse) (Item, error) {
	if m.GetEvent() != nil {
		e, err := wire.ParseEvent(m.GetEvent())
		return Item{Event: &e}, err
	}
	p := m.GetSamples()
	if p == nil {
		return Item{}, fmt.Errorf("%w: neither samples nor an event", wire.ErrMessage)
	}
	n := len(p.TS)
	b := &Batch{FirstSeq: p.FirstSeq, Time: typed[measure.Seconds](p.TS), Power: typed[measure.Watt](p.PowerW)}
	if len(b.Power) != n {
		return Item{}, fmt.Errorf("%w: %d powers for %d samples", wire.ErrMessage, len(b.Power), n)
	}
	for _, r := range p.Rails {
		if len(r.CurrentA) != 0 && len(r.CurrentA) != n || len(r.VoltageV) != 0 && len(r.VoltageV) != n ||
			len(r.PowerW) != n { // a sensor that reads watts has no currents and voltages
			return Item{}, fmt.Errorf("%w: rail %q: %d currents, %d voltages and %d powers for %d samples",
				wire.ErrMessage, r.Rail, len(r.CurrentA), len(r.VoltageV), len(r.PowerW), n)
		}
		b.Rails = append(b.Rails, Rail{
			Name: r.Rail, Current: typed[measure.Ampere](r.CurrentA), Voltage: typed[measure.Volt](r.VoltageV),
			Power: typed[measure.Watt](r.PowerW),
		})
	}
	return Item{Batch: b}, nil
}

// typed gives numbers their unit.
func typed[T ~float64](column []float64) []T {
	return lists.Map(column, func(v float64) T { return T(v) })
}

// Span is a stretch of device time; the zero Span is the window, or all that is stored where there is none.
type Span struct{ From, To measure.Seconds }

// Column is the range and the mean of a rail's power within a column of an envelope.
type Column struct {
	Number         int // from 0; those without samples are left out
	Min, Max, Mean measure.Watt
	Samples        uint64
}

// Envelope is a stretch of a task as columns to draw.
type Envelope struct {
	Span
	Columns int // of which each is To−From over Columns long
	// BinSamples is how many samples a bin of the finest that was looked at has; 1 for single ones.
	BinSamples uint64
	Series     []Series
}

// Series is one rail, or "total".
type Series struct {
	Rail    string
	Columns []Column
}

// Envelope reads the envelope of a task's power in so many columns; 0 leaves their number
// to the server. rails are those wanted, none for all.
func (c *Client) Envelope(ctx context.Context, id int64, s Span, columns int, rails ...string) (Envelope, error) {
	res, err := c.stub.ReadEnvelope(ctx, &pb.ReadEnvelopeRequest{
		TaskId: id, FromS: float64(s.From), ToS: float64(s.To), Columns: int32(min(max(columns, -1), 1<<20)),
		Rails: rails,
	})
	if err != nil {
		return Envelope{}, err
	}
	e := Envelope{Span: spanOf(res), Columns: int(res.Columns), BinSamples: res.BinSamples}
	for _, p := range res.Series {
		n := len(p.GetColumn())
		if slices.ContainsFunc([]int{len(p.GetMinW()), len(p.GetMaxW()), len(p.GetMeanW()), len(p.GetSamples())},
			func(l int) bool { return l != n }) {
			return Envelope{}, fmt.Errorf("%w: arrays of different lengths for rail %q", wire.ErrMessage, p.GetRail())
		}
		series := Series{Rail: p.GetRail(), Columns: make([]Column, n)}
		for i := range series.Columns {
			series.Columns[i] = Column{
				Number: int(p.Column[i]), Min: measure.Watt(p.MinW[i]), Max: measure.Watt(p.MaxW[i]),
				Mean: measure.Watt(p.MeanW[i]), Samples: p.Samples[i],
			}
		}
		e.Series = append(e.Series, series)
	}
	return e, nil
}

// Energy integrates a task's power over a span. The uncertainty takes the span's ends as exact. Spans of more than
// some ten million samples are refused: part them, the parts add up.
func (c *Client) Energy(ctx context.Context, id int64, s Span) (measure.Result, error) {
	res, err := c.stub.ReadEnergy(ctx, &pb.ReadEnergyRequest{TaskId: id, FromS: float64(s.From), ToS: float64(s.To)})
	return parsed(res, err, parseEnergy)
}

// Slice is one kernel on the timeline, or several that follow each other.
type Slice struct {
	Span
	Name           string // of several, of the one that was busy the longest
	Kernels        uint64
	Busy           measure.Seconds
	Device, Stream uint32 // of one recorded kernel
}

// Timeline is the kernels that ran in a span.
type Timeline struct {
	Span
	Slices   []Slice
	Kernels  uint64 // that begin in it
	Merged   bool   // slices hold several kernels
	Recorded bool   // CUPTI's record; otherwise the host's notes of the work
	Unfitted bool   // without a clock fit: times are off by as much as the clocks differ
}

// Timeline reads the kernels that ran in a span, in at most so many slices; 0 leaves their number to the server.
func (c *Client) Timeline(ctx context.Context, id int64, s Span, slices int) (Timeline, error) {
	res, err := c.stub.ReadTimeline(ctx, &pb.ReadTimelineRequest{
		TaskId: id, FromS: float64(s.From), ToS: float64(s.To), MaxSlices: int32(min(max(slices, -1), 1<<20)),
	})
	return parsed(res, err, parseTimeline)
}

// Reading is one value that software read, and when in device time. It holds until the next one.
type Reading struct {
	At measure.Seconds
	// Value is in the method's own unit: watts of power fields, joules of energy
	// counters, °C, MHz. NaN is a reading that failed.
	Value float64
}

// Trace is the readings of one method, by time.
type Trace struct {
	Method   string // "nvml.instant", "nvml.average", "nvml.temperature", …
	Readings []Reading
	Thinned  bool // of each stretch of time only the least and the greatest are left
	// Until is when the first reading behind the span was taken, until which the last one
	// here holds; the time of the last one where none was.
	Until measure.Seconds
}

// Readings is the readings by software of a GPU's own sensors in a span.
type Readings struct {
	Span
	Methods  []string // all that were read of the task, also those not asked for
	Traces   []Trace  // one each of those asked for that read anything
	Unfitted bool     // without a clock fit: times are off by as much as the clocks differ
}

// Readings reads a task's readings by software over a span. most is how many readings a
// method may have, 0 for the server's default; methods are those wanted, none
// for all. A reading holds until the next one, so the last one before the span comes first.
func (c *Client) Readings(ctx context.Context, id int64, s Span, most int, methods ...string) (Readings, error) {
	res, err := c.stub.ReadReadings(ctx, &pb.ReadReadingsRequest{
		TaskId: id, FromS: float64(s.From), ToS: float64(s.To), Methods: methods,
		MaxReadings: int32(min(max(most, -1), 1<<20)),
	})
	if err != nil {
		return Readings{}, err
	}
	out := Readings{Span: spanOf(res), Methods: res.Methods, Unfitted: res.Unfitted}
	for _, p := range res.Traces {
		if len(p.GetTS()) != len(p.GetValue()) {
			return Readings{}, fmt.Errorf("%w: %d times for %d readings of %q", wire.ErrMessage, len(p.GetTS()),
				len(p.GetValue()), p.GetMethod())
		}
		t := Trace{
			Method: p.GetMethod(), Thinned: p.GetThinned(), Until: measure.Seconds(p.GetUntilS()),
			Readings: make([]Reading, len(p.GetTS())),
		}
		for i := range t.Readings {
			t.Readings[i] = Reading{measure.Seconds(p.TS[i]), p.Value[i]}
		}
		out.Traces = append(out.Traces, t)
	}
	return out, nil
}

// spanOf reads the span of a message.
func spanOf(p interface {
	GetFromS() float64
	GetToS() float64
},
) Span {
	return Span{measure.Seconds(p.GetFromS()), measure.Seconds(p.GetToS())}
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
	// Window is the result over the window; nil while there is none.
	Window *Window
	// Verdict is how far the result may be trusted: in a Detail, and in lists that were asked for by verdicts.
	Verdict Verdict
	// NVML is the energy by the GPU's own sensor over the same window; nil where none was read.
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
	// Result is the number of the result shown; Results are all of them, the original first.
	Result  uint32
	Results []Result
}

// Result is one of a task's results: the original, or that of the same counts under a newer calibration.
type Result struct {
	Number        uint32 // 1 is the original
	CalibrationID string
	Computed      time.Time // zero where it is not known
	Energy        measure.Estimate
	InUse         bool // lists, samples and exports follow it
}

// parseTask reads a task of a list. A state of a later version is refused, as its meaning is not known.
func parseTask(p *pb.Task) (Task, error) {
	var f wire.Fields
	t := taskOf(&f, p)
	if f.Err == nil && (t.State < pb.TaskState_TASK_STATE_RUNNING || t.State > pb.TaskState_TASK_STATE_FAILED) {
		f.Err = fmt.Errorf("%w: state %v is not known to this version", wire.ErrMessage, t.State)
	}
	if n, ok := p.GetNvml().(*pb.Task_NvmlJ); ok {
		t.NVML = new(measure.Joule(n.NvmlJ))
	}
	if p.GetEnergy() != nil {
		w := windowOf(&f, p)
		w.From, w.To = measure.Seconds(p.GetWindow().GetFromS()), measure.Seconds(p.GetWindow().GetToS())
		t.Window = &w
	}
	if f.Err != nil {
		return Task{}, fmt.Errorf("task %d: %w", t.ID, f.Err)
	}
	return t, nil
}

// parseDetail reads a task with all but its samples; an error names the task.
func parseDetail(p *pb.GetTaskResponse) (Detail, error) {
	task, err := parseTask(p.Task)
	f := wire.Fields{Err: err}
	d := detailOf(&f, p)
	d.Task = task
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
	if err == nil && f.Err != nil {
		err = fmt.Errorf("task %d: %w", task.ID, f.Err)
	}
	if err != nil {
		return Detail{}, err
	}
	return d, nil
}
