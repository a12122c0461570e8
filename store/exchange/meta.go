package exchange

import (
	"encoding/json"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/store"
)

// MetaKey is the name under which formats with metadata carry Meta as JSON.
const MetaKey = "wattmark"

// metaFormat is the version of Meta: readers of another one must look again.
const metaFormat = 1

// Meta says what a table's numbers are and how they came about: enough to turn
// raw counts into watts without the database. Times of day are UTC; device time
// is in seconds since the capture's first scan.
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
	Notes    []string    `json:"notes,omitempty"` // sentences for people
	setup    *measure.Setup
	hostTime hostTime
}

// TaskMeta is what was measured, with what.
type TaskMeta struct {
	ID         int64     `json:"task_id"`
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
	ID           string        `json:"calibration_id"`
	Records      []string      `json:"calibration_records,omitempty"`
	TickHz       float64       `json:"tick_hz"`
	UTickRel     float64       `json:"u_tick_rel"`
	TicksPerScan float64       `json:"ticks_per_scan"`
	Stamped      bool          `json:"stamped"`
	Channels     []ChannelMeta `json:"channels"`
	Rails        []RailMeta    `json:"rails"`
	Missing      []string      `json:"rails_not_measured,omitempty"`
}

// ChannelMeta is a channel's calibration; its uncertainties are standard ones.
type ChannelMeta struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Gain     float64 `json:"gain"`
	Offset   float64 `json:"offset"`
	UGainRel float64 `json:"u_gain_rel"`
	UOffset  float64 `json:"u_offset"`
	Noise    float64 `json:"noise"`
	Skew     float64 `json:"skew_s"`
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
	From float64 `json:"from_s"`
	To   float64 `json:"to_s"`
}

// ResultMeta is the task's result over its window; ± U is k = 2.
type ResultMeta struct {
	SpanMeta
	EnergyJ  *float64  `json:"energy_j"`
	EnergyUJ *float64  `json:"energy_u_j"`
	MeanW    *float64  `json:"mean_w"`
	Rails    []RailSum `json:"rails"`
}

// RailSum is one rail's energy over the window.
type RailSum struct {
	Name     string   `json:"name"`
	EnergyJ  *float64 `json:"energy_j"`
	EnergyUJ *float64 `json:"energy_u_j"`
}

// ClockMeta relates the clocks: t_meter = a + b·(t_host − origin), with t_host in
// seconds since 1970.
type ClockMeta struct {
	OriginS float64 `json:"origin_s"`
	A       float64 `json:"a_s"`
	B       float64 `json:"b"`
}

// EventMeta is something that happened to a stretch of scans.
type EventMeta struct {
	Kind      string `json:"kind"`
	FirstScan uint64 `json:"first_scan"`
	Scans     uint64 `json:"scans,omitempty"`
	Exact     bool   `json:"exact,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// metaEvents is the most events that metadata names; a task that lost scans all
// the time would drown its own header.
const metaEvents = 1000

var stateNames = map[store.State]string{
	store.Running: "running", store.Complete: "complete", store.Incomplete: "incomplete", store.Untrimmed: "untrimmed",
	store.Failed: "failed",
}

// NewMeta describes a task. Program names what writes it.
func NewMeta(t *store.Task, program string) Meta {
	m := Meta{Format: metaFormat, Program: program, setup: &t.Setup, hostTime: newHostTime(t)}
	m.Task = TaskMeta{
		ID: int64(t.ID), Name: t.Name, User: t.User, Job: t.Job, State: stateNames[t.State], Reason: t.Reason,
		Launched: t.Launched.UTC(), Started: t.Started.UTC(), GPU: t.GPU, GPUUUID: t.GPUUUID, Driver: t.Driver, Bench: t.Bench,
	}
	i := &m.Task.Instrument
	i.Kind, i.Model, i.Serial, i.Firmware = t.Instrument.Kind, t.Instrument.Model, t.Instrument.Serial, t.Instrument.Firmware
	m.Setup = setupMeta(t)
	m.addResult(t.Result)
	if f := t.Clock; f != nil {
		m.Clock = &ClockMeta{float64(f.Origin), float64(f.A), f.B}
	}
	for i, e := range t.Events {
		if i == metaEvents {
			break
		}
		m.Events = append(m.Events, EventMeta{e.Kind.String(), e.FirstScan, e.Scans, e.Exact, e.Detail})
	}
	return m
}

func setupMeta(t *store.Task) SetupMeta {
	tb := t.Setup.Timebase
	m := SetupMeta{
		ID: t.CalibrationID, TickHz: float64(tb.TickHz), UTickRel: tb.UTickHz, TicksPerScan: tb.TicksPerScan, Stamped: tb.Stamped,
		Missing: t.Setup.Missing,
	}
	for _, r := range t.Setup.Records {
		m.Records = append(m.Records, r.ID)
	}
	for _, c := range t.Setup.Channels {
		m.Channels = append(m.Channels, ChannelMeta{c.Name, string(c.Unit), c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise, float64(c.Skew)})
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

func (m *Meta) addResult(r *measure.Result) {
	if r == nil {
		return
	}
	m.Result = &ResultMeta{
		SpanMeta: SpanMeta{float64(r.From), float64(r.To)},
		EnergyJ:  number(float64(r.Total.Energy)), EnergyUJ: number(float64(r.Total.U)), MeanW: number(float64(r.Mean)),
	}
	for _, x := range r.Rails {
		m.Result.Rails = append(m.Result.Rails, RailSum{x.Name, number(float64(x.Energy.Energy)), number(float64(x.Energy.U))})
	}
}

// JSON is the metadata as one line.
func (m *Meta) JSON() ([]byte, error) { return json.Marshal(m) }

// number is a value that JSON can carry: none for what is not finite.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
