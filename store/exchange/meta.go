// Package exchange turns stored tasks into tables and timelines that other programs read, and their files
// into tasks. It knows no file format: the packages below it do, one each.
//
//	chunks ──▶ Table (columns, units, Meta; batches) ──▶ csvfile, parquetfile, arrowfile, sqlitefile
//	launches, kernels, markers, events, rails ──▶ Timeline ──▶ perfetto
//
// Everything streams: a table is a sequence of batches of BatchRows rows whose
// memory is used again, whatever the length of the task.
package exchange

import (
	"encoding/json"
	"math"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// MetaKey is the name under which formats with metadata carry Meta as JSON.
const MetaKey = "wattmark"

// metaFormat is the version of Meta: readers of another one must look again.
const metaFormat = 1

// Meta describes a table's numbers and their origin: enough to turn raw counts into watts without the
// database. Times of day are UTC; device time is in seconds since the capture's first scan.
type Meta struct {
	Format   int         `json:"format"`
	Program  string      `json:"program"`
	Content  string      `json:"content"` // derived or raw
	Task     TaskMeta    `json:"task"`
	Setup    SetupMeta   `json:"calibration"`
	Span     *SpanMeta   `json:"exported_device_time,omitempty"` // none: all scans
	Result   *ResultMeta `json:"result,omitempty"`
	Clock    *ClockMeta  `json:"clock,omitempty"`
	Events   []EventMeta `json:"events,omitempty"`
	Columns  []Column    `json:"columns"`
	Notes    []string    `json:"notes,omitempty"` // sentences for readers of the file
	setup    *measure.Setup
	hostTime hostTime
}

// TaskMeta is the task, the GPU and the instrument.
type TaskMeta struct {
	ID         int64     `json:"task_id"` // in the database of the export
	Name       string    `json:"name"`
	User       string    `json:"user"`
	Job        string    `json:"job,omitempty"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	Launched   time.Time `json:"launched"`
	Started    time.Time `json:"device_time_zero"` // by the monitor's clock
	GPU        string    `json:"gpu,omitempty"`
	GPUUUID    string    `json:"gpu_uuid,omitempty"`
	Driver     string    `json:"driver,omitempty"`
	Bench      string    `json:"bench,omitempty"`
	Instrument struct {
		Kind     string `json:"kind,omitempty"`
		Model    string `json:"model,omitempty"`
		Serial   string `json:"serial,omitempty"`
		Firmware string `json:"firmware,omitempty"`
	} `json:"instrument"`
}

// SetupMeta turns counts into watts: value = offset + gain·count, and a rail's
// power by its wiring (docs/export.md).
type SetupMeta struct {
	ID string `json:"calibration_id"`
	// Records are the calibrations by which the channels were corrected.
	Records []string `json:"calibration_records,omitempty"`
	// TickHz is the rate of device time; UTickRel its relative standard uncertainty.
	TickHz       float64 `json:"tick_hz"`
	UTickRel     float64 `json:"u_tick_rel"`
	TicksPerScan float64 `json:"ticks_per_scan"`
	// Stamped: each scan has a tick of its own, else scan n lies at n·TicksPerScan.
	Stamped  bool          `json:"stamped"`
	Channels []ChannelMeta `json:"channels"`
	Rails    []RailMeta    `json:"rails"`
	Missing  []string      `json:"rails_not_measured,omitempty"`
}

// ChannelMeta is a channel's calibration; its uncertainties are standard ones.
type ChannelMeta struct {
	Name string `json:"name"`
	// Unit is V, A or W; Gain is in it a count, the others but UGainRel and Skew in it.
	Unit     string  `json:"unit"`
	Gain     float64 `json:"gain"`
	Offset   float64 `json:"offset"`
	UGainRel float64 `json:"u_gain_rel"`
	UOffset  float64 `json:"u_offset"`
	Noise    float64 `json:"noise"`
	// Skew is the delay of the channel's reading behind its scan's time.
	Skew float64 `json:"skew_s"`
}

// RailMeta is a rail: x and y are names of channels.
type RailMeta struct {
	Name      string  `json:"name"`
	Role      string  `json:"role"`
	Wiring    string  `json:"wiring"`
	X         string  `json:"x"`
	Y         string  `json:"y,omitempty"`
	ShuntOhm  float64 `json:"shunt_ohm,omitempty"`
	UShuntRel float64 `json:"u_shunt_rel,omitempty"`
	AssumedV  float64 `json:"assumed_v,omitempty"`
	UAssumedV float64 `json:"u_assumed_v,omitempty"`
}

// SpanMeta is a span of device time.
type SpanMeta struct {
	From measure.Seconds `json:"from_s"`
	To   measure.Seconds `json:"to_s"`
}

// ResultMeta is the task's result over its window; ± U is k = 2.
type ResultMeta struct {
	SpanMeta
	measure.Estimate
	Mean  measure.Watt `json:"mean_w"`
	Rails []RailSum    `json:"rails"`
}

// RailSum is one rail's energy over the window.
type RailSum struct {
	Name string `json:"name"`
	measure.Estimate
}

// ClockMeta relates the clocks: t_meter = a + b·(t_host − origin), with t_host in seconds since 1970.
type ClockMeta struct {
	Origin measure.Seconds `json:"origin_s"`
	A      measure.Seconds `json:"a_s"`
	B      float64         `json:"b"`
}

// EventMeta is an event of a stretch of scans.
type EventMeta struct {
	Kind      string `json:"kind"`
	FirstScan uint64 `json:"first_scan"`
	Scans     uint64 `json:"scans,omitempty"`
	Exact     bool   `json:"exact,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// metaEvents is the most events in metadata; those of a task that lost scans all
// the time would make a header longer than its rows.
const metaEvents = 1000

// NewMeta describes a task for a file that program writes.
func NewMeta(t *store.Task, program string) Meta {
	m := Meta{Format: metaFormat, Program: program, setup: &t.Setup, hostTime: newHostTime(t)}
	m.Task = TaskMeta{
		ID: int64(t.ID), Name: t.Name, User: t.User, Job: t.Job, State: t.State.String(), Reason: t.Reason,
		Launched: t.Launched.UTC(), Started: t.Started.UTC(),
		GPU: t.GPU, GPUUUID: t.GPUUUID, Driver: t.Driver, Bench: t.Bench,
	}
	i, from := &m.Task.Instrument, &t.Instrument
	i.Kind, i.Model, i.Serial, i.Firmware = from.Kind, from.Model, from.Serial, from.Firmware
	m.Setup = setupMeta(t)
	if r := t.Result; r != nil {
		rails := lists.Map(r.Rails, func(x measure.RailResult) RailSum { return RailSum{x.Name, x.Energy} })
		m.Result = &ResultMeta{SpanMeta{r.From, r.To}, r.Total, r.Mean, rails}
	}
	if f := t.Clock; f != nil {
		m.Clock = &ClockMeta{f.Origin, f.A, f.B}
	}
	m.Events = lists.Map(t.Events[:min(len(t.Events), metaEvents)], func(e measure.Event) EventMeta {
		return EventMeta{e.Kind.String(), e.FirstScan, e.Scans, e.Exact, e.Detail}
	})
	return m
}

// setupMeta describes a task's calibration and rails.
func setupMeta(t *store.Task) SetupMeta {
	tb := t.Setup.Timebase
	m := SetupMeta{
		ID: t.CalibrationID, TickHz: float64(tb.TickHz), UTickRel: tb.UTickHz,
		TicksPerScan: tb.TicksPerScan, Stamped: tb.Stamped, Missing: t.Setup.Missing,
		Records: lists.Map(t.Setup.Records, func(r measure.CalibrationRecord) string { return r.ID }),
	}
	for _, c := range t.Setup.Channels {
		m.Channels = append(m.Channels, ChannelMeta{
			c.Name, string(c.Unit), c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise, float64(c.Skew),
		})
	}
	name := func(i int) string {
		if i < 0 || i >= len(t.Setup.Channels) {
			return ""
		}
		return t.Setup.Channels[i].Name
	}
	for _, r := range t.Setup.Rails {
		m.Rails = append(m.Rails, RailMeta{
			r.Name, r.Role.String(), r.Wiring.String(), name(r.X), name(r.Y),
			float64(r.Shunt), r.UShunt, float64(r.Assumed), float64(r.UAssumed),
		})
	}
	return m
}

// JSON returns the metadata as one line.
func (m *Meta) JSON() ([]byte, error) { return json.Marshal(m) }

// hostTime maps device time to the host's clock.
type hostTime struct {
	whole   int64 // ns since 1970 of origin's whole seconds
	rest, a float64
	b       float64
}

// newHostTime takes the clock fit, or, where there is none, the monitor's own clock at device time zero.
func newHostTime(t *store.Task) hostTime {
	if f := t.Clock; f != nil && f.B > 0 {
		sec := math.Floor(float64(f.Origin))
		return hostTime{int64(sec) * 1e9, float64(f.Origin) - sec, float64(f.A), f.B}
	}
	if t.Started.IsZero() {
		return hostTime{b: 1}
	}
	return hostTime{whole: t.Started.UnixNano(), b: 1}
}

// HostNanos returns the host's time in ns since 1970 (CLOCK_REALTIME) of a device
// time, by the task's clock fit, else by the monitor's clock at device time zero. The whole
// seconds never pass through a float64, which would cost 0.2 µs.
func (m *Meta) HostNanos(t measure.Seconds) int64 {
	h := &m.hostTime
	return h.whole + int64(math.Round(((float64(t)-h.a)/h.b+h.rest)*1e9))
}
