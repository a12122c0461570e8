package nidaqmx

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
)

// channel is an input in a task.
type channel struct {
	name string
	ai   int
	poly []float64
}

// task is a task of the driver. The face's mutex guards it.
//
// There is no buffer to fill: the board knows its past, so that a sample is converted
// when it is read. The contents of the buffer follow
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
	failed  int32         // error of every read
	ended   chan struct{} // closed when the task stops
	start   time.Duration
	begun   float64 // the same, by the device's clock, in ns
	step    float64 // ns a scan, by the device's clock
	pos     uint64  // where the last read ended
}

// physical is the form of a range of inputs on the server: DEVICE/aiN or DEVICE/aiN:M, whose first may be the greater.
var physical = lazy.Regexp(`^([^/]+)/ai([0-9]{1,3})(?::(?:ai)?([0-9]{1,3}))?$`)

// addAll adds the inputs of a list of ranges, or none of them. A name is that of a single one; of more, name0, name1 ….
func (t *task) addAll(name, list string, terminal int32, low, high float64) int32 {
	var all []int
	for part := range strings.SplitSeq(list, ",") {
		m := physical().FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return errChannel
		}
		if m[1] != deviceName {
			return errDevice
		}
		first, _ := strconv.Atoi(m[2])
		last, err := strconv.Atoi(m[3])
		if err != nil { // a single one
			last = first
		}
		for ai := first; ; ai += cmp.Compare(last, first) {
			if all = append(all, ai); ai == last {
				break
			}
		}
	}
	were := len(t.chans)
	for i, ai := range all {
		each := name
		if len(all) > 1 && name != "" {
			each += strconv.Itoa(i)
		}
		if code := t.add(each, ai, terminal, low, high); code != 0 {
			t.chans = t.chans[:were]
			return code
		}
	}
	return 0
}

// add adds an input. A differential one takes the eighth behind it as well.
func (t *task) add(name string, ai int, terminal int32, low, high float64) int32 {
	if ai >= inputs {
		return errChannel
	}
	if t.running {
		return errNotWhileRunning
	}
	// A differential pair is an input below eight of its bank of sixteen and the one eight above it.
	differential := false
	switch nipb.TerminalConfig(terminal) {
	case nipb.TerminalConfig_TERMINAL_CONFIG_DIFFERENTIAL:
		differential = true
	case nipb.TerminalConfig_TERMINAL_CONFIG_DEFAULT, // differential where there is a pair
		nipb.TerminalConfig_TERMINAL_CONFIG_RSE, nipb.TerminalConfig_TERMINAL_CONFIG_NRSE:
	default:
		return errValue
	}
	fits := slices.IndexFunc(ranges, func(r float64) bool { return high <= r && low >= -r }) // the smallest
	switch {
	case differential && ai%16 >= 8:
		return errValue
	case !(low < high):
		return errMinMax
	case fits < 0:
		return errValue
	}
	if name == "" {
		name = fmt.Sprintf("%s/ai%d", deviceName, ai)
	}
	if t.channel(name) != nil {
		return errDuplicate
	}
	t.chans = append(t.chans, channel{name: name, ai: ai, poly: t.f.poly[ranges[fits]]})
	return 0
}

// channel finds an input by its name in the task; nil where there is none.
func (t *task) channel(name string) *channel {
	for k := range t.chans {
		if t.chans[k].name == name {
			return &t.chans[k]
		}
	}
	return nil
}

// verify makes the driver's checks before it reports its settings.
func (t *task) verify() int32 {
	n := len(t.chans)
	switch {
	case n == 0:
		return errNoChannels
	case t.f.unplugged:
		return errDeviceGone
	case n == 1 && t.rate > float64(t.f.cfg.MaxSingle):
		return errRate
	case n > 1 && !t.f.cfg.Simultaneous && t.rate*float64(n) > maxRate*(1+1e-9):
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

// end stops sampling; reads that wait end with an error.
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

// attribute is that of a request; of the two arms of its enum one is zero.
func attribute[A ~int32](q interface {
	GetAttribute() A
	GetAttributeRaw() int32
},
) A {
	return q.GetAttribute() + A(q.GetAttributeRaw())
}

// pick returns the value of an attribute in out.
func pick[A comparable, V any](out *V, attribute A, values map[A]V) int32 {
	v, ok := values[attribute]
	if !ok {
		return errAttribute
	}
	*out = v
	return 0
}

// choose sets an attribute to one of the values that it may have.
func choose(to *int32, value int32, known ...nipb.ReadInt32Value) int32 {
	if !slices.Contains(known, nipb.ReadInt32Value(value)) {
		return errValue
	}
	*to = value
	return 0
}

// GetTimingAttributeDouble returns the rates that the device will keep.
func (f *Face) GetTimingAttributeDouble(ctx context.Context,
	q *nipb.GetTimingAttributeDoubleRequest,
) (*nipb.GetTimingAttributeDoubleResponse, error) {
	out := &nipb.GetTimingAttributeDoubleResponse{}
	return out, f.with(ctx, q.GetTask(), func(t *task) int32 {
		if code := t.verify(); code != 0 {
			return code
		}
		rates := map[nipb.TimingDoubleAttribute]float64{
			nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_SAMP_CLK_RATE: 1 / f.scanPeriod(t.rate),
		}
		if !f.cfg.Simultaneous {
			rates[nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_AI_CONV_RATE] = 1 / f.convertPeriod(t.rate, len(t.chans))
		}
		return pick(&out.Value, attribute(q), rates)
	})
}

// GetReadAttributeUInt32 returns the number of samples waiting, or the width of a raw scan.
func (f *Face) GetReadAttributeUInt32(ctx context.Context,
	q *nipb.GetReadAttributeUInt32Request,
) (*nipb.GetReadAttributeUInt32Response, error) {
	out := &nipb.GetReadAttributeUInt32Response{}
	return out, f.with(ctx, q.GetTask(), func(t *task) int32 {
		width := cmp.Or(f.cfg.Width, uint32(bytesCode*len(t.chans)))
		return pick(&out.Value, attribute(q), map[nipb.ReadUInt32Attribute]uint32{
			nipb.ReadUInt32Attribute_READ_U_INT32_ATTRIBUTE_AVAIL_SAMP_PER_CHAN: uint32(max(0, int64(t.taken())-t.from())),
			nipb.ReadUInt32Attribute_READ_U_INT32_ATTRIBUTE_RAW_DATA_WIDTH:      width,
		})
	})
}

// GetReadAttributeUInt64 returns the position at which the last read ended, or the number of samples taken.
func (f *Face) GetReadAttributeUInt64(ctx context.Context,
	q *nipb.GetReadAttributeUInt64Request,
) (*nipb.GetReadAttributeUInt64Response, error) {
	out := &nipb.GetReadAttributeUInt64Response{}
	return out, f.with(ctx, q.GetTask(), func(t *task) int32 {
		return pick(&out.Value, attribute(q), map[nipb.ReadUInt64Attribute]uint64{
			nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_CURR_READ_POS:                t.pos,
			nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_TOTAL_SAMP_PER_CHAN_ACQUIRED: t.taken(),
		})
	})
}

// SetReadAttributeInt32 sets where reads begin. The treatment of unread samples
// cannot be changed while the task runs.
func (f *Face) SetReadAttributeInt32(ctx context.Context,
	q *nipb.SetReadAttributeInt32Request,
) (*nipb.SetReadAttributeInt32Response, error) {
	value := int32(q.GetValue()) + q.GetValueRaw()
	return &nipb.SetReadAttributeInt32Response{}, f.with(ctx, q.GetTask(), func(t *task) int32 {
		if f.cfg.Fixed {
			return errAttribute
		}
		switch attribute(q) {
		case nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_OVERWRITE:
			if t.running { // a task that runs keeps its choice
				return errNotWhileRunning
			}
			return choose(&t.overwrite, value, nipb.ReadInt32Value_READ_INT32_VALUE_OVERWRITE,
				nipb.ReadInt32Value_READ_INT32_VALUE_DO_NOT_OVERWRITE)
		case nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_RELATIVE_TO:
			return choose(&t.relative, value, nipb.ReadInt32Value_READ_INT32_VALUE_FIRST_SAMPLE,
				nipb.ReadInt32Value_READ_INT32_VALUE_CURR_READ_POS, nipb.ReadInt32Value_READ_INT32_VALUE_MOST_RECENT_SAMP)
		case nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_OFFSET:
			t.offset = value
			return 0
		}
		return errAttribute
	})
}

// GetChanAttributeDoubleArray returns a channel's scale.
func (f *Face) GetChanAttributeDoubleArray(ctx context.Context,
	q *nipb.GetChanAttributeDoubleArrayRequest,
) (*nipb.GetChanAttributeDoubleArrayResponse, error) {
	out := &nipb.GetChanAttributeDoubleArrayResponse{}
	return out, f.with(ctx, q.GetTask(), func(t *task) int32 {
		const scale = nipb.ChannelDoubleArrayAttribute_CHANNEL_DOUBLE_ARRAY_ATTRIBUTE_AI_DEV_SCALING_COEFF
		c := t.channel(q.GetChannel())
		switch {
		case attribute(q) != scale:
			return errAttribute
		case c == nil:
			return errInvalidChannel
		}
		out.Value = append(out.Value, c.poly...)
		return t.verify()
	})
}

// GetBufferAttributeUInt32 returns the buffer's size.
func (f *Face) GetBufferAttributeUInt32(ctx context.Context,
	q *nipb.GetBufferAttributeUInt32Request,
) (*nipb.GetBufferAttributeUInt32Response, error) {
	out := &nipb.GetBufferAttributeUInt32Response{}
	return out, f.with(ctx, q.GetTask(), func(t *task) int32 {
		return pick(&out.Value, attribute(q), map[nipb.BufferUInt32Attribute]uint32{
			nipb.BufferUInt32Attribute_BUFFER_U_INT32_ATTRIBUTE_INPUT_BUF_SIZE: uint32(t.size()),
		})
	})
}

// GetTaskAttributeUInt32 returns the number of the task's inputs, or of their devices.
func (f *Face) GetTaskAttributeUInt32(ctx context.Context,
	q *nipb.GetTaskAttributeUInt32Request,
) (*nipb.GetTaskAttributeUInt32Response, error) {
	out := &nipb.GetTaskAttributeUInt32Response{}
	return out, f.with(ctx, q.GetTask(), func(t *task) int32 {
		n := uint32(len(t.chans))
		return pick(&out.Value, attribute(q), map[nipb.TaskUInt32Attribute]uint32{
			nipb.TaskUInt32Attribute_TASK_U_INT32_ATTRIBUTE_NUM_CHANS:   n,
			nipb.TaskUInt32Attribute_TASK_U_INT32_ATTRIBUTE_NUM_DEVICES: min(n, 1),
		})
	})
}

// GetErrorString returns the message of an error; of one that is not made here, its number.
func (f *Face) GetErrorString(_ context.Context, q *nipb.GetErrorStringRequest) (*nipb.GetErrorStringResponse, error) {
	code := q.GetErrorCode()
	return &nipb.GetErrorStringResponse{
		ErrorString: cmp.Or(texts[code], fmt.Sprintf("There is no text of status %d here.", code)),
	}, nil
}

// device checks a call about a device; known reports whether it has the attribute that is asked for.
func (f *Face) device(ctx context.Context, name string, known bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	code := int32(0)
	switch {
	case name != deviceName:
		code = errDevice
	case f.unplugged:
		code = errDeviceGone
	case !known:
		code = errAttribute
	}
	return refuse(ctx, code)
}

// GetDeviceAttributeString returns the model.
func (f *Face) GetDeviceAttributeString(ctx context.Context,
	q *nipb.GetDeviceAttributeStringRequest,
) (*nipb.GetDeviceAttributeStringResponse, error) {
	known := attribute(q) == nipb.DeviceStringAttribute_DEVICE_STRING_ATTRIBUTE_PRODUCT_TYPE
	return &nipb.GetDeviceAttributeStringResponse{Value: f.cfg.Product}, f.device(ctx, q.GetDeviceName(), known)
}

// GetDeviceAttributeUInt32 returns the serial number.
func (f *Face) GetDeviceAttributeUInt32(ctx context.Context,
	q *nipb.GetDeviceAttributeUInt32Request,
) (*nipb.GetDeviceAttributeUInt32Response, error) {
	known := attribute(q) == nipb.DeviceUInt32Attribute_DEVICE_U_INT32_ATTRIBUTE_SERIAL_NUM
	serial := 0x1A2B3C0 + uint32(f.cfg.Seed)
	return &nipb.GetDeviceAttributeUInt32Response{Value: serial}, f.device(ctx, q.GetDeviceName(), known)
}

// GetDeviceAttributeBool reports how the device samples.
func (f *Face) GetDeviceAttributeBool(ctx context.Context,
	q *nipb.GetDeviceAttributeBoolRequest,
) (*nipb.GetDeviceAttributeBoolResponse, error) {
	known := attribute(q) == nipb.DeviceBoolAttribute_DEVICE_BOOL_ATTRIBUTE_AI_SIMULTANEOUS_SAMPLING_SUPPORTED
	return &nipb.GetDeviceAttributeBoolResponse{Value: f.cfg.Simultaneous}, f.device(ctx, q.GetDeviceName(), known)
}

// GetSystemInfoAttributeUInt32 returns the driver's version.
func (f *Face) GetSystemInfoAttributeUInt32(ctx context.Context,
	q *nipb.GetSystemInfoAttributeUInt32Request,
) (*nipb.GetSystemInfoAttributeUInt32Response, error) {
	out := &nipb.GetSystemInfoAttributeUInt32Response{}
	return out, refuse(ctx, pick(&out.Value, attribute(q), map[nipb.SystemUInt32Attribute]uint32{
		nipb.SystemUInt32Attribute_SYSTEM_U_INT32_ATTRIBUTE_NIDAQ_MAJOR_VERSION: 24,
		nipb.SystemUInt32Attribute_SYSTEM_U_INT32_ATTRIBUTE_NIDAQ_MINOR_VERSION: 5,
	}))
}
