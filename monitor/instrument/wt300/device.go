// Package wt300 drives a Yokogawa WT300 digital power meter (WT310, WT332, WT333
// and their E models) as a slow reference: some ten readings a second of a
// supply's voltage, current and power, which it multiplies itself.
//
//	Open    ranges, mode, rate and items are set, read back and compared
//	Stream  :COMM:WAIT 1;:STAT:EESR?;:NUM:NORM:VAL?  waits for the next update,
//	        clears its mark and reads it, in one message
//
// A reading is the mean over one update. Its tick is the middle of that: the
// instant of its arrival less half an update. It is shown half an update later,
// which is its channels' skew. Readings are floats; they are kept as whole numbers
// of a step that is finer than the meter, see step.
package wt300

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/scpi"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "yokogawa-wt300"

// Device is a WT300. It implements instrument.Instrument.
type Device struct {
	instrument.Base
	opts   Options
	client *scpi.Client
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	d := &Device{opts: o}
	err := instrument.Init(&d.Base, Kind, address, o, transport.Options{}, Inputs)
	d.client, d.Run = scpi.New(d.config()), d.stream
	d.Dial, d.Release = nil, func() error { return d.client.Close() } // the client holds the link
	// The capture itself insists on the same device.
	d.Steps = []instrument.Step{func(ctx context.Context) error { return d.client.OpenAny(ctx) }, d.identify, d.setUp}
	return d, err
}

// config is the client's: an exchange may have to wait for an update, and after
// one that failed for the one that the meter still waits for.
func (d *Device) config() scpi.Config {
	return scpi.Config{
		Address: d.ID.Address, Timeout: d.opts.Timeout + 2*d.opts.Rate, Reconnect: d.opts.Silence,
		ErrorQuery: ":STAT:ERR?", Accept: Accept,
	}
}

// elements of each model; the WT332 has the first and the third.
var elements = map[string][]int{
	"WT310": {1}, "WT310HC": {1}, "WT332": {1, 3}, "WT333": {1, 2, 3},
	"WT310E": {1}, "WT310EH": {1}, "WT332E": {1, 3}, "WT333E": {1, 2, 3},
}

// Accept refuses a device that is no WT300; its error wraps instrument.ErrIdentity.
func Accept(id scpi.Identity) error {
	if _, ok := elements[strings.ToUpper(id.Model)]; !ok || !strings.Contains(strings.ToUpper(id.Maker), "YOKOGAWA") {
		return fmt.Errorf("%w: it is a %s %s, wanted a Yokogawa WT310, WT332 or WT333", instrument.ErrIdentity,
			id.Maker, id.Model)
	}
	return nil
}

// identify checks that the model has the elements; 40 A models have a less accurate shunt.
func (d *Device) identify(context.Context) error {
	id := d.client.Identity()
	d.Identify(id.Model, id.Serial, id.Firmware)
	d.In = Inputs(d.opts)
	model := strings.ToUpper(id.Model)
	if strings.HasSuffix(model, "HC") || strings.HasSuffix(model, "EH") {
		for i := range d.In.Channels { // its shunt for 40 A is less accurate
			if c := &d.In.Channels[i]; c.Unit != measure.UnitVolt && d.opts.UGain == Defaults().UGain {
				c.UGain = highCurrent / math.Sqrt(3)
			}
		}
	}
	has := elements[model]
	for k, e := range d.opts.Elements {
		if !slices.Contains(has, e.Element) {
			return fmt.Errorf("elements[%d].element %d: a %s has %v", k, e.Element, id.Model, has)
		}
	}
	return nil
}

// setUp puts the meter into a known state: a fixed range, the mean of each update alone, numbers without headers.
// Behind each setting stand the meter's error queue and, where it could take another value, a query.
func (d *Device) setUp(ctx context.Context) error {
	o, l := d.opts, d.client.Link(ctx)
	set := func(option, command string, a ...any) { l.SetChecked("meter", fmt.Sprintf(command, a...), option) }
	keeps := func(want float64, option, query string) {
		if v := l.Number(query); math.Abs(v-want) > 1e-3*want {
			l.Fail("%w: %s gives %v after %v was set: set %s to what it has, or choose another", scpi.ErrInstrument,
				query, v, want, option)
		}
	}
	set("", ":COMM:HEAD OFF")
	set("", ":COMM:VERB OFF")
	set("", ":HOLD OFF")
	set("its averaging", ":MEAS:AVER:STAT OFF")
	set("mode", ":INP:MODE %s", modes[o.Mode])
	set("its synchronisation", ":INP:SYNC OFF")
	set("its crest factor", ":INP:CFAC 3")
	keeps(3, "its crest factor", ":INP:CFAC?")
	set("volt_range", ":INP:VOLT:RANG %gV", o.VoltRange)
	keeps(o.VoltRange, "volt_range", ":INP:VOLT:RANG?")
	set("ampere_range", ":INP:CURR:RANG %gA", o.AmpereRange)
	keeps(o.AmpereRange, "ampere_range", ":INP:CURR:RANG?")
	set("rate", ":RATE %dMS", o.Rate.Milliseconds())
	keeps(o.Rate.Seconds(), "rate", ":RATE?")
	set("", ":NUM:FORM FLO")
	set("", ":NUM:NORM:NUM %d", perElement*len(o.Elements))
	keeps(float64(perElement*len(o.Elements)), "", ":NUM:NORM:NUM?")
	for k, e := range o.Elements {
		for i, q := range o.quantities() {
			set("elements", ":NUM:NORM:ITEM%d %s,%d", perElement*k+i+1, q.function, e.Element)
		}
	}
	set("", ":STAT:FILT1 FALL")
	return l.Err
}

// Element is one input of the meter.
type Element struct {
	// Element is its number; default 1.
	Element int `yaml:"element"`
	// Name of the rail: the channels are NAME.voltage, NAME.current, NAME.power.
	Name string `yaml:"name"`
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Elements in the order of the channels; default the first, called aux.
	Elements []Element `yaml:"elements"`
	// VoltRange and AmpereRange are the measuring ranges of all elements; defaults
	// 15 V and 20 A.
	VoltRange   float64 `yaml:"volt_range"`
	AmpereRange float64 `yaml:"ampere_range"`
	// Rate is the time of one update: 100ms (default), 250ms, 500ms, 1s, 2s or 5s.
	Rate time.Duration `yaml:"rate"`
	// Mode is dc (default) or rms; power is the mean of u·i in both.
	Mode string `yaml:"mode"`
	// UGain (relative) and UOffset (of the range) are standard uncertainties;
	// default: the maker's limits for DC, 0.1 % and 0.2 %, taken as rectangular.
	UGain   float64 `yaml:"u_gain"`
	UOffset float64 `yaml:"u_offset"`
	// Timeout bounds one exchange beyond the wait for an update; default 2 s.
	Timeout time.Duration `yaml:"timeout"`
	// Silence is how long no update may come before the meter counts as lost;
	// default 15 s.
	Silence time.Duration `yaml:"silence"`
}

// The maker's limits of DC power, voltage and current, 12 months after
// calibration (Getting Started Guide, specifications): of the reading and of the
// range. A limit with nothing known inside of it has a standard uncertainty of
// limit/√3 (GUM, 4.3.7).
const (
	readingLimit = 1e-3
	rangeLimit   = 2e-3
	highCurrent  = 3e-3 // of the reading, models of 40 A
	hostClock    = 5e-5 // of the machine's monotonic clock, relative
)

// Defaults are the options of the emulated meter.
func Defaults() Options {
	return Options{
		Elements: []Element{{1, "aux"}}, VoltRange: 15, AmpereRange: 20, Rate: 100 * time.Millisecond, Mode: "dc",
		UGain: readingLimit / math.Sqrt(3), UOffset: rangeLimit / math.Sqrt(3), Timeout: 2 * time.Second,
		Silence: 15 * time.Second,
	}
}

var (
	rates = []time.Duration{
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
		5 * time.Second,
	}
	voltRanges   = []float64{15, 30, 60, 150, 300, 600}
	ampereRanges = []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40}
	modes        = map[string]string{"dc": "DC", "rms": "RMS"}
)

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	switch {
	case len(o.Elements) == 0 || len(o.Elements) > maxElements:
		return fmt.Errorf("elements: %d of them: want 1 to %d", len(o.Elements), maxElements)
	case !slices.Contains(voltRanges, o.VoltRange):
		return fmt.Errorf("volt_range %v: want one of %v", o.VoltRange, voltRanges)
	case !slices.Contains(ampereRanges, o.AmpereRange):
		return fmt.Errorf("ampere_range %v: want one of %v", o.AmpereRange, ampereRanges)
	case !slices.Contains(rates, o.Rate):
		return fmt.Errorf("rate %v: want one of %v", o.Rate, rates)
	case modes[o.Mode] == "":
		return fmt.Errorf("mode %q: want dc or rms", o.Mode)
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1):
		return fmt.Errorf("u_gain %v, u_offset %v: want 0 to 1", o.UGain, o.UOffset)
	case o.Timeout < 100*time.Millisecond || o.Timeout > time.Minute:
		return fmt.Errorf("timeout %v: want 100ms to 1m", o.Timeout)
	case o.Silence < 2*o.Rate || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want at least two updates (%v), at most 1h", o.Silence, 2*o.Rate)
	}
	names, numbers := map[string]bool{}, map[int]bool{}
	for k, e := range o.Elements {
		switch {
		case e.Element < 1 || e.Element > maxElements || numbers[e.Element]:
			return fmt.Errorf("elements[%d].element %d: want 1 to %d, each once", k, e.Element, maxElements)
		case strings.TrimSpace(e.Name) == "" || names[e.Name]:
			return fmt.Errorf("elements[%d].name %q: want a name of its own", k, e.Name)
		}
		names[e.Name], numbers[e.Element] = true, true
	}
	return nil
}

const (
	maxElements = 3
	perElement  = 3 // voltage, current, power
	// limitCount is the count of an over-range reading, plus or minus; no other
	// reading reaches it.
	limitCount = 1 << 30
	// finest is the step's unit: a microvolt, microampere or microwatt.
	finest = 1e-6
)

// step is the value of one count for a measuring range: a microunit times the
// least power of two, negative powers too, for which twice the range stays below
// limitCount. Readings go up to 1.4 times a range of volts or amperes, to 1.96
// times one of watts. Rounding to whole steps is then wrong by half a step, at
// most 2^-29 of the range (two millionths of the maker's limit), where the
// meter's own 32-bit float of a value near full scale is wrong by 2^-25 of it.
func step(fullScale float64) float64 {
	k := math.Ceil(math.Log2(2*fullScale/(limitCount*finest)) + 1e-12)
	return finest * math.Exp2(k)
}

// quantity is a reading of an element: its function's name, its channel's suffix, and its full scale.
type quantity struct {
	function, suffix string
	unit             measure.Unit
	full             float64
}

// quantities are those that an element measures, in the order of its channels.
func (o Options) quantities() [perElement]quantity {
	return [perElement]quantity{
		{"U", ".voltage", measure.UnitVolt, o.VoltRange},
		{"I", ".current", measure.UnitAmpere, o.AmpereRange},
		{"P", ".power", measure.UnitWatt, o.VoltRange * o.AmpereRange},
	}
}

// Inputs are the channels of the elements. Response.Window alone is set: every
// scan is an update of its own, so Update, which stands for values that are shown
// several times, stays zero. So slow an instrument gets the sensor profile's
// markers all the same.
func Inputs(o Options) instrument.Inputs {
	window := measure.SecondsOf(o.Rate)
	in := instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e9, UTickHz: hostClock, TicksPerScan: float64(o.Rate), Stamped: true},
		Response: measure.Response{Window: window},
	}
	for _, e := range o.Elements {
		for _, q := range o.quantities() {
			in.Channels = append(in.Channels, measure.Channel{
				Name: e.Name + q.suffix, Unit: q.unit, Gain: step(q.full), UGain: o.UGain, UOffset: o.UOffset * q.full,
				MinCount: -limitCount, MaxCount: limitCount, Skew: window / 2,
			})
		}
	}
	return in
}

// NaturalRails are the elements' power: the meter's own product, not that of its
// mean voltage and current.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	other := func(r measure.Rail) bool { return r.Wiring != measure.WiringPower }
	return slices.DeleteFunc(instrument.PairRails(in.Channels), other), nil
}

// failures in a row without a reading between them are a lost meter.
const failures = 3

// stopTime is how long the update that is under way may take beside its time.
const stopTime = 2 * time.Second

// next waits for the next update, clears its mark and reads it. As one message it
// is carried out in one go, so that no update falls between the last two.
const next = ":COMM:WAIT 1;:STAT:EESR?;:NUM:NORM:VAL?"

// stream is one Stream call.
type stream struct {
	d      *Device
	out    *series.Builder
	counts []measure.Count
	data   []byte
	zero   time.Time // of the ticks
	grid   grid
	fails  int
}

// stream reads update after update; one message asks for waiting, condition and values at once.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	s := &stream{
		d: d, counts: make([]measure.Count, len(d.In.Channels)), zero: d.Now(),
		grid: grid{period: d.opts.Rate, rate: series.Rate{Nominal: 1 / d.opts.Rate.Seconds()}},
	}
	// One reading a block: at this pace no block waits for a second one.
	s.out = series.New(d.In, 1, sink)
	// A message that is broken off would leave the meter waiting, and its reply to
	// the next user: each ends by itself, or by its time-out.
	own, cancel := instrument.Outlast(ctx, d.opts.Rate+stopTime)
	defer cancel()
	_, err := scpi.Ask(own, d.client, ":STAT:EESR?", scpi.ParseNumber) // marks from before are of the past
	for err == nil && ctx.Err() == nil {
		err = s.step(own)
	}
	return errors.Join(err, s.out.Flush())
}

// step reads one update.
func (s *stream) step(ctx context.Context) (err error) {
	asked := s.d.Now()
	s.data, err = s.d.client.QueryBlock(ctx, next, bytesItem*len(s.counts), s.data[:0])
	var there bool
	if err == nil {
		there, err = Readings(s.data, s.d.In.Channels, s.counts)
	}
	if err != nil { // the client brings the link in step before the next exchange
		s.fails++
		switch {
		case errors.Is(err, instrument.ErrDisconnected):
			return err
		case s.fails > failures:
			return fmt.Errorf("%w: %d times in a row: %w (is its HOLD on?)", instrument.ErrDisconnected, s.fails, err)
		}
		return nil
	}
	at, missed := s.grid.seen(asked, s.d.Now(), s.fails > 0)
	s.fails = 0
	if err := s.out.Gap(missed, false, "%d updates went by unread, by this machine's clock", missed); err != nil {
		return err
	}
	if !there {
		return s.out.Gap(1, true, "the meter showed no data (----)")
	}
	return s.out.Scan(at.Sub(s.zero).Nanoseconds(), s.counts)
}

// grid follows the meter's updates with the host's clock: they come evenly, and
// delays only ever make a reply late.
type grid struct {
	period time.Duration
	rate   series.Rate
	n      int64 // the update that the last reading showed; the first is 0
	begun  bool
}

// slack is the part of an update by which a reply may be early or late and still
// be believed to come with its update.
const slack = 0.25

// seen reports which update a reading shows, and how many went by unread since the
// one before. The meter replies at once where updates were complete when it was
// asked, with the last of them; else with the next. A reply that comes late, or an
// update that does, is no loss by itself. After an exchange that failed it
// is unknown which commands the meter carried out; the time of the reply then decides.
func (g *grid) seen(asked, came time.Time, failed bool) (at time.Time, missed uint64) {
	if !g.begun {
		g.begun = true
		g.rate.Seen(came, 0)
		return came, 0
	}
	complete, _ := g.rate.At(asked)
	n := max(g.n+1, int64(math.Floor(complete)))
	if failed {
		complete, _ = g.rate.At(came)
		n = max(g.n+1, int64(math.Floor(complete+slack)))
	}
	missed = uint64(n - g.n - 1)
	g.n = n
	g.rate.Seen(came, n)
	due, _ := g.rate.At(came) // how far the updates are by now
	if late := due - float64(n); late > slack {
		return came.Add(-time.Duration(late * float64(g.period))), missed
	}
	return came, missed
}

// What FLOAT sends where there is no value.
var (
	nothing  = math.Float32bits(9.91e37) // no data
	infinite = math.Float32bits(9.9e37)  // over range, overflow, error
)

// bytesItem is the size of an IEEE float in a block.
const bytesItem = 4

// Readings turns a block of big-endian floats into counts of the channels' steps.
// Over-range, and a value that no meter of these ranges shows, stands at ±limitCount; ok
// is false where an item has no data.
func Readings(data []byte, channels []measure.Channel, counts []measure.Count) (ok bool, err error) {
	if len(data) != bytesItem*len(channels) {
		return false, fmt.Errorf("%w: %d bytes of values, %d are due", scpi.ErrReply, len(data), bytesItem*len(channels))
	}
	ok = true
	for i, c := range channels {
		bits := binary.BigEndian.Uint32(data[bytesItem*i:])
		v := float64(math.Float32frombits(bits))
		switch {
		case bits == nothing || math.IsNaN(v):
			ok = false
		case bits&^(1<<31) == infinite:
			v = math.Copysign(math.Inf(1), v)
		}
		if ok {
			steps := math.RoundToEven(v / c.Gain)
			counts[i] = measure.Count(min(max(steps, -limitCount), limitCount))
		}
	}
	return ok, nil
}
