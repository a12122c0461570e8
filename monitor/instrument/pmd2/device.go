// Package pmd2 drives an ElmorLabs PMD2, ten sensors of a voltage and a current
// each over USB CDC, and a Thermal Grizzly WireView Pro II, which measures the six
// pins of a 12V-2x6 plug. They answer the same commands of one byte:
//
//	00  "ElmorLabs PMD2" or "Thermal Grizzly WireView Pro II" and a zero; a PMD2 also
//	    greets with this when it is opened
//	01  vendor, product, firmware: EE 15 or EF 05
//	02  a number of its own, 12 bytes
//	04  the readings, little-endian. PMD2, 122 bytes, packed:
//	    supply mV u16, temperature i16; ten times mV i16, mA i32, mW i32;
//	    W of EPS, PCIe, mainboard and all u16; ten states of overcurrent u8.
//	    WireView, 100 bytes, aligned to four: four temperatures i16, supply mV u16,
//	    fan u8, –; six times mV i16, –, mA u32, mW u32; mW and mA of all u32,
//	    mean mV u16, the plug's sense lines u8, –; faults now and before, u16
//
// This follows the makers' published examples. A PMD2 has a command 05 as well,
// for a stream; its form is published nowhere, so that the driver asks instead.
package pmd2

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/transport"
)

const (
	answerTime = time.Second            // for one exchange while opening
	replyTime  = 100 * time.Millisecond // for a reading to come at all
	slowTime   = 20 * time.Millisecond  // after which its time is poorly known
	quietTime  = 5 * time.Millisecond   // after an answer that was no good
	lateTime   = 50 * time.Millisecond  // after none: it may still come
	staleBytes = 1 << 16
)

// The commands. Those that change the device are not here.
var (
	askVendor   = []byte{0x01}
	askNumber   = []byte{0x02}
	askReadings = []byte{0x04}
)

// Model is one of the devices.
type Model struct {
	// Kind is the driver's name in bench files, Name the device's.
	Kind, Name      string
	vendor, product byte // its answer to askVendor
	// Sensors in the order of the reply, and those of a graphics card's own connectors.
	Sensors []string
	natural []int
	// ReplyBytes is the size of the readings on the wire; those of the first sensor begin at head, each
	// takes size, its milliamperes stand at ampere.
	ReplyBytes, head, size, ampere int
}

// The models.
var (
	PMD2 = &Model{
		Kind: "pmd2", Name: "ElmorLabs PMD2", vendor: 0xEE, product: 0x15,
		Sensors: []string{"atx_12v", "atx_5v", "atx_5vsb", "atx_3v3", "hpwr", "eps1", "eps2", "pcie1", "pcie2", "pcie3"},
		natural: []int{4, 7, 8, 9}, ReplyBytes: 122, head: 4, size: 10, ampere: 2,
	}
	WireView = &Model{
		Kind: "wireview-pro2", Name: "Thermal Grizzly WireView Pro II", vendor: 0xEF, product: 0x05,
		Sensors: []string{"hpwr_pin1", "hpwr_pin2", "hpwr_pin3", "hpwr_pin4", "hpwr_pin5", "hpwr_pin6"},
		natural: []int{0, 1, 2, 3, 4, 5}, ReplyBytes: 100, head: 12, size: 12, ampere: 4,
	}
)

// Device is a device behind a serial port. It implements instrument.Instrument.
type Device struct {
	instrument.Base
	model *Model
	opts  Options
}

// New makes a driver; nothing is opened yet.
func (m *Model) New(address string, o Options) (*Device, error) {
	d := &Device{model: m, opts: o}
	d.Steps, d.Run = []instrument.Step{d.identify}, d.stream
	return d, instrument.Init(&d.Base, m.Kind, address, o, transport.Options{}, m.Inputs)
}

// identify asks for vendor and product. Bytes from before, its greeting
// or an answer that was never read, is passed over.
func (d *Device) identify(ctx context.Context) error {
	m := d.model
	var b [3]byte
	found, err := transport.AskFor(ctx, d.Conn, askVendor, b[:], answerTime,
		func(b []byte) bool { return b[0] == m.vendor && b[1] == m.product })
	switch {
	case errors.Is(err, instrument.ErrSilent):
		return fmt.Errorf("%w (is this the right port?)", err)
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%w: it answers % x, a %s %02x %02x and its firmware", instrument.ErrIdentity, b, m.Name, m.vendor,
			m.product)
	}
	var number [12]byte
	if err := transport.Ask(ctx, d.Conn, askNumber, number[:], answerTime); err != nil {
		return fmt.Errorf("ask for its number: %w", err)
	}
	d.Identify(m.Name, fmt.Sprintf("%X", number), fmt.Sprint(b[2]))
	return nil
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Period is the distance of two questions; default 2 ms, which a USB device can
	// keep: questions that are left out for want of time make markers hard to find.
	Period time.Duration `yaml:"period"`
	// Silence is how long the device may leave questions without an answer before
	// it counts as lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options { return Options{Period: 2 * time.Millisecond, Silence: 5 * time.Second} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	return cmp.Or(
		instrument.Within("period", o.Period, 200*time.Microsecond, time.Second, "200µs to 1s"),
		instrument.Within("silence", o.Silence, 200*time.Millisecond, time.Hour, "200ms to 1h"),
	)
}

// The uncertainties of a device as it is sold: the makers publish none, so they
// are set wide on purpose. A calibration in the bench file replaces them.
const (
	uGainCurrent, uGainVoltage     = 0.01, 0.005
	uOffsetCurrent, uOffsetVoltage = 0.02, 0.01
	noiseCurrent, noiseVoltage     = 0.01, 0.002
	uHostClock                     = 2e-5
)

// Inputs are two channels a sensor; a count is a millivolt or a milliampere.
// Time is the host's: the middle of each question and answer.
func (m *Model) Inputs(o Options) instrument.Inputs {
	return instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e9, UTickHz: uHostClock, TicksPerScan: float64(o.Period), Stamped: true},
		Channels: instrument.VoltAmpere(m.Sensors, measure.Channel{
			Gain: 1e-3, UGain: uGainVoltage, UOffset: uOffsetVoltage, Noise: noiseVoltage, MinCount: -mostMillivolts,
			MaxCount: mostMillivolts,
		}, measure.Channel{
			Gain: 1e-3, UGain: uGainCurrent, UOffset: uOffsetCurrent, Noise: noiseCurrent, MinCount: -mostMilliamperes,
			MaxCount: mostMilliamperes,
		}),
	}
}

// NaturalRails are a graphics card's own connectors. What it draws from its slot
// comes through the mainboard, and is not measured.
func (m *Model) NaturalRails(instrument.Inputs) (rails []measure.Rail, missing []string) {
	direct := func(string) measure.Role { return measure.RolePSU }
	return instrument.ClampRails(m.Sensors, m.natural, direct), []string{"pcie_12v", "pcie_3v3"}
}

const (
	blockTime  = 20 * time.Millisecond
	judgeTime  = 2 * time.Second
	slowAsking = 1.03
)

// stream is one Stream call.
type stream struct {
	d      *Device
	out    *series.Builder
	reply  []byte // with room for a byte too many
	counts []measure.Count

	zero, last time.Time // of the ticks, and of the last reading
	heard      time.Time // of the last good answer
	failed     uint64    // questions without a good answer since then
	slow       int64     // answers that took long

	steps  int64 // from one reading to the next, and how long they took
	took   time.Duration
	judged bool
	why    error
}

// stream asks on the grid of the period; questions that are overdue are left out, not made up.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	now := time.Now()
	s := &stream{
		d: d, zero: now, heard: now, reply: make([]byte, d.model.ReplyBytes+1),
		counts: make([]measure.Count, len(d.In.Channels)), out: series.New(d.In, int(blockTime/d.opts.Period), sink),
	}
	err := transport.Stale(ctx, d.Conn, staleBytes)
	if err == nil {
		err = series.Grid(ctx, d.opts.Period, func() error { return s.ask(ctx) })
	}
	switch {
	case ctx.Err() == nil || err != nil && !transport.Ended(err):
		return err
	case s.slow == 0:
		return s.out.Flush()
	}
	return s.out.Note("%d answers took more than %v: the time of each is known to half of what it took", s.slow,
		slowTime)
}

// ask asks once. The reading's time is the middle between question and answer.
func (s *stream) ask(ctx context.Context) error {
	begin := time.Now()
	short, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	n, want := 0, s.d.model.ReplyBytes
	_, err := s.d.Conn.Write(short, askReadings)
	for n < want && err == nil { // until the answer is whole
		var k int
		k, err = s.d.Conn.Read(short, s.reply[n:])
		n += k
	}
	end := time.Now()
	quiet := quietTime
	switch {
	case err == nil && n == want:
		err = s.d.model.Parse(s.reply[:n], s.counts)
	case err == nil:
		err = fmt.Errorf("an answer of %d bytes or more, not %d", n, want)
	case ctx.Err() != nil, errors.Is(err, instrument.ErrDisconnected):
		return s.out.Fail(err)
	default:
		quiet = lateTime
	}
	if err != nil {
		return s.miss(ctx, end, quiet, err)
	}
	at := begin.Add(end.Sub(begin) / 2)
	if end.Sub(begin) > slowTime {
		s.slow++
	}
	return s.good(at, end)
}

// good delivers a reading of an instant whose answer was whole at end.
func (s *stream) good(at, end time.Time) error {
	if s.failed > 0 {
		if err := s.out.Gap(s.failed, true, "%d questions without a good answer: %v", s.failed, s.why); err != nil {
			return err
		}
		s.failed = 0
	} else if s.out.Begun() {
		s.steps++
		s.took += at.Sub(s.last)
	}
	s.heard, s.last = end, at
	if err := s.out.Scan(at.Sub(s.zero).Nanoseconds(), s.counts); err != nil || s.judged || s.took < judgeTime {
		return err
	}
	// Once: is the device asked less often than it should be, by a machine, or a link, that is too slow?
	s.judged = true
	real := s.took / time.Duration(s.steps)
	if float64(real) <= slowAsking*float64(s.d.opts.Period) {
		return nil
	}
	return s.out.Note("an answer every %v, not every %v: set a longer period, or markers may not be found",
		real.Round(10*time.Microsecond), s.d.opts.Period)
}

// miss notes a question that got no good answer, and lets the line fall quiet, so
// that the next answer begins with its first byte. It gives up when none has come
// for long.
func (s *stream) miss(ctx context.Context, at time.Time, quiet time.Duration, why error) error {
	s.failed++
	s.why = why
	if at.Sub(s.heard) >= s.d.opts.Silence {
		return s.out.Fail(fmt.Errorf("%w: no good answer for %v (unplugged? power?): %w", instrument.ErrSilent,
			s.d.opts.Silence, why))
	}
	short, cancel := context.WithTimeout(ctx, 4*replyTime)
	defer cancel()
	if _, err := transport.Drain(short, s.d.Conn, quiet); err != nil && !transport.Ended(err) {
		return err
	}
	return nil
}

// What a sensor can show at all: beyond, a reply is out of step.
const (
	mostMillivolts   = 30_000
	mostMilliamperes = 200_000
)

// Parse reads a reply of ReplyBytes into counts: the millivolts and milliamperes of each
// sensor, in turn. There is no check sum. What there is instead is the power
// that the device itself makes of each pair: where one does not fit, the bytes
// are no answer.
func (m *Model) Parse(b []byte, counts []measure.Count) error {
	for s, name := range m.Sensors {
		p := b[m.head+m.size*s:]
		mV := int64(int16(binary.LittleEndian.Uint16(p)))
		mA := int64(int32(binary.LittleEndian.Uint32(p[m.ampere:])))
		mW := int64(int32(binary.LittleEndian.Uint32(p[m.ampere+4:])))
		// A filter of its own may stand between these: a quarter and 5 W are allowed.
		off := abs(mW - mV*mA/1000)
		if abs(mV) > mostMillivolts || abs(mA) > mostMilliamperes || off > abs(mV*mA/4000)+5000 {
			return fmt.Errorf("%s shows %d mV, %d mA and %d mW: the reply is out of step", name, mV, mA, mW)
		}
		counts[2*s], counts[2*s+1] = measure.Count(mV), measure.Count(mA)
	}
	return nil
}

func abs(x int64) int64 { return max(x, -x) }
