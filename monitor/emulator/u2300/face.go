// Package u2300 is a Keysight U2300A data acquisition device in software, fed by the emulated
// board.
//
//	ROUTe     inputs: range, polarity, ground, and the scan list
//	ACQuire   scan rate, points of a single shot, burst
//	RUN       blocks of WAVeform:POINts scans, until STOP; DIGitize takes one
//	WAVeform  state of the memory and the oldest block
//
// Settings can be changed only while nothing runs. Memory that is not read in time overflows:
// the state is then OVER, and the acquisition gives nothing more.
package u2300

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// Config describes the device and its wiring: rail k of Rails is on channel
// 101+2k (voltage, through meter.Divider) and 102+2k (current, a clamp of
// meter.PerVolt).
type Config struct {
	Seed uint64
	// Model as in *IDN?; default U2356A.
	Model string
	// Now is the board's time.
	Now func() time.Duration
	// Rails by name; nil for aux_12v_1 and the others behind it.
	Rails []string
	// Memory is how many samples wait to be read before the device stops with
	// OVER; default 1 Mi, a number of ours, as the maker states none.
	Memory int
	// Noise of a conversion in codes; default 1.5, negative for none.
	Noise float64
	// Draw draws the device's errors; without it the device is true.
	Draw bool
}

// variant describes a model.
type variant struct {
	channels int // single-ended; half as many differential
	fastest  int // conversions a second in all
}

// variants by model, as the maker lists them.
var variants = map[string]variant{
	"U2351A": {16, 250_000}, "U2352A": {16, 250_000}, "U2353A": {16, 500_000}, "U2354A": {16, 500_000},
	"U2355A": {64, 250_000}, "U2356A": {64, 500_000},
}

// firstChannel is the number of the first input.
const firstChannel = 101

// channel holds the settings of one input.
type channel struct{ rng, polarity, kind string }

// Face is one device. Its clients come and go through the embedded Instrument.
type Face struct {
	*scpi.Instrument
	board *board.Board
	cfg   Config
	variant
	inputs []channel
	wired  *wiring.Inputs
	clock  float64 // by how much it runs fast, relative
	noise  *rand.Rand

	scan                []int // channel numbers in the order of the scan
	rate, points, depth int
	burst               bool
	acq                 acquisition
	runs                []Run
	power               []measure.Watt
	out                 []byte
}

// New makes a device whose inputs sit on a board.
func New(b *board.Board, cfg Config) (*Face, error) {
	if cfg.Now == nil {
		return nil, fmt.Errorf("emulated U2300A: nothing tells the time")
	}
	cfg.Model = cmp.Or(cfg.Model, "U2356A")
	v, ok := variants[cfg.Model]
	if !ok {
		return nil, fmt.Errorf("emulated U2300A: no model %q", cfg.Model)
	}
	cfg.Memory = cmp.Or(cfg.Memory, 1<<20)
	meter.Default(&cfg.Noise, 1.5)
	spread := meter.Spread{UGainI: 2e-3, UGainV: 2e-3, UOffsetI: 1e-3, UOffsetV: 1e-3, UClock: 5e-5}
	f := &Face{board: b, cfg: cfg, variant: v, noise: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x7532333030))
	f.clock = meter.Drawing(rng, cfg.Draw)(spread.UClock)
	var err error
	if f.wired, err = wiring.Connect(b, cfg.Rails, f.channels, spread, cfg.Draw, rng); err != nil {
		return nil, fmt.Errorf("emulated U2300A: %w", err)
	}
	f.inputs = make([]channel, f.channels)
	f.reset()
	id := fmt.Sprintf("Keysight Technologies,%s,MY00000001,A-01-2026", cfg.Model)
	f.Instrument = scpi.New(id, f.reset, append(f.settings(), f.acquisitions()...))
	f.Signed = true
	return f, nil
}

// reset is *RST.
func (f *Face) reset() {
	for i := range f.inputs {
		f.inputs[i] = channel{"10", "BIP", "SING"}
	}
	f.scan, f.rate, f.points, f.depth, f.burst = []int{firstChannel}, 1000, 500, 500, false
	f.acq = acquisition{}
}

const (
	slowest   = 3       // scans a second
	maxPoints = 8 << 20 // of a block or a single shot, over all channels
)

// settings can be changed only while nothing runs.
func (f *Face) settings() []scpi.Command {
	all := []scpi.Command{
		f.setting("ROUTe:CHANnel:RANGe", func(c *channel) *string { return &c.rng }, func(c scpi.Call, i int) (string, error) {
			v, err := c.Number(i)
			if err == nil && !slices.Contains([]float64{10, 5, 2.5, 1.25}, v) {
				err = scpi.ErrRange
			}
			return strconv.FormatFloat(v, 'f', -1, 64), err
		}),
		f.setting("ROUTe:CHANnel:POLarity", func(c *channel) *string { return &c.polarity },
			scpi.OneOf("BIPolar", "UNIPolar")),
		f.setting("ROUTe:CHANnel:STYPe", func(c *channel) *string { return &c.kind },
			scpi.OneOf("SINGle", "DIFFerential", "NRS")),
		{Pattern: "ROUTe:SCAN", Set: scpi.Take(f.list, func(numbers []int) error {
			if f.rate*len(numbers) > f.fastest { // too long for the present rate
				return scpi.ErrConflict
			}
			f.scan = numbers
			return nil
		}), Query: scpi.Reply(func() string {
			return "(@" + strings.Trim(strings.ReplaceAll(fmt.Sprint(f.scan), " ", ","), "[]") + ")"
		})},
		{Pattern: "ACQuire:SRATe", Query: scpi.Show("%d", &f.rate), Set: scpi.Set(func(v float64) error {
			if !(v >= slowest && v*float64(len(f.scan)) <= float64(f.fastest)) { // all inputs share the converter's rate
				return scpi.ErrRange
			}
			f.rate = int(math.Round(v))
			return nil
		})},
		{Pattern: "ACQuire:POINts", Set: f.setPoints(&f.depth), Query: scpi.Show("%d", &f.depth)},
		{Pattern: "WAVeform:POINts", Set: f.setPoints(&f.points), Query: scpi.Show("%d", &f.points)},
		scpi.Switch("ACQuire:BURSt", &f.burst),
		scpi.Sole("TRIGger:SOURce", "NONE"),
	}
	for i, c := range all {
		all[i].Set = func(a scpi.Call) error {
			if f.update(); f.acq.running {
				return scpi.ErrConflict
			}
			return c.Set(a)
		}
	}
	return all
}

// acquisitions start and stop the converter, and read the memory.
func (f *Face) acquisitions() []scpi.Command {
	return []scpi.Command{
		{Pattern: "RUN", Set: func(scpi.Call) error { return f.start(false) }},
		{Pattern: "DIGitize", Set: func(scpi.Call) error { return f.start(true) }},
		scpi.Action("STOP", func() {
			if f.update(); f.acq.running {
				f.freeze(f.converted())
			}
		}),
		scpi.Asked("WAVeform:STATus", f.status),
		scpi.Asked("WAVeform:COMPlete", func() string {
			if f.update(); f.acq.running {
				return "NO"
			}
			return "YES"
		}),
		// The oldest block, or an empty one where none is complete. A memory that overflowed gives nothing
		// more; the behaviour of a real one is not documented.
		{Pattern: "WAVeform:DATA", Query: func(scpi.Call) ([]byte, error) {
			if f.status() != "DATA" {
				return scpi.Block(8, nil), nil
			}
			n := f.block()
			out := scpi.Block(8, f.convert(f.acq.read, n))
			f.acq.read += n
			return out, nil
		}},
		{Pattern: "MEASure[:VOLTage][:DC]", Query: func(c scpi.Call) ([]byte, error) { // a single reading, in volts
			now := f.cfg.Now()
			return f.joined(c, func(n int) string { return scpi.Exponent(f.wired.VoltsAt(n-firstChannel, now)) })
		}},
	}
}

// list reads parameter i as a list of channels.
func (f *Face) list(c scpi.Call, i int) ([]int, error) {
	all, err := c.Channels(i)
	if err == nil && (slices.Min(all) < firstChannel || slices.Max(all) >= firstChannel+f.channels) {
		err = scpi.ErrRange
	}
	return all, err
}

// input returns the input of a channel.
func (f *Face) input(number int) *channel { return &f.inputs[number-firstChannel] }

// joined is a reply of a value of each channel that parameter 0 lists, separated by commas.
func (f *Face) joined(c scpi.Call, of func(number int) string) ([]byte, error) {
	all, err := f.list(c, 0)
	if err != nil {
		return nil, err
	}
	return []byte(strings.Join(lists.Map(all, of), ",")), nil
}

// setting is a header with a value and a list of channels.
func (f *Face) setting(pattern string, at func(*channel) *string, read func(scpi.Call, int) (string, error),
) scpi.Command {
	return scpi.Command{
		Pattern: pattern,
		Set: func(c scpi.Call) error {
			v, err := read(c, 0)
			if err != nil {
				return err
			}
			all, err := f.list(c, 1)
			if err == nil && v == "DIFF" && slices.Max(all) >= firstChannel+f.channels/2 {
				err = scpi.ErrRange
			}
			if err != nil {
				return err
			}
			for _, n := range all {
				*at(f.input(n)) = v
			}
			return nil
		},
		Query: func(c scpi.Call) ([]byte, error) {
			return f.joined(c, func(n int) string { return *at(f.input(n)) })
		},
	}
}

// setPoints takes the scans of a block.
func (f *Face) setPoints(at *int) func(scpi.Call) error {
	return scpi.Set(func(v float64) error {
		if v != math.Trunc(v) {
			return scpi.ErrRange
		}
		return scpi.Put(at, v, 1, float64(maxPoints/len(f.scan)))
	})
}

// acquisition is one begun by RUN or DIG.
type acquisition struct {
	running, over bool
	single        bool // DIG: ends after depth scans
	begin         time.Duration
	done          int // scans converted, once it no longer runs
	read          int // scans that were read
}

// Run is one acquisition, for tests that compare with the truth: when its first scan was
// taken and how many scans of it were read.
type Run struct {
	Begin time.Duration
	Read  int
}

// Runs are the acquisitions so far.
func (f *Face) Runs() (out []Run) {
	f.Do(func() { out = append(append(out, f.runs...), Run{f.acq.begin, f.acq.read}) })
	return out[1:] // before the first there was none
}

// ScanTime is the board's time of a scan that follows so many others.
func (f *Face) ScanTime(r Run, scan uint64) (at time.Duration) {
	f.Do(func() { at = r.Begin + f.after(float64(scan)) })
	return at
}

// Overflow makes the device's memory overflow now.
func (f *Face) Overflow() {
	f.Do(func() {
		if f.acq.running {
			f.freeze(f.converted())
			f.acq.over = true
		}
	})
}

// after is the board's time that so many scans take.
func (f *Face) after(scans float64) time.Duration {
	return time.Duration(math.Round(scans * 1e9 / (float64(f.rate) * (1 + f.clock))))
}

// start is RUN and DIG.
func (f *Face) start(single bool) error {
	if f.acq.running {
		return scpi.ErrConflict
	}
	f.runs = append(f.runs, Run{f.acq.begin, f.acq.read})
	f.acq = acquisition{running: true, single: single, begin: f.cfg.Now()}
	return nil
}

// freeze ends an acquisition with so many scans done.
func (f *Face) freeze(done int) { f.acq.running, f.acq.done = false, done }

// converted is how many scans there are by now.
func (f *Face) converted() int {
	if !f.acq.running {
		return f.acq.done
	}
	return int((f.cfg.Now() - f.acq.begin).Seconds() * float64(f.rate) * (1 + f.clock))
}

// update makes the events happen that are due: a full memory, the end of a single shot.
func (f *Face) update() {
	if !f.acq.running {
		return
	}
	// Memory holds whole scans that were not read yet.
	n, most := f.converted(), f.acq.read+f.cfg.Memory/len(f.scan)
	switch {
	case f.acq.single && n >= f.depth:
		f.freeze(f.depth)
	case !f.acq.single && n > most:
		f.freeze(most)
		f.acq.over = true
	}
}

// block is how many scans WAV:DATA? gives at once.
func (f *Face) block() int {
	if f.acq.single {
		return f.depth
	}
	return f.points
}

// status is the answer to WAV:STAT?.
func (f *Face) status() string {
	f.update()
	unread := f.converted() - f.acq.read
	switch {
	case f.acq.over:
		return "OVER"
	case unread >= f.block():
		return "DATA"
	case unread > 0 && f.acq.running:
		return "FRAG"
	}
	return "EPTY"
}

// convert makes little-endian codes of scans, interleaved.
func (f *Face) convert(first, n int) []byte {
	size := 2 * len(f.scan)
	f.out = slices.Grow(f.out[:0], n*size)[:n*size]
	f.power = slices.Grow(f.power[:0], n)
	step := 1e9 / (float64(f.rate) * (1 + f.clock))
	// In burst mode conversions follow each other as fast as the converter can, else they share the
	// scan's time evenly.
	delay := 1e9 / float64(f.fastest)
	if !f.burst {
		delay = 1e9 / float64(f.rate*len(f.scan))
	}
	for k, number := range f.scan {
		c := f.input(number)
		p := f.power[:n]
		f.board.Trace(p, f.acq.begin+f.after(float64(first))+time.Duration(math.Round(float64(k)*delay)), step)
		full, _ := strconv.ParseFloat(c.rng, 64)
		for i, w := range p {
			code := c.code(f.wired.Volts(number-firstChannel, w), full)
			code = meter.Code(code, f.cfg.Noise, f.noise, math.MinInt16, math.MaxInt16)
			binary.LittleEndian.PutUint16(f.out[i*size+2*k:], uint16(int16(code)))
		}
	}
	return f.out
}

// code is where the converter puts a voltage.
func (c *channel) code(v, full float64) float64 {
	if c.polarity == "UNIP" {
		return (v/full - 0.5) * 65536
	}
	return v / full * 32768
}
