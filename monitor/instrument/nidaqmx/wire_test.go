package nidaqmx

import (
	"bytes"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"wattmark/monitor/instrument/nidaqmx/nipb"
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
		Task: session, PhysicalChannel: "Dev1/ai0", NameToAssignToChannel: "v", MinVal: -10, MaxVal: 10, CustomScaleName: "s",
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
			&nipb.CreateTaskRequest{SessionName: "wattmark", InitializationBehavior: nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_ATTACH_TO_EXISTING},
			w{}.str(1, "wattmark").num(2, 2),
		},
		"task made":           {&nipb.CreateTaskResponse{Task: session, NewSessionInitialized: true}, w{}.str(2, string(w{}.str(1, "wattmark"))).num(3, 1)},
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
		"buffer":   {&nipb.CfgInputBufferRequest{Task: session, NumSampsPerChan: 1000}, task().num(2, 1000)},
		"start":    {&nipb.StartTaskRequest{Task: session}, task()},
		"stop":     {&nipb.StopTaskRequest{Task: session}, task()},
		"clear":    {&nipb.ClearTaskRequest{Task: session}, task()},
		"started":  {&nipb.StartTaskResponse{Status: -200284}, w{}.num(1, -200284)},
		"read raw": {&nipb.ReadRawRequest{Task: session, NumSampsPerChan: -1, Timeout: 0.5, ArraySizeInBytes: 12}, task().num(2, -1).dbl(3, 0.5).num(4, 12)},
		"raw samples": {
			&nipb.ReadRawResponse{Status: -200284, ReadArray: []byte{1, 2, 3}, SampsRead: 5, NumBytesPerSamp: 2},
			w{}.num(1, -200284).str(2, "\x01\x02\x03").num(3, 5).num(4, 2),
		},
		"read volts": {
			&nipb.ReadAnalogF64Request{Task: session, NumSampsPerChan: 9, Timeout: 1, FillModeEnum: &nipb.ReadAnalogF64Request_FillMode{FillMode: nipb.FillMode_FILL_MODE_GROUP_BY_SCAN}, ArraySizeInSamps: 18},
			task().num(2, 9).dbl(3, 1).num(6, 18).num(4, 1),
		},
		"read codes, arm of zero": {
			&nipb.ReadBinaryI16Request{Task: session, NumSampsPerChan: 9, Timeout: 1, FillModeEnum: &nipb.ReadBinaryI16Request_FillModeRaw{}, ArraySizeInSamps: 18},
			task().num(2, 9).dbl(3, 1).num(6, 18).num(5, 0),
		},
		"volts": {&nipb.ReadAnalogF64Response{ReadArray: []float64{1.5, -2}, SampsPerChanRead: 1}, w{}.packed(2, 1.5, -2).num(3, 1)},
		"codes": {
			&nipb.ReadBinaryI16Response{ReadArray: []int32{-1}, SampsPerChanRead: 1},
			w{}.str(2, string(protowire.AppendVarint(nil, math.MaxUint64))).num(3, 1),
		},
		"conversion rate": {
			&nipb.GetTimingAttributeDoubleRequest{Task: session, AttributeEnum: &nipb.GetTimingAttributeDoubleRequest_Attribute{Attribute: nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_AI_CONV_RATE}},
			task().num(2, 6216),
		},
		"sample rate, raw": {
			&nipb.GetTimingAttributeDoubleRequest{Task: session, AttributeEnum: &nipb.GetTimingAttributeDoubleRequest_AttributeRaw{AttributeRaw: 4932}},
			task().num(3, 4932),
		},
		"a number": {&nipb.GetTimingAttributeDoubleResponse{Value: 1e5}, w{}.dbl(2, 1e5)},
		"waiting": {
			&nipb.GetReadAttributeUInt32Request{Task: session, AttributeEnum: &nipb.GetReadAttributeUInt32Request_Attribute{Attribute: nipb.ReadUInt32Attribute_READ_U_INT32_ATTRIBUTE_AVAIL_SAMP_PER_CHAN}},
			task().num(2, 4643),
		},
		"total": {
			&nipb.GetReadAttributeUInt64Request{Task: session, AttributeEnum: &nipb.GetReadAttributeUInt64Request_Attribute{Attribute: nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_TOTAL_SAMP_PER_CHAN_ACQUIRED}},
			task().num(2, 6442),
		},
		"position": {
			&nipb.GetReadAttributeUInt64Request{Task: session, AttributeEnum: &nipb.GetReadAttributeUInt64Request_Attribute{Attribute: nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_CURR_READ_POS}},
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
			&nipb.GetChanAttributeDoubleArrayRequest{Task: session, Channel: "v", AttributeEnum: &nipb.GetChanAttributeDoubleArrayRequest_Attribute{Attribute: nipb.ChannelDoubleArrayAttribute_CHANNEL_DOUBLE_ARRAY_ATTRIBUTE_AI_DEV_SCALING_COEFF}},
			task().str(2, "v").num(3, 6448),
		},
		"scale, raw": {
			&nipb.GetChanAttributeDoubleArrayRequest{Task: session, AttributeEnum: &nipb.GetChanAttributeDoubleArrayRequest_AttributeRaw{AttributeRaw: 6448}},
			task().num(4, 6448),
		},
		"coefficients": {&nipb.GetChanAttributeDoubleArrayResponse{Value: []float64{0, 3e-4}}, w{}.packed(2, 0, 3e-4)},
		"buffer size": {
			&nipb.GetBufferAttributeUInt32Request{Task: session, AttributeEnum: &nipb.GetBufferAttributeUInt32Request_Attribute{Attribute: nipb.BufferUInt32Attribute_BUFFER_U_INT32_ATTRIBUTE_INPUT_BUF_SIZE}},
			task().num(2, 6252),
		},
		"all at once": {
			&nipb.GetDeviceAttributeBoolRequest{DeviceName: "Dev1", AttributeEnum: &nipb.GetDeviceAttributeBoolRequest_Attribute{Attribute: nipb.DeviceBoolAttribute_DEVICE_BOOL_ATTRIBUTE_AI_SIMULTANEOUS_SAMPLING_SUPPORTED}},
			w{}.str(1, "Dev1").num(2, 10639),
		},
		"serial": {
			&nipb.GetDeviceAttributeUInt32Request{DeviceName: "Dev1", AttributeEnum: &nipb.GetDeviceAttributeUInt32Request_AttributeRaw{AttributeRaw: 1586}},
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
