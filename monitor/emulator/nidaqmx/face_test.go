package nidaqmx

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// serve puts a face on a TCP port of this machine.
func serve(t *testing.T, p pace.Pace, cfg Config) (*Face, string) {
	t.Helper()
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(b, p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f, l.Addr().String()
}

func dial(t *testing.T, address string) nipb.NiDAQmxClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return nipb.NewNiDAQmxClient(conn)
}

// ready makes a task of two inputs.
func ready(t *testing.T, c nipb.NiDAQmxClient, rate float64, mode nipb.SampleMode, n uint64) *nipb.Session {
	t.Helper()
	made, err := c.CreateTask(t.Context(), &nipb.CreateTaskRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s := made.GetTask()
	for _, ai := range []string{"Dev1/ai0", "Dev1/ai1"} {
		// The arms that the driver does not use.
		_, err := c.CreateAIVoltageChan(t.Context(), &nipb.CreateAIVoltageChanRequest{
			Task: s, PhysicalChannel: ai, MinVal: -10, MaxVal: 10,
			TerminalConfigEnum: &nipb.CreateAIVoltageChanRequest_TerminalConfigRaw{TerminalConfigRaw: 10083},
			UnitsEnum:          &nipb.CreateAIVoltageChanRequest_UnitsRaw{UnitsRaw: 10348},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.CfgSampClkTiming(t.Context(), &nipb.CfgSampClkTimingRequest{
		Task: s, Rate: rate, SampsPerChan: n,
		ActiveEdgeEnum: &nipb.CfgSampClkTimingRequest_ActiveEdgeRaw{ActiveEdgeRaw: 10280},
		SampleModeEnum: &nipb.CfgSampClkTimingRequest_SampleModeRaw{SampleModeRaw: int32(mode)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const continuous, finite = nipb.SampleMode_SAMPLE_MODE_CONTINUOUS, nipb.SampleMode_SAMPLE_MODE_FINITE

func TestSessions(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	const (
		either = nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_UNSPECIFIED
		fresh  = nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_INITIALIZE_NEW
		attach = nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_ATTACH_TO_EXISTING
	)
	for i, step := range []struct {
		name string
		how  nipb.SessionInitializationBehavior
		code codes.Code
		made bool
	}{
		{"a", attach, codes.FailedPrecondition, false},
		{"a", fresh, codes.OK, true},
		{"a", fresh, codes.AlreadyExists, false},
		{"a", attach, codes.OK, false},
		{"a", either, codes.OK, false},
		{"b", either, codes.OK, true},
		{"", either, codes.OK, true},
		{"", fresh, codes.OK, true},
		{"", attach, codes.FailedPrecondition, false},
	} {
		// Each over a connection of its own: sessions belong to the server.
		r, err := dial(t, at).CreateTask(t.Context(),
			&nipb.CreateTaskRequest{SessionName: step.name, InitializationBehavior: step.how})
		if status.Code(err) != step.code || r.GetNewSessionInitialized() != step.made {
			t.Errorf("step %d: %v, %v", i, r, err)
		}
		if name := r.GetTask().GetName(); err == nil && (name == "" || step.name != "" && name != step.name) {
			t.Errorf("step %d: called %q", i, name)
		}
	}
}

// One task at a time has the device.
func TestTheDeviceIsReserved(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	c := dial(t, at)
	one, two := ready(t, c, 1000, continuous, 1000), ready(t, c, 1000, continuous, 1000)
	if _, err := c.StartTask(t.Context(), &nipb.StartTaskRequest{Task: one}); err != nil {
		t.Fatal(err)
	}
	var trailer metadata.MD
	_, err := c.StartTask(t.Context(), &nipb.StartTaskRequest{Task: two}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.Unknown || trailer.Get("ni-error")[0] != "-50103" {
		t.Errorf("%v, %v", err, trailer)
	}
	if _, err := c.ClearTask(t.Context(), &nipb.ClearTaskRequest{Task: one}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartTask(t.Context(), &nipb.StartTaskRequest{Task: two}); err != nil {
		t.Error(err)
	}
}

func TestRailsThatAreNotThere(t *testing.T) {
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rails := range [][]string{{"none"}, make([]string, 17)} {
		if _, err := New(b, pace.Pace{}, Config{Rails: rails}); err == nil {
			t.Errorf("%q taken", rails)
		}
	}
}

// An enum with neither arm is refused before anything else is looked at.
func TestUnsetArms(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	c, ctx := dial(t, at), t.Context()
	refusedBy := func(what string, call func() error) {
		t.Helper()
		if err := call(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	units := &nipb.CreateAIVoltageChanRequest_Units{Units: nipb.VoltageUnits_VOLTAGE_UNITS_VOLTS}
	config := &nipb.CreateAIVoltageChanRequest_TerminalConfigRaw{TerminalConfigRaw: -1}
	refusedBy("terminal", func() error {
		_, err := c.CreateAIVoltageChan(ctx, &nipb.CreateAIVoltageChanRequest{UnitsEnum: units})
		return err
	})
	refusedBy("units", func() error {
		_, err := c.CreateAIVoltageChan(ctx, &nipb.CreateAIVoltageChanRequest{TerminalConfigEnum: config})
		return err
	})
	refusedBy("edge", func() error {
		_, err := c.CfgSampClkTiming(ctx,
			&nipb.CfgSampClkTimingRequest{SampleModeEnum: &nipb.CfgSampClkTimingRequest_SampleModeRaw{}})
		return err
	})
	refusedBy("mode", func() error {
		_, err := c.CfgSampClkTiming(ctx,
			&nipb.CfgSampClkTimingRequest{ActiveEdgeEnum: &nipb.CfgSampClkTimingRequest_ActiveEdgeRaw{}})
		return err
	})
	refusedBy("volts", func() error { _, err := c.ReadAnalogF64(ctx, &nipb.ReadAnalogF64Request{}); return err })
	refusedBy("codes", func() error { _, err := c.ReadBinaryI16(ctx, &nipb.ReadBinaryI16Request{}); return err })
	refusedBy("timing", func() error {
		_, err := c.GetTimingAttributeDouble(ctx, &nipb.GetTimingAttributeDoubleRequest{})
		return err
	})
	refusedBy("u32", func() error {
		_, err := c.GetReadAttributeUInt32(ctx, &nipb.GetReadAttributeUInt32Request{})
		return err
	})
	refusedBy("u64", func() error {
		_, err := c.GetReadAttributeUInt64(ctx, &nipb.GetReadAttributeUInt64Request{})
		return err
	})
	refusedBy("set", func() error {
		_, err := c.SetReadAttributeInt32(ctx,
			&nipb.SetReadAttributeInt32Request{})
		return err
	})
	refusedBy("value", func() error {
		_, err := c.SetReadAttributeInt32(ctx,
			&nipb.SetReadAttributeInt32Request{AttributeEnum: &nipb.SetReadAttributeInt32Request_AttributeRaw{}})
		return err
	})
	refusedBy("scale", func() error {
		_, err := c.GetChanAttributeDoubleArray(ctx, &nipb.GetChanAttributeDoubleArrayRequest{})
		return err
	})
	refusedBy("buffer", func() error {
		_, err := c.GetBufferAttributeUInt32(ctx, &nipb.GetBufferAttributeUInt32Request{})
		return err
	})
	refusedBy("product", func() error {
		_, err := c.GetDeviceAttributeString(ctx, &nipb.GetDeviceAttributeStringRequest{})
		return err
	})
	refusedBy("serial", func() error {
		_, err := c.GetDeviceAttributeUInt32(ctx, &nipb.GetDeviceAttributeUInt32Request{})
		return err
	})
	refusedBy("how", func() error {
		_, err := c.GetDeviceAttributeBool(ctx, &nipb.GetDeviceAttributeBoolRequest{})
		return err
	})
	refusedBy("version", func() error {
		_, err := c.GetSystemInfoAttributeUInt32(ctx, &nipb.GetSystemInfoAttributeUInt32Request{})
		return err
	})
}

// The driver's errors are UNKNOWN with trailers.
func TestErrorsTravelInTrailers(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	c := dial(t, at)
	s := ready(t, c, 1000, continuous, 1000)
	for name, q := range map[string]struct {
		read *nipb.ReadRawRequest
		want string
	}{
		"no such task": {&nipb.ReadRawRequest{
			Task: &nipb.Session{Name: "x"}, NumSampsPerChan: 1,
			ArraySizeInBytes: 4,
		}, "-200088"},
		"no room":           {&nipb.ReadRawRequest{Task: s, NumSampsPerChan: 10, ArraySizeInBytes: 39}, "-200229"},
		"a negative number": {&nipb.ReadRawRequest{Task: s, NumSampsPerChan: -2}, "-200096"},
	} {
		var trailer metadata.MD
		_, err := c.ReadRaw(t.Context(), q.read, grpc.Trailer(&trailer))
		if status.Code(err) != codes.Unknown || len(trailer.Get("ni-error")) != 1 ||
			trailer.Get("ni-error")[0] != q.want ||
			len(trailer.Get("ni-samps-per-chan-read")) != 1 || trailer.Get("ni-samps-per-chan-read")[0] != "0" {
			t.Errorf("%s: %v, %v", name, err, trailer)
		}
	}
	if _, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{
		Task: s, NumSampsPerChan: 1,
		ArraySizeInBytes: 1 << 31,
	}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("room for two gigabytes: %v", err)
	}
}

// The answer fills the room that was asked for; volts, codes and raw bytes agree.
func TestTheThreeWaysToRead(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	c := dial(t, at)
	first := func(t *testing.T) *nipb.Session { // the same samples, for the noise is drawn by their number
		t.Helper()
		s := ready(t, c, 1000, continuous, 1000)
		set := func(a nipb.ReadInt32Attribute, v int32) {
			_, err := c.SetReadAttributeInt32(t.Context(), &nipb.SetReadAttributeInt32Request{
				Task: s, AttributeEnum: &nipb.SetReadAttributeInt32Request_Attribute{Attribute: a},
				ValueEnum: &nipb.SetReadAttributeInt32Request_ValueRaw{ValueRaw: v},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		set(nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_RELATIVE_TO, 10424)
		return s
	}(t)
	const n = 50
	raw, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{
		Task: first, NumSampsPerChan: n, Timeout: 1,
		ArraySizeInBytes: 4*n + 7,
	})
	if err != nil || len(raw.GetReadArray()) != 4*n+7 || raw.GetSampsRead() != n || raw.GetNumBytesPerSamp() != 2 ||
		raw.GetStatus() != 0 {
		t.Fatalf("%v, %v", raw, err)
	}
	scale, err := c.GetChanAttributeDoubleArray(t.Context(), &nipb.GetChanAttributeDoubleArrayRequest{
		Task: first, Channel: "Dev1/ai1",
		AttributeEnum: &nipb.GetChanAttributeDoubleArrayRequest_AttributeRaw{AttributeRaw: 6448},
	})
	if err != nil || len(scale.GetValue()) != 4 {
		t.Fatalf("%v, %v", scale, err)
	}
	codes16, err := c.ReadBinaryI16(t.Context(), &nipb.ReadBinaryI16Request{
		Task: first, NumSampsPerChan: n, Timeout: 1, ArraySizeInSamps: 2 * n,
		FillModeEnum: &nipb.ReadBinaryI16Request_FillModeRaw{},
	})
	if err != nil || codes16.GetSampsPerChanRead() != n {
		t.Fatal(err)
	}
	f64, err := c.ReadAnalogF64(t.Context(), &nipb.ReadAnalogF64Request{
		Task: first, NumSampsPerChan: n, Timeout: 1, ArraySizeInSamps: 2 * n,
		FillModeEnum: &nipb.ReadAnalogF64Request_FillMode{FillMode: nipb.FillMode_FILL_MODE_GROUP_BY_SCAN},
	})
	if err != nil || f64.GetSampsPerChanRead() != n {
		t.Fatal(err)
	}
	for i := range n {
		code := int16(binary.LittleEndian.Uint16(raw.GetReadArray()[4*i+2:]))
		if got := codes16.GetReadArray()[n+i]; got != int32(code) {
			t.Fatalf("scan %d: %d by channel, %d raw", i, got, code)
		}
		v := 0.0
		for p, k := range scale.GetValue() {
			v += k * math.Pow(float64(code), float64(p))
		}
		if got := f64.GetReadArray()[2*i+1]; math.Abs(got-v) > 1e-12 {
			t.Fatalf("scan %d: %v V, the code makes %v", i, got, v)
		}
	}
}

// A finite task starts with the read, and has no more than it has.
func TestFiniteTask(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	c := dial(t, at)
	s := ready(t, c, 1000, finite, 100)
	r, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{
		Task: s, NumSampsPerChan: -1, Timeout: 1,
		ArraySizeInBytes: 400,
	})
	if err != nil || r.GetSampsRead() != 100 {
		t.Fatalf("%v, %v", r.GetSampsRead(), err)
	}
	if _, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{
		Task: s, NumSampsPerChan: 1, Timeout: 1,
		ArraySizeInBytes: 400,
	}); status.Code(err) != codes.Unknown {
		t.Errorf("the sample after the last: %v", err)
	}
}

// Time-outs bring what there is, with a negative status and no error.
func TestTimeOut(t *testing.T) {
	_, at := serve(t, pace.Real(time.Now()), Config{})
	c := dial(t, at)
	s := ready(t, c, 1000, continuous, 100_000)
	r, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{
		Task: s, NumSampsPerChan: 50_000, Timeout: 0.05,
		ArraySizeInBytes: 200_000,
	})
	if err != nil || r.GetStatus() != errNotYet || r.GetSampsRead() < 40 || r.GetSampsRead() == 50_000 {
		t.Errorf("status %d, %d samples, %v", r.GetStatus(), r.GetSampsRead(), err)
	}
}

// Where the buffer is full and nothing may be overwritten, the device stops: every
// read fails until the task is started again.
func TestFullBufferStops(t *testing.T) {
	f, at := serve(t, pace.Pace{}, Config{})
	c := dial(t, at)
	s := ready(t, c, 1000, continuous, 1000)
	read := func() error {
		_, err := c.ReadRaw(t.Context(),
			&nipb.ReadRawRequest{Task: s, NumSampsPerChan: 100, Timeout: 1, ArraySizeInBytes: 400})
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	f.Stall(0, 20_000) // the driver's own choice of a buffer holds 10000
	for range 3 {
		if err := read(); status.Code(err) != codes.Unknown {
			t.Fatalf("%v", err)
		}
	}
	if _, err := c.StopTask(t.Context(), &nipb.StopTaskRequest{Task: s}); status.Code(err) != codes.Unknown {
		t.Errorf("StopTask keeps the reason to itself: %v", err)
	}
	if _, err := c.StartTask(t.Context(), &nipb.StartTaskRequest{Task: s}); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Error(err)
	}
}

// The scale undoes itself, over the whole of every range.
func TestScaleOfTheConverter(t *testing.T) {
	f, _ := serve(t, pace.Pace{}, Config{Seed: 7})
	for _, r := range ranges {
		for code := -32768.0; code <= 32767; code += 123 {
			if back := codeOf(f.poly[r], volts(f.poly[r], code)); math.Abs(back-code) > 1e-3 {
				t.Fatalf("±%v V: code %v comes back as %v", r, code, back)
			}
		}
	}
}

func TestOscillatorIsItsOwnInverse(t *testing.T) {
	o := oscillator{rate: -40e-6, wander: 5e-6, period: float64(20 * time.Minute)}
	const hour = float64(time.Hour)
	for d := 0.0; d < 3*hour; d += hour / 17 {
		at := o.board(d)
		if back := o.device(time.Duration(math.Round(at))); math.Abs(back-d) > 2 {
			t.Errorf("%v ns of the device are %v of the board, and that %v of the device", d, at, back)
		}
		const dt = 1e6
		if slope := (o.board(d+dt) - o.board(d-dt)) / (2 * dt); math.Abs(slope-o.slow(d)) > 1e-9 {
			t.Errorf("at %v ns a step is longer by %v, want %v", d, slope-1, o.slow(d)-1)
		}
	}
	// It bows: what a line between the ends of a period misses in its middle.
	if bow := o.board(o.period/2) - o.board(o.period)/2; math.Abs(bow) < 1.5e6 || math.Abs(bow) > 2.5e6 {
		t.Errorf("the wander bows the clock by %v ms", bow/1e6)
	}
}
