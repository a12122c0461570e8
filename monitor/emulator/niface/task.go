package niface

import (
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"time"

	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// channel is an input in a task.
type channel struct {
	name string
	ai   int
	poly []float64
}

// task is a task of the driver. The face's mutex guards it.
//
// There is no buffer to fill: the board knows what was at any time, so that a
// sample is converted when it is read. What the buffer would still hold follows
// from the position of the last read and the samples taken since the start.
type task struct {
	f     *Face
	name  string
	chans []channel

	rate   float64 // as asked for; 0 where no clock is set
	finite bool
	samps  uint64
	buffer uint64 // as set; 0 for the driver's choice

	overwrite, relative, offset int32

	running bool
	failed  int32         // what every read fails with
	ended   chan struct{} // closed when the task stops
	start   time.Duration
	begun   float64 // the same, by the device's clock, in ns
	step    float64 // ns a scan, by the device's clock
	pos     uint64  // where the last read ended
	rng     *rand.Rand
}

func (f *Face) newTask(name string) *task {
	return &task{
		f: f, name: name,
		overwrite: int32(nipb.ReadInt32Value_READ_INT32_VALUE_DO_NOT_OVERWRITE),
		relative:  int32(nipb.ReadInt32Value_READ_INT32_VALUE_CURR_READ_POS),
		rng:       rand.New(rand.NewPCG(f.cfg.Seed, 0x6e6f697365)),
	}
}

var physical = regexp.MustCompile(`^([^/]+)/ai([0-9]{1,3})$`)

// add adds an input. A differential one takes the eighth behind it as well.
func (t *task) add(name, phys string, terminal int32, low, high float64) int32 {
	m := physical.FindStringSubmatch(phys)
	if m == nil {
		return errChannel
	}
	if m[1] != t.f.cfg.Device {
		return errDevice
	}
	ai, _ := strconv.Atoi(m[2])
	if ai >= inputs {
		return errChannel
	}
	if t.running {
		return errNotWhileRunning
	}
	differential := false
	switch nipb.TerminalConfig(terminal) {
	case nipb.TerminalConfig_TERMINAL_CONFIG_DIFFERENTIAL:
		differential = true
	case nipb.TerminalConfig_TERMINAL_CONFIG_DEFAULT: // differential where there is a pair
	case nipb.TerminalConfig_TERMINAL_CONFIG_RSE, nipb.TerminalConfig_TERMINAL_CONFIG_NRSE:
	default:
		return errValue
	}
	r := nextRange(low, high)
	switch {
	case differential && ai%16 >= 8:
		return errValue
	case !(low < high):
		return errMinMax
	case r == 0:
		return errValue
	}
	if name == "" {
		name = phys
	}
	if t.channel(name) != nil {
		return errDuplicate
	}
	t.chans = append(t.chans, channel{name: name, ai: ai, poly: t.f.poly[r]})
	return 0
}

func (t *task) channel(name string) *channel {
	for k := range t.chans {
		if t.chans[k].name == name {
			return &t.chans[k]
		}
	}
	return nil
}

// verify is what the driver checks before it tells what it will do.
func (t *task) verify() int32 {
	n := len(t.chans)
	switch {
	case n == 0:
		return errNoChannels
	case t.f.unplugged:
		return errDeviceGone
	case n == 1 && t.rate > float64(t.f.cfg.MaxSingle):
		return errRate
	case n > 1 && !t.f.cfg.Simultaneous && t.rate*float64(n) > float64(t.f.cfg.MaxRate)*(1+1e-9):
		return errRateAndChannels
	}
	return 0
}

// size is the buffer's: as set, or the driver's choice by the rate.
func (t *task) size() uint64 {
	if t.buffer > 0 {
		return t.buffer
	}
	choice := uint64(1_000_000)
	for _, c := range []struct {
		rate float64
		size uint64
	}{{100, 1_000}, {10_000, 10_000}, {1_000_000, 100_000}} {
		if t.rate <= c.rate {
			choice = c.size
			break
		}
	}
	return max(choice, t.samps)
}

// begin starts sampling.
func (t *task) begin() int32 {
	if t.running {
		return errNotWhileRunning
	}
	if code := t.verify(); code != 0 {
		return code
	}
	if t.rate == 0 {
		return errNoChannels
	}
	for _, other := range t.f.sessions {
		if other != t && other.running {
			return errReserved
		}
	}
	t.running, t.failed, t.pos = true, 0, 0
	t.ended = make(chan struct{})
	t.start, t.step = t.f.now(), 1e9*t.f.scanPeriod(t.rate)
	t.begun = t.f.clock.device(t.start)
	t.f.first, t.f.lost = t.start, 0
	return 0
}

// end stops sampling; reads that wait are told.
func (t *task) end() {
	if t.running {
		t.running = false
		close(t.ended)
	}
}

// fail stops the device; every read fails until the task is started again.
func (t *task) fail(code int32) {
	t.failed = code
	t.end()
}

// taken is the samples a channel since the start; f.mu is held.
func (t *task) taken() uint64 {
	if t.ended == nil {
		return 0
	}
	// A sample's time is rounded to nanoseconds, hence the thousandth.
	n := uint64(max(0, math.Floor((t.f.clock.device(t.f.now())-t.begun)/t.step+1e-3)+1))
	if t.finite {
		n = min(n, t.samps)
	}
	return n
}

// at is when a sample is taken.
func (t *task) at(sample uint64) time.Duration {
	return time.Duration(math.Round(t.f.clock.board(t.begun + float64(sample)*t.step)))
}

// from is where a read begins now; it may lie before the first sample.
func (t *task) from() int64 {
	switch nipb.ReadInt32Value(t.relative) {
	case nipb.ReadInt32Value_READ_INT32_VALUE_FIRST_SAMPLE:
		return int64(t.offset)
	case nipb.ReadInt32Value_READ_INT32_VALUE_MOST_RECENT_SAMP:
		return int64(t.taken()) + int64(t.offset)
	}
	return int64(t.pos) + int64(t.offset)
}

// overwrites tells whether sampling goes on over what nobody read.
func (t *task) overwrites() bool {
	return nipb.ReadInt32Value(t.overwrite) == nipb.ReadInt32Value_READ_INT32_VALUE_OVERWRITE
}
