// Package nidaqmx drives National Instruments' multiplexed DAQ devices, above all
// the USB-6259 of the papers, through NI's gRPC Device Server: the machine with
// the device runs NI's driver and server, this package is a plain gRPC client.
//
// A task is made, its inputs are added, and samples are read as the converter
// gave them (ReadRaw: little-endian i16, scan by scan). The device reports the
// polynomial from codes to volts, the rate that it keeps and the rate at which it
// converts one input after the other. What a full buffer loses is counted by the
// position at which reading goes on.
//
// # Where the numbers come from
//
// Calls, fields and enum values of making a task, its inputs, its clock, starting,
// reading and clearing, the trailers and the behaviour of sessions were seen at
// work on NI's own server. CfgInputBuffer, the calls that read and set attributes,
// the numbers of attributes, errors and read modes were read in NI's published
// interface (nidaqmx.proto and its list of errors). That reads can be moved and
// where the position then stands is the manual's word, as are accuracy, noise and
// rates of the USB-6259. From memory: which errors mean that the device has
// stopped by itself, and the noise on small ranges.
package nidaqmx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
	"github.com/wattmark/wattmark/monitor/transport"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kind is the driver's name in bench files.
const Kind = "nidaqmx"

// Device is a task on NI's server. It implements instrument.Instrument.
type Device struct {
	instrument.Base
	opts Options
	dial dialer

	server *grpc.ClientConn
	api    nipb.NiDAQmxClient
	task   *nipb.Session
	// left: a session of ours may still be on the server, because the line broke
	// before it was cleared. It is ours alone, so it may be taken over.
	left         bool
	simultaneous bool
	moved        bool // reads do not begin where the last one ended
}

// New makes a driver; nothing is opened yet. The address is tcp:host:port.
func New(address string, o Options) (*Device, error) {
	o.Inputs = slices.Clone(o.Inputs)
	d := &Device{opts: o, dial: dialTCP}
	err := instrument.Init(&d.Base, Kind, address, o, transport.Options{}, Inputs)
	d.Steps = []instrument.Step{d.connect, d.identify, d.begin, d.setUp}
	d.Dial, d.Release, d.Run = nil, d.disconnect, instrument.UntilDone(d.stream)
	return d, err
}

// identify reads the device's type and number, how it samples, and the driver's version.
func (d *Device) identify(ctx context.Context) (err error) {
	name := d.opts.Device
	product := ask(ctx, &err, "device "+name, d.api.GetDeviceAttributeString, &nipb.GetDeviceAttributeStringRequest{
		DeviceName: name, AttributeEnum: &nipb.GetDeviceAttributeStringRequest_Attribute{Attribute: productType},
	}).GetValue()
	serial := ask(ctx, &err, "serial number of "+name, d.api.GetDeviceAttributeUInt32,
		&nipb.GetDeviceAttributeUInt32Request{
			DeviceName: name, AttributeEnum: &nipb.GetDeviceAttributeUInt32Request_Attribute{Attribute: serialNumber},
		}).GetValue()
	if want, _ := strconv.ParseUint(d.opts.Serial, 16, 32); err == nil && d.opts.Serial != "" && uint32(want) != serial {
		return fmt.Errorf("%w: %s has the serial number %X, not %s", instrument.ErrIdentity, name, serial,
			strings.ToUpper(d.opts.Serial))
	}
	d.simultaneous = ask(ctx, &err, fmt.Sprintf("how %s samples", name), d.api.GetDeviceAttributeBool,
		&nipb.GetDeviceAttributeBoolRequest{
			DeviceName: name, AttributeEnum: &nipb.GetDeviceAttributeBoolRequest_Attribute{Attribute: samplesAtOnce},
		}).GetValue()
	version := func(a nipb.SystemUInt32Attribute) uint32 {
		return ask(ctx, &err, "the driver's version", d.api.GetSystemInfoAttributeUInt32,
			&nipb.GetSystemInfoAttributeUInt32Request{
				AttributeEnum: &nipb.GetSystemInfoAttributeUInt32Request_Attribute{Attribute: a},
			}).GetValue()
	}
	major := version(nipb.SystemUInt32Attribute_SYSTEM_U_INT32_ATTRIBUTE_NIDAQ_MAJOR_VERSION)
	minor := version(nipb.SystemUInt32Attribute_SYSTEM_U_INT32_ATTRIBUTE_NIDAQ_MINOR_VERSION)
	d.Identify(product, fmt.Sprintf("%X", serial), fmt.Sprintf("NI-DAQmx %d.%d", major, minor))
	return err
}

// begin makes the session. Sessions outlive connections and programs: one that
// is there already belongs to another program, unless it is known to be ours.
func (d *Device) begin(ctx context.Context) error {
	err := d.create(ctx)
	if status.Code(err) != codes.AlreadyExists {
		return err
	}
	if !d.left && !d.opts.TakeOver {
		return fmt.Errorf("%w: session %q exists on the server: another program measures, or one that crashed left "+
			"it behind; if none does, set take_over: true, or name another session", err, d.opts.Session)
	}
	// Attach to the session that is there, and clear it, unless it has gone by itself meanwhile.
	r, err := call(ctx, callTime, d.api.CreateTask, &nipb.CreateTaskRequest{
		SessionName: d.opts.Session, InitializationBehavior: oldSession,
	})
	if err == nil {
		_, err = call(ctx, callTime, d.api.ClearTask, &nipb.ClearTaskRequest{Task: r.GetTask()})
	} else if status.Code(err) == codes.FailedPrecondition {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("take over session %q: %w", d.opts.Session, err)
	}
	return d.create(ctx)
}

// create makes a task in a new session, of which this driver is then the owner.
func (d *Device) create(ctx context.Context) error {
	r, err := call(ctx, callTime, d.api.CreateTask, &nipb.CreateTaskRequest{
		SessionName: d.opts.Session, InitializationBehavior: newSession,
	})
	if err != nil {
		return fmt.Errorf("make a task: %w", err)
	}
	d.task, d.left, d.moved = r.GetTask(), true, false
	return nil
}

// disconnect clears the task, so that the device is free for others, and hangs up.
func (d *Device) disconnect() error {
	if d.server == nil {
		return nil
	}
	if d.task != nil {
		// Closing has no context of its own; its time is bounded here.
		_, err := call(context.Background(), lastTime, d.api.ClearTask, &nipb.ClearTaskRequest{Task: d.task})
		d.left = err != nil && driverCode(err) != invalidTask
		d.task = nil
	}
	err := d.server.Close()
	d.server, d.api = nil, nil
	return err
}

// Input is one analog input in the scan.
type Input struct {
	// AI is its number: 0 for Dev1/ai0.
	AI int `yaml:"ai"`
	// Name of the channel; default aiN.
	Name string `yaml:"name"`
	// Unit is V, A or W; default V.
	Unit string `yaml:"unit"`
	// PerVolt is the units a volt at the input: a divider's ratio, a clamp's A/V;
	// default 1.
	PerVolt float64 `yaml:"per_volt"`
	// Range in volts, both ways; the device takes its next larger one. Default 10.
	Range float64 `yaml:"range"`
	// Terminal is differential, rse, nrse, or default: the device's choice.
	Terminal string `yaml:"terminal"`
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Device is its name on NI's machine; default Dev1.
	Device string `yaml:"device"`
	// Serial is the device's number in hexadecimal, as printed on it; another
	// device is refused. Empty takes any.
	Serial string `yaml:"serial"`
	// Rate is the scans a second; default 10000. The device keeps the next that
	// its clock can be divided to.
	Rate float64 `yaml:"rate"`
	// Inputs in the order of the scan; put each rail's current and voltage next to
	// each other. Default: the wiring of the emulated device.
	Inputs []Input `yaml:"inputs"`
	// Interval is the distance of two reads; default 100 ms.
	Interval time.Duration `yaml:"interval"`
	// Buffer is how much time the buffer on NI's machine holds; default 10 s.
	Buffer time.Duration `yaml:"buffer"`
	// Session is the task's name on the server; default wattmark.
	Session string `yaml:"session"`
	// TakeOver clears a session of that name that is there already.
	TakeOver bool `yaml:"take_over"`
	// UGain (relative) and UOffset (of the range) are the standard uncertainties of
	// the device's own scale; defaults 0.0001 each.
	UGain   float64 `yaml:"u_gain"`
	UOffset float64 `yaml:"u_offset"`
	// Silence is how long the server may be silent, or the device without samples,
	// before it counts as lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of the emulated device's first rail.
func Defaults() Options {
	return Options{
		Device: "Dev1", Rate: 10_000, Interval: 100 * time.Millisecond, Buffer: 10 * time.Second, Session: "wattmark",
		UGain: 1e-4, UOffset: 1e-4, Silence: 5 * time.Second,
		Inputs: []Input{
			{AI: 0, Name: "aux.voltage", PerVolt: 2}, {AI: 1, Name: "aux.current", Unit: "A", PerVolt: 10, Range: 5},
		},
	}
}

const (
	maxInputs  = 80 // of the largest multiplexed device
	lastAI     = 207
	maxRate    = 10e6
	maxScans   = 1 << 24 // of a read and of the buffer
	halfScale  = 1 << 15 // codes of half a range
	bytesCode  = 2
	u50ppm     = 2.9e-5 // the maker's 50 ppm of the clock, taken as rectangular
	fastest    = 1e-6   // s, from one conversion to the next, of a USB-6259
	padding    = 10e-6  // s, that the driver adds where it fits
	overRange  = 1.05   // codes reach so far beyond the range, nominally
	noiseRel   = 2.8e-5 // of the range, of one conversion: the maker's figure for ±10 V
	noiseFloor = 1.5e-5 // V, the same for the smallest range
	offFloor   = 1e-5   // V, of the zero, on top of UOffset
)

var (
	terminals = map[string]nipb.TerminalConfig{
		"": nipb.TerminalConfig_TERMINAL_CONFIG_DEFAULT, "default": nipb.TerminalConfig_TERMINAL_CONFIG_DEFAULT,
		"differential": nipb.TerminalConfig_TERMINAL_CONFIG_DIFFERENTIAL,
		"rse":          nipb.TerminalConfig_TERMINAL_CONFIG_RSE, "nrse": nipb.TerminalConfig_TERMINAL_CONFIG_NRSE,
	}
	serials = lazy.Regexp(`^[0-9A-Fa-f]{1,8}$`)
	devices = lazy.Regexp(`^[^/,: \t]{1,255}$`)
)

// withDefaults fills in the fields that a bench file leaves out.
func (i Input) withDefaults() Input {
	i.Name, i.PerVolt = cmp.Or(i.Name, fmt.Sprintf("ai%d", i.AI)), cmp.Or(i.PerVolt, 1)
	i.Range = cmp.Or(i.Range, 10)
	return i
}

// physical is the input's name on the server.
func (o Options) physical(k int) string { return fmt.Sprintf("%s/ai%d", o.Device, o.Inputs[k].AI) }

// Validate reports an option that cannot be used. What the device can do, the
// device reports when it is opened.
func (o Options) Validate() error {
	n := len(o.Inputs)
	switch {
	case !devices().MatchString(o.Device):
		return fmt.Errorf("device %q: want its name in NI MAX, for example Dev1", o.Device)
	case o.Serial != "" && !serials().MatchString(o.Serial):
		return fmt.Errorf("serial %q: want up to eight hexadecimal digits", o.Serial)
	case !(o.Rate >= 1 && o.Rate*float64(n) <= maxRate):
		return fmt.Errorf("rate %v with %d inputs: want at least 1 and at most %v in all", o.Rate, n, maxRate)
	case o.Interval < 5*time.Millisecond || o.Interval > 10*time.Second || o.Interval.Seconds()*o.Rate > maxScans:
		return fmt.Errorf("interval %v: want 5ms to 10s, and at most %d scans", o.Interval, maxScans)
	case o.Buffer < 4*o.Interval || o.Buffer.Seconds()*o.Rate > maxScans*4:
		return fmt.Errorf("buffer %v: want at least four intervals of %v, and at most %d scans", o.Buffer, o.Interval,
			maxScans*4)
	case o.Session == "" || len(o.Session) > 255:
		return errors.New("session: want a name, so that a session that was left behind can be found again")
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1):
		return fmt.Errorf("u_gain %v, u_offset %v: want 0 to 1", o.UGain, o.UOffset)
	}
	return cmp.Or(instrument.CheckSilence(o.Silence), o.validateInputs())
}

// validateInputs reports an input that no device has or that stands there twice.
func (o Options) validateInputs() error {
	return analog.Check(o.Inputs, maxInputs, "ai", 0, lastAI, func(i Input) (_ analog.Wiring, err error) {
		i = i.withDefaults()
		if _, terminal := terminals[i.Terminal]; !terminal {
			err = fmt.Errorf("terminal %q: want differential, rse, nrse or default", i.Terminal)
		} else if !(i.Range > 0 && i.Range <= 100) {
			err = fmt.Errorf("range %v V: want up to 100, both ways", i.Range)
		}
		return analog.Wiring{Number: i.AI, Name: i.Name, Unit: i.Unit, PerVolt: i.PerVolt}, err
	})
}

// perRead is the scans that one read asks for.
func (o Options) perRead() int { return max(1, int(o.Interval.Seconds()*o.Rate)) }

// Inputs are the channels of the scan with the nominal scale and skew of a
// USB-6259; the device reports its own when it is opened.
func Inputs(o Options) instrument.Inputs {
	n := len(o.Inputs)
	skew := fastest + padding
	if skew*float64(n) > 1/o.Rate {
		skew = 1 / (o.Rate * float64(n))
	}
	in := instrument.Inputs{Timebase: timebase(o.Rate)}
	for k, raw := range o.Inputs {
		i := raw.withDefaults()
		c := linear([]float64{0, overRange * i.Range / halfScale}, i, o)
		c.Skew = measure.Seconds(float64(k) * skew)
		in.Channels = append(in.Channels, c)
	}
	return in
}

// timebase is that of a device's own clock: the sample clock's rate, not stamped.
func timebase(rate float64) measure.Timebase {
	return measure.Timebase{TickHz: measure.Hertz(rate), UTickHz: u50ppm, TicksPerScan: 1}
}

// channelName is a channel's name in the task. The bench's own names may hold
// characters that the driver refuses.
func channelName(k int) string { return fmt.Sprintf("wattmark%d", k) }

// setUp adds the inputs, sets clock and buffer, and reads back the result.
func (d *Device) setUp(ctx context.Context) (err error) {
	for k, raw := range d.opts.Inputs {
		i := raw.withDefaults()
		ask(ctx, &err, "input "+d.opts.physical(k), d.api.CreateAIVoltageChan, &nipb.CreateAIVoltageChanRequest{
			Task: d.task, PhysicalChannel: d.opts.physical(k), NameToAssignToChannel: channelName(k),
			TerminalConfigEnum: &nipb.CreateAIVoltageChanRequest_TerminalConfig{TerminalConfig: terminals[i.Terminal]},
			MinVal:             -i.Range, MaxVal: i.Range,
			UnitsEnum: &nipb.CreateAIVoltageChanRequest_Units{Units: nipb.VoltageUnits_VOLTAGE_UNITS_VOLTS},
		})
	}
	buffer := uint32(math.Ceil(d.opts.Buffer.Seconds() * d.opts.Rate))
	ask(ctx, &err, fmt.Sprintf("sample clock of %v", measure.Hertz(d.opts.Rate)), d.api.CfgSampClkTiming,
		&nipb.CfgSampClkTimingRequest{
			Task: d.task, Rate: d.opts.Rate, SampsPerChan: uint64(buffer),
			ActiveEdgeEnum: &nipb.CfgSampClkTimingRequest_ActiveEdge{ActiveEdge: nipb.Edge_EDGE_RISING},
			SampleModeEnum: &nipb.CfgSampClkTimingRequest_SampleMode{SampleMode: nipb.SampleMode_SAMPLE_MODE_CONTINUOUS},
		})
	ask(ctx, &err, fmt.Sprintf("buffer of %d samples", buffer), d.api.CfgInputBuffer,
		&nipb.CfgInputBufferRequest{Task: d.task, NumSampsPerChan: buffer})
	if err != nil {
		return err
	}
	// A full buffer must not stop the device: losses are counted instead.
	// Where that cannot be had, a loss costs a restart (see stream.restart).
	err = d.setRead(ctx, nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_OVERWRITE,
		int32(nipb.ReadInt32Value_READ_INT32_VALUE_OVERWRITE))
	if err != nil && driverCode(err) == 0 {
		return fmt.Errorf("overwrite mode: %w", err)
	}
	return d.readBack(ctx, buffer)
}

// readBack learns the rate, the skew and the scale that the device keeps.
func (d *Device) readBack(ctx context.Context, buffer uint32) (err error) {
	size := ask(ctx, &err, "size of the buffer", d.api.GetBufferAttributeUInt32, &nipb.GetBufferAttributeUInt32Request{
		Task: d.task, AttributeEnum: &nipb.GetBufferAttributeUInt32Request_Attribute{Attribute: inputBufferSize},
	}).GetValue()
	if err == nil && size < buffer {
		return fmt.Errorf("the driver's buffer holds %d scans, not %d: lower buffer", size, buffer)
	}
	rate := d.timing(ctx, &err, "rate of the sample clock",
		nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_SAMP_CLK_RATE)
	if err == nil && !(math.Abs(rate/d.opts.Rate-1) < 0.01) {
		return fmt.Errorf("the device samples at %v a second, not %v: set rate: %v", rate, d.opts.Rate, rate)
	}
	n, step := len(d.opts.Inputs), 0.0 // seconds between the conversions of two neighbours
	if !d.simultaneous && n > 1 {
		convert := d.timing(ctx, &err, "rate of the conversions",
			nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_AI_CONV_RATE)
		if err == nil && (!(convert*1.000001 >= rate*float64(n)) || math.IsInf(convert, 0)) {
			return fmt.Errorf("%v conversions a second cannot make %v scans of %d inputs", convert, rate, n)
		}
		step = 1 / convert
	}
	if err != nil {
		return err
	}
	in := instrument.Inputs{Timebase: timebase(rate)}
	for k, raw := range d.opts.Inputs {
		// The polynomial from codes to volts, which the device calibrates itself.
		r, err := call(ctx, callTime, d.api.GetChanAttributeDoubleArray, &nipb.GetChanAttributeDoubleArrayRequest{
			Task: d.task, Channel: channelName(k),
			AttributeEnum: &nipb.GetChanAttributeDoubleArrayRequest_Attribute{Attribute: scalingCoefficients},
		})
		if err == nil {
			err = checkScale(r.GetValue(), raw.withDefaults().Range)
		}
		if err != nil {
			return fmt.Errorf("scale of %s: %w", d.opts.physical(k), err)
		}
		channel := linear(r.GetValue(), raw.withDefaults(), d.opts)
		channel.Skew = measure.Seconds(float64(k) * step)
		in.Channels = append(in.Channels, channel)
	}
	d.In = in
	return d.checkWidth(ctx)
}

// checkWidth makes sure that raw samples are codes of 16 bits. A raw sample of the
// task is one input's to some, and a whole scan to others.
func (d *Device) checkWidth(ctx context.Context) (err error) {
	width := ask(ctx, &err, "width of a raw scan", d.api.GetReadAttributeUInt32, &nipb.GetReadAttributeUInt32Request{
		Task: d.task, AttributeEnum: &nipb.GetReadAttributeUInt32Request_Attribute{Attribute: rawDataWidth},
	}).GetValue()
	n := len(d.opts.Inputs)
	if err == nil && !knownWidth(int(width), n) {
		err = fmt.Errorf("%w: a raw sample of %s has %d bytes: this driver knows converters of 16 bits (%d bytes, "+
			"or %d for a scan of %s)", instrument.ErrIdentity, d.ID.Model, width, bytesCode, bytesCode*n,
			measure.Plural(n, "input"))
	}
	return err
}
