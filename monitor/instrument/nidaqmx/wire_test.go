package nidaqmx

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	niface "github.com/wattmark/wattmark/monitor/emulator/nidaqmx"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
	"github.com/wattmark/wattmark/monitor/instrument/series"
)

// w assembles a message by hand, from field numbers and wire types alone.
type w []byte

func (b w) str(n protowire.Number, s string) w {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

// num is any varint; a negative int32 or enum is sign-extended to ten bytes.
func (b w) num(n protowire.Number, v int64) w {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

func (b w) dbl(n protowire.Number, v float64) w {
	return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), math.Float64bits(v))
}

func (b w) packed(n protowire.Number, v ...float64) w {
	var p []byte
	for _, x := range v {
		p = protowire.AppendFixed64(p, math.Float64bits(x))
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), p)
}

// task is field 1 of nearly every request: a Session whose name is field 1.
func task() w { return w{}.str(1, string(w{}.str(1, "wattmark"))) }

var session = &nipb.Session{Name: "wattmark"}

// Field numbers and values as NI's server has them, in both arms of every enum.
func TestBytesOfTheMessages(t *testing.T) {
	raw := &nipb.CreateAIVoltageChanRequest{
		Task: session, PhysicalChannel: "Dev1/ai0", NameToAssignToChannel: "v", MinVal: -10, MaxVal: 10,
		CustomScaleName:    "s",
		TerminalConfigEnum: &nipb.CreateAIVoltageChanRequest_TerminalConfigRaw{TerminalConfigRaw: -1},
		UnitsEnum:          &nipb.CreateAIVoltageChanRequest_UnitsRaw{UnitsRaw: 10348},
	}
	known := proto.CloneOf(raw)
	known.TerminalConfigEnum = &nipb.CreateAIVoltageChanRequest_TerminalConfig{TerminalConfig: nipb.TerminalConfig_TERMINAL_CONFIG_DIFFERENTIAL}
	known.UnitsEnum = &nipb.CreateAIVoltageChanRequest_Units{Units: nipb.VoltageUnits_VOLTAGE_UNITS_VOLTS}
	chan1 := func() w { return task().str(2, "Dev1/ai0").str(3, "v") }
	for name, c := range map[string]struct {
		message proto.Message
		want    w
	}{
		"CreateTask": {
			&nipb.CreateTaskRequest{
				SessionName:            "wattmark",
				InitializationBehavior: nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_ATTACH_TO_EXISTING,
			},
			w{}.str(1, "wattmark").num(2, 2),
		},
		"task made": {
			&nipb.CreateTaskResponse{Task: session, NewSessionInitialized: true},
			w{}.str(2, string(w{}.str(1, "wattmark"))).num(3, 1),
		},
		"channel, raw arms":   {raw, chan1().dbl(6, -10).dbl(7, 10).str(10, "s").num(5, -1).num(9, 10348)},
		"channel, known arms": {known, chan1().dbl(6, -10).dbl(7, 10).str(10, "s").num(4, 10106).num(8, 10348)},
		"clock, known arms": {
			&nipb.CfgSampClkTimingRequest{
				Task: session, Source: "PFI0", Rate: 1e5, SampsPerChan: 1 << 40,
				ActiveEdgeEnum: &nipb.CfgSampClkTimingRequest_ActiveEdge{ActiveEdge: nipb.Edge_EDGE_RISING},
				SampleModeEnum: &nipb.CfgSampClkTimingRequest_SampleMode{SampleMode: nipb.SampleMode_SAMPLE_MODE_CONTINUOUS},
			},
			task().str(2, "PFI0").dbl(3, 1e5).num(8, 1<<40).num(4, 10280).num(6, 10123),
		},
		"clock, raw arms": {
			&nipb.CfgSampClkTimingRequest{
				Task: session, Rate: 1,
				ActiveEdgeEnum: &nipb.CfgSampClkTimingRequest_ActiveEdgeRaw{ActiveEdgeRaw: 10280},
				SampleModeEnum: &nipb.CfgSampClkTimingRequest_SampleModeRaw{SampleModeRaw: 10178},
			},
			task().dbl(3, 1).num(5, 10280).num(7, 10178),
		},
		"buffer": {&nipb.CfgInputBufferRequest{Task: session, NumSampsPerChan: 1000}, task().num(2, 1000)},
		"start":  {&nipb.StartTaskRequest{Task: session}, task()},
		"stop":   {&nipb.StopTaskRequest{Task: session}, task()},
		"clear":  {&nipb.ClearTaskRequest{Task: session}, task()},
		"inputs": {
			&nipb.GetTaskAttributeUInt32Request{Task: session, AttributeEnum: &nipb.GetTaskAttributeUInt32Request_Attribute{
				Attribute: nipb.TaskUInt32Attribute_TASK_U_INT32_ATTRIBUTE_NUM_CHANS,
			}},
			task().num(2, 8577),
		},
		"text":     {&nipb.GetErrorStringRequest{ErrorCode: -200220}, w{}.num(1, -200220)},
		"the text": {&nipb.GetErrorStringResponse{ErrorString: "invalid"}, w{}.str(2, "invalid")},
		"started":  {&nipb.StartTaskResponse{Status: -200284}, w{}.num(1, -200284)},
		"read raw": {
			&nipb.ReadRawRequest{Task: session, NumSampsPerChan: -1, Timeout: 0.5, ArraySizeInBytes: 12},
			task().num(2, -1).dbl(3, 0.5).num(4, 12),
		},
		"raw samples": {
			&nipb.ReadRawResponse{Status: -200284, ReadArray: []byte{1, 2, 3}, SampsRead: 5, NumBytesPerSamp: 2},
			w{}.num(1, -200284).str(2, "\x01\x02\x03").num(3, 5).num(4, 2),
		},
		"read volts": {
			&nipb.ReadAnalogF64Request{
				Task: session, NumSampsPerChan: 9, Timeout: 1,
				FillModeEnum:     &nipb.ReadAnalogF64Request_FillMode{FillMode: nipb.FillMode_FILL_MODE_GROUP_BY_SCAN},
				ArraySizeInSamps: 18,
			},
			task().num(2, 9).dbl(3, 1).num(6, 18).num(4, 1),
		},
		"read codes, arm of zero": {
			&nipb.ReadBinaryI16Request{
				Task: session, NumSampsPerChan: 9, Timeout: 1,
				FillModeEnum: &nipb.ReadBinaryI16Request_FillModeRaw{}, ArraySizeInSamps: 18,
			},
			task().num(2, 9).dbl(3, 1).num(6, 18).num(5, 0),
		},
		"volts": {
			&nipb.ReadAnalogF64Response{ReadArray: []float64{1.5, -2}, SampsPerChanRead: 1},
			w{}.packed(2, 1.5, -2).num(3, 1),
		},
		"codes": {
			&nipb.ReadBinaryI16Response{ReadArray: []int32{-1}, SampsPerChanRead: 1},
			w{}.str(2, string(protowire.AppendVarint(nil, math.MaxUint64))).num(3, 1),
		},
		"conversion rate": {
			&nipb.GetTimingAttributeDoubleRequest{
				Task:          session,
				AttributeEnum: &nipb.GetTimingAttributeDoubleRequest_Attribute{Attribute: nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_AI_CONV_RATE},
			},
			task().num(2, 6216),
		},
		"sample rate, raw": {
			&nipb.GetTimingAttributeDoubleRequest{
				Task:          session,
				AttributeEnum: &nipb.GetTimingAttributeDoubleRequest_AttributeRaw{AttributeRaw: 4932},
			},
			task().num(3, 4932),
		},
		"a number": {&nipb.GetTimingAttributeDoubleResponse{Value: 1e5}, w{}.dbl(2, 1e5)},
		"waiting": {
			&nipb.GetReadAttributeUInt32Request{
				Task:          session,
				AttributeEnum: &nipb.GetReadAttributeUInt32Request_Attribute{Attribute: nipb.ReadUInt32Attribute_READ_U_INT32_ATTRIBUTE_AVAIL_SAMP_PER_CHAN},
			},
			task().num(2, 4643),
		},
		"total": {
			&nipb.GetReadAttributeUInt64Request{
				Task:          session,
				AttributeEnum: &nipb.GetReadAttributeUInt64Request_Attribute{Attribute: nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_TOTAL_SAMP_PER_CHAN_ACQUIRED},
			},
			task().num(2, 6442),
		},
		"position": {
			&nipb.GetReadAttributeUInt64Request{
				Task:          session,
				AttributeEnum: &nipb.GetReadAttributeUInt64Request_Attribute{Attribute: nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_CURR_READ_POS},
			},
			task().num(2, 4641),
		},
		"offset": {
			&nipb.SetReadAttributeInt32Request{
				Task:          session,
				AttributeEnum: &nipb.SetReadAttributeInt32Request_Attribute{Attribute: nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_OFFSET},
				ValueEnum:     &nipb.SetReadAttributeInt32Request_ValueRaw{ValueRaw: -5000},
			},
			task().num(2, 6411).num(5, -5000),
		},
		"relative to": {
			&nipb.SetReadAttributeInt32Request{
				Task:          session,
				AttributeEnum: &nipb.SetReadAttributeInt32Request_AttributeRaw{AttributeRaw: 6410},
				ValueEnum:     &nipb.SetReadAttributeInt32Request_Value{Value: nipb.ReadInt32Value_READ_INT32_VALUE_MOST_RECENT_SAMP},
			},
			task().num(3, 6410).num(4, 10428),
		},
		"scale": {
			&nipb.GetChanAttributeDoubleArrayRequest{
				Task: session, Channel: "v",
				AttributeEnum: &nipb.GetChanAttributeDoubleArrayRequest_Attribute{Attribute: nipb.ChannelDoubleArrayAttribute_CHANNEL_DOUBLE_ARRAY_ATTRIBUTE_AI_DEV_SCALING_COEFF},
			},
			task().str(2, "v").num(3, 6448),
		},
		"scale, raw": {
			&nipb.GetChanAttributeDoubleArrayRequest{
				Task:          session,
				AttributeEnum: &nipb.GetChanAttributeDoubleArrayRequest_AttributeRaw{AttributeRaw: 6448},
			},
			task().num(4, 6448),
		},
		"coefficients": {&nipb.GetChanAttributeDoubleArrayResponse{Value: []float64{0, 3e-4}}, w{}.packed(2, 0, 3e-4)},
		"buffer size": {
			&nipb.GetBufferAttributeUInt32Request{
				Task:          session,
				AttributeEnum: &nipb.GetBufferAttributeUInt32Request_Attribute{Attribute: nipb.BufferUInt32Attribute_BUFFER_U_INT32_ATTRIBUTE_INPUT_BUF_SIZE},
			},
			task().num(2, 6252),
		},
		"all at once": {
			&nipb.GetDeviceAttributeBoolRequest{
				DeviceName:    "Dev1",
				AttributeEnum: &nipb.GetDeviceAttributeBoolRequest_Attribute{Attribute: nipb.DeviceBoolAttribute_DEVICE_BOOL_ATTRIBUTE_AI_SIMULTANEOUS_SAMPLING_SUPPORTED},
			},
			w{}.str(1, "Dev1").num(2, 10639),
		},
		"serial": {
			&nipb.GetDeviceAttributeUInt32Request{
				DeviceName:    "Dev1",
				AttributeEnum: &nipb.GetDeviceAttributeUInt32Request_AttributeRaw{AttributeRaw: 1586},
			},
			w{}.str(1, "Dev1").num(3, 1586),
		},
		"driver": {
			&nipb.GetSystemInfoAttributeUInt32Request{AttributeEnum: &nipb.GetSystemInfoAttributeUInt32Request_Attribute{Attribute: nipb.SystemUInt32Attribute_SYSTEM_U_INT32_ATTRIBUTE_NIDAQ_MAJOR_VERSION}},
			w{}.num(1, 4722),
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The order of fields on the wire is the writer's choice: read by hand what
			// was written, and hold it against the bytes made by hand.
			got, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.message)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := fields(t, got), fields(t, c.want); !bytes.Equal(a, b) {
				t.Errorf("% x\nwant % x", got, []byte(c.want))
			}
			back := c.message.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(c.want, back); err != nil || !proto.Equal(back, c.message) {
				t.Errorf("read %v, want %v (%v)", back, c.message, err)
			}
			// What a newer server adds is kept.
			more := c.want.str(99, "new").num(1000, -7)
			if err := proto.Unmarshal(more, back); err != nil {
				t.Fatal(err)
			}
			if again, err := proto.Marshal(back); err != nil || !bytes.Equal(fields(t, again), fields(t, more)) {
				t.Errorf("% x, want % x (%v)", again, []byte(more), err)
			}
		})
	}
}

// fields sorts a message's fields by number.
func fields(t *testing.T, b []byte) (out []byte) {
	t.Helper()
	by := map[protowire.Number][]byte{}
	for len(b) > 0 {
		n, _, size := protowire.ConsumeField(b)
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		by[n], b = append(by[n], b[:size]...), b[size:]
	}
	for n := range protowire.Number(1001) {
		out = append(out, by[n]...)
	}
	return out
}

// A negative int32 takes ten bytes, as NI's server writes it.
func TestNegativeStatusOnTheWire(t *testing.T) {
	got, err := proto.Marshal(&nipb.ReadRawResponse{Status: -200284})
	want := []byte{0x08, 0xa4, 0xe3, 0xf3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("% x, want % x (%v)", got, want, err)
	}
}

// The size that NI's server was seen to need for 6000 samples.
func TestWireCostOfRawSamples(t *testing.T) {
	n := proto.Size(&nipb.ReadRawResponse{ReadArray: make([]byte, 12_000), SampsRead: 1000, NumBytesPerSamp: 2})
	if n != 12_008 {
		t.Errorf("%d bytes, want 12008", n)
	}
}

// Methods are found under NI's name.
func TestNameOfTheService(t *testing.T) {
	if n := nipb.NiDAQmx_ReadRaw_FullMethodName; n != "/nidaqmx_grpc.NiDAQmx/ReadRaw" {
		t.Error(n)
	}
}

func TestReplies(t *testing.T) {
	room := make([]byte, 1000)
	for name, c := range map[string]struct {
		reply *nipb.ReadRawResponse
		bytes int
		err   string
	}{
		"whole": {
			&nipb.ReadRawResponse{ReadArray: room, SampsRead: 100, NumBytesPerSamp: 2}, 600,
			"",
		},
		"a sample is a scan": {
			&nipb.ReadRawResponse{ReadArray: room, SampsRead: 100, NumBytesPerSamp: 6}, 600,
			"",
		},
		"half of them": {&nipb.ReadRawResponse{
			Status: notYetAvailable, ReadArray: room, SampsRead: 50,
			NumBytesPerSamp: 2,
		}, 300, ""},
		"none, width unknown": {&nipb.ReadRawResponse{Status: notYetAvailable, ReadArray: room}, 0, ""},
		"more than asked for": {
			&nipb.ReadRawResponse{ReadArray: room, SampsRead: 101, NumBytesPerSamp: 2}, 0,
			"101 samples where 100",
		},
		"less than none": {
			&nipb.ReadRawResponse{ReadArray: room, SampsRead: -1, NumBytesPerSamp: 2}, 0,
			"-1 samples",
		},
		"fewer bytes than samples": {
			&nipb.ReadRawResponse{ReadArray: room[:599], SampsRead: 100, NumBytesPerSamp: 2},
			0, "599 bytes for 100 scans",
		},
		"a converter of 24 bits": {
			&nipb.ReadRawResponse{ReadArray: room, SampsRead: 100, NumBytesPerSamp: 4}, 0,
			"16 bits",
		},
		"a width that is impossible": {
			&nipb.ReadRawResponse{ReadArray: room, SampsRead: 100, NumBytesPerSamp: -2}, 0,
			"16 bits",
		},
	} {
		b, err := samples(c.reply, 100, 3)
		if len(b) != c.bytes || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// Whatever a server sends, no sample is made that was not there.
func FuzzReply(f *testing.F) {
	whole, _ := proto.Marshal(&nipb.ReadRawResponse{ReadArray: make([]byte, 64), SampsRead: 8, NumBytesPerSamp: 2})
	f.Add(whole, 8, uint8(4))
	f.Add([]byte{0x08, 0xa4, 0xe3, 0xf3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x18, 0x05}, 100, uint8(1))
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0x7f}, 1, uint8(80))
	f.Fuzz(func(t *testing.T, data []byte, asked int, inputs uint8) {
		r := &nipb.ReadRawResponse{}
		n := max(1, int(inputs)%(maxInputs+1))
		if asked < 0 || asked > maxScans || proto.Unmarshal(data, r) != nil {
			return
		}
		b, err := samples(r, asked, n)
		if err != nil {
			return
		}
		seen := 0
		if err := analog.Scans(b, make([]measure.Count, n),
			func([]measure.Count) error { seen++; return nil }); err != nil {
			t.Fatal(err)
		}
		if seen > asked || seen != int(r.GetSampsRead()) || seen*n*bytesCode > len(data) {
			t.Fatalf("%d scans of %d inputs from %d bytes, %d asked for", seen, n, len(data), asked)
		}
	})
}

// A channel is the polynomial's straight part; the rest is in its uncertainty.
func TestScale(t *testing.T) {
	o := Defaults()
	o.UOffset = 0
	c := []float64{0.01, 3.2e-4, 1e-13, -2e-18}
	ch := linear(c, Input{Name: "i", Unit: "A", PerVolt: -10, Range: 5}, o)
	if ch.Gain != -3.2e-3 || ch.Offset != -0.1 || ch.Unit != measure.UnitAmpere || ch.MinCount != -32768 ||
		ch.MaxCount != 32767 {
		t.Errorf("%+v", ch)
	}
	worst := 0.0
	for x := -32768.0; x <= 32767; x++ {
		if line := c[0] + c[1]*x; math.Abs(line) <= 3.2e-4*32768/1.05 {
			worst = max(worst, 10*math.Abs(c[2]*x*x+c[3]*x*x*x))
		}
	}
	want := math.Hypot(10*offFloor, worst/math.Sqrt(3))
	if worst < 1e-4 || math.Abs(ch.UOffset/want-1) > 0.02 {
		t.Errorf("u_offset %v, want %v; the bend is %v A", ch.UOffset, want, worst)
	}
	if err := ch.Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range [][]float64{nil, {1}, {0, 0}, {0, math.NaN()}, {math.Inf(1), 1}, make([]float64, 17)} {
		if checkScale(bad, 1) == nil {
			t.Errorf("%v taken", bad)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"device":           func(o *Options) { o.Device = "Dev1/ai0" },
		"serial":           func(o *Options) { o.Serial = "0x12" },
		"inputs":           func(o *Options) { o.Inputs = nil },
		"rate":             func(o *Options) { o.Rate = math.NaN() },
		"1e+07":            func(o *Options) { o.Rate = 6e6 },
		"interval":         func(o *Options) { o.Interval = time.Millisecond },
		"buffer":           func(o *Options) { o.Buffer = 3 * o.Interval },
		"session":          func(o *Options) { o.Session = "" },
		"u_gain":           func(o *Options) { o.UGain = -1 },
		"silence":          func(o *Options) { o.Silence = 0 },
		"inputs[1].ai":     func(o *Options) { o.Inputs[1].AI = 0 },
		"inputs[0].ai":     func(o *Options) { o.Inputs[0].AI = 1000 },
		"there is one":     func(o *Options) { o.Inputs[1].Name = o.Inputs[0].Name },
		"unit":             func(o *Options) { o.Inputs[0].Unit = "K" },
		"terminal":         func(o *Options) { o.Inputs[0].Terminal = "diff" },
		"per_volt":         func(o *Options) { o.Inputs[0].PerVolt = math.Inf(1) },
		"inputs[0].range ": func(o *Options) { o.Inputs[0].Range = -1 },
	} {
		o := Defaults()
		change(&o)
		if _, err := New("tcp:h:1", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// perBench is a read of 0.1 s at 1.25 million samples a second of six inputs.
const perBench, benchInputs = 20_833, 6

// BenchmarkDecode turns replies of ReadRaw into counts of blocks.
func BenchmarkDecode(b *testing.B) {
	reply := &nipb.ReadRawResponse{
		ReadArray: make([]byte, perBench*benchInputs*bytesCode), SampsRead: perBench,
		NumBytesPerSamp: bytesCode,
	}
	for i := range perBench * benchInputs {
		binary.LittleEndian.PutUint16(reply.ReadArray[2*i:], uint16(i))
	}
	s := benchStream(benchInputs)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		raw, err := samples(reply, perBench, benchInputs)
		if err == nil {
			err = s.take(raw, s.due())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*perBench*benchInputs/b.Elapsed().Seconds(), "samples/s")
}

func TestNoAllocationPerSample(t *testing.T) {
	reply := &nipb.ReadRawResponse{
		ReadArray: make([]byte, 1000*benchInputs*bytesCode), SampsRead: 1000,
		NumBytesPerSamp: bytesCode,
	}
	s := benchStream(benchInputs)
	allocs := testing.AllocsPerRun(100, func() {
		raw, err := samples(reply, 1000, benchInputs)
		if err == nil {
			err = s.take(raw, s.due())
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations in a read of 1000 scans", allocs)
	}
}

// A supply that droops, a load that ripples at 20 kHz, and one converter for both
// inputs at 100 kS/s: reading current and voltage half a scan apart makes an error
// of the power, of which at most a tenth is left once the skew is corrected.
func TestSkewOfAMultiplexerIsCorrected(t *testing.T) {
	r := &rig{opts: Defaults()}
	var err error
	r.board, err = board.New(board.Config{
		Seed: 3, Rails: []board.RailConfig{{
			Name: "aux_12v_1", Role: measure.RolePSU, Open: 12.15, Source: 0.25,
			Share: 1,
		}},
		Levels: board.Levels{ActiveIdle: 90}, Drift: -1,
		Ripple: board.Ripple{RMS: 20, Low: 19.99e3, High: 20.01e3, Lines: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.board.SetLoad(0, load.ActiveIdle); err != nil {
		t.Fatal(err)
	}
	if r.face, err = niface.New(r.board, pace.Pace{},
		niface.Config{Noise: -1, Rails: []string{"aux_12v_1"}}); err != nil {
		t.Fatal(err)
	}
	r.opts.Inputs = []Input{
		{AI: 0, Name: "aux_12v_1.voltage", PerVolt: meter.Divider, Terminal: "differential"},
		{AI: 1, Name: "aux_12v_1.current", Unit: "A", PerVolt: meter.PerVolt, Range: 5},
	}
	r.opts.Rate, r.opts.Buffer = 100e3, 2*time.Second
	r.plug(t, "127.0.0.1:0")
	r.make(t)
	r.open(t)
	out, err := r.stream(t, 60_000, nil)
	if err != nil || out.Lost() > 0 {
		t.Fatal(err, out.Lost())
	}
	in := r.dev.Inputs()
	setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
	setup.Rails, _ = instrument.NaturalRails(in)
	lag := setup.Channels[1].Skew - setup.Channels[0].Skew
	if math.Abs(float64(lag)-5e-6) > 1e-9 {
		t.Fatalf("the channels are %v apart, want half a scan", lag)
	}
	const from, to = 0.1, 0.5
	energy := func(s *measure.Setup) float64 {
		g, err := measure.NewIntegrator(s, from, to)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Add(&measure.Block{Counts: [][]measure.Count{out.Counts(0), out.Counts(1)}}); err != nil {
			t.Fatal(err)
		}
		res, err := g.Result(measure.Edges{})
		if err != nil {
			t.Fatal(err)
		}
		return float64(res.Total.Energy)
	}
	start := r.face.StreamStart()
	truth, err := r.board.Energy(start+measure.Seconds(from).Duration(), start+measure.Seconds(to).Duration())
	if err != nil {
		t.Fatal(err)
	}
	after := energy(&setup) - float64(truth.Total)
	setup.Channels[0].Skew, setup.Channels[1].Skew = 0, 0
	before := energy(&setup) - float64(truth.Total)
	t.Logf("off by %.4g J of %v before the correction, %.4g J after", before, truth.Total, after)
	if math.Abs(before) < 1e-3*float64(truth.Total) {
		t.Fatal("there is nothing to correct")
	}
	if math.Abs(after) > math.Abs(before)/10 {
		t.Error("more than a tenth is left")
	}
}

// discard is a sink that keeps nothing.
type discard struct{}

func (discard) Block(*measure.Block) error { return nil }
func (discard) Event(measure.Event) error  { return nil }

// benchStream is a stream that delivers to nobody.
func benchStream(inputs int) *stream {
	o := Defaults()
	o.Inputs = make([]Input, inputs)
	o.Rate = 1.25e6 / float64(inputs)
	s := &stream{
		d: &Device{opts: o}, counts: make([]measure.Count, inputs), asked: o.perRead(),
		rate: series.Rate{Nominal: o.Rate},
	}
	in := instrument.Inputs{Timebase: timebase(o.Rate), Channels: make([]measure.Channel, inputs)}
	s.out = series.New(in, maxBlock,
		instrument.SinkOf(discard{}))
	return s
}

// canned answers every read with the same samples at once, so that what is
// measured is the line and not an emulated converter.
type canned struct {
	nipb.UnimplementedNiDAQmxServer
	reply nipb.ReadRawResponse
	pos   uint64
}

func (c *canned) ReadRaw(context.Context, *nipb.ReadRawRequest) (*nipb.ReadRawResponse, error) {
	c.pos += uint64(c.reply.SampsRead)
	return &c.reply, nil
}

func (c *canned) GetReadAttributeUInt64(context.Context,
	*nipb.GetReadAttributeUInt64Request,
) (*nipb.GetReadAttributeUInt64Response, error) {
	return &nipb.GetReadAttributeUInt64Response{Value: c.pos}, nil
}

// BenchmarkDecodeThroughGRPC reads a tenth of a second of 1.25 million samples a
// second at a time through a real socket, both ends in this process. core-% is
// the share of one core that client and server together take at that rate.
func BenchmarkDecodeThroughGRPC(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	c := &canned{}
	c.reply.ReadArray = make([]byte, perBench*benchInputs*bytesCode)
	for i := range c.reply.ReadArray {
		c.reply.ReadArray[i] = byte(rand.Uint32())
	}
	c.reply.SampsRead, c.reply.NumBytesPerSamp = perBench, bytesCode
	server := grpc.NewServer()
	nipb.RegisterNiDAQmxServer(server, c)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	s := benchStream(benchInputs)
	s.d.api, s.d.task = nipb.NewNiDAQmxClient(conn), session
	if err := s.read(b.Context()); err != nil { // connects
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	busy := processTime(b)
	b.ResetTimer()
	for b.Loop() {
		if err := s.read(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	busy = processTime(b) - busy
	runtime.ReadMemStats(&after)
	total := float64(b.N) * perBench * benchInputs
	b.ReportMetric(total/b.Elapsed().Seconds(), "samples/s")
	b.ReportMetric(100*busy.Seconds()/total*1.25e6, "core-%-at-1.25MS/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/total, "allocs/sample")
}

// processTime is the processor time of this process.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	t, err := cpuTime()
	if err != nil {
		b.Skip("no processor times on this system: ", err)
	}
	return t
}
