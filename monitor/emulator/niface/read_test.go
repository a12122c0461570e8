package niface

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// The driver's errors are UNKNOWN with trailers.
func TestErrorsTravelInTrailers(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	c := dial(t, at)
	s := ready(t, c, 1000, continuous, 1000)
	for name, q := range map[string]struct {
		read *nipb.ReadRawRequest
		want string
	}{
		"no such task":      {&nipb.ReadRawRequest{Task: &nipb.Session{Name: "x"}, NumSampsPerChan: 1, ArraySizeInBytes: 4}, "-200088"},
		"no room":           {&nipb.ReadRawRequest{Task: s, NumSampsPerChan: 10, ArraySizeInBytes: 39}, "-200229"},
		"a negative number": {&nipb.ReadRawRequest{Task: s, NumSampsPerChan: -2}, "-200096"},
	} {
		var trailer metadata.MD
		_, err := c.ReadRaw(t.Context(), q.read, grpc.Trailer(&trailer))
		if status.Code(err) != codes.Unknown || len(trailer.Get("ni-error")) != 1 || trailer.Get("ni-error")[0] != q.want ||
			len(trailer.Get("ni-samps-per-chan-read")) != 1 || trailer.Get("ni-samps-per-chan-read")[0] != "0" {
			t.Errorf("%s: %v, %v", name, err, trailer)
		}
	}
	if _, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{Task: s, NumSampsPerChan: 1, ArraySizeInBytes: 1 << 31}); status.Code(err) != codes.ResourceExhausted {
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
				Task: s, AttributeEnum: &nipb.SetReadAttributeInt32Request_Attribute{Attribute: a}, ValueEnum: &nipb.SetReadAttributeInt32Request_ValueRaw{ValueRaw: v},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		set(nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_RELATIVE_TO, 10424)
		return s
	}(t)
	const n = 50
	raw, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{Task: first, NumSampsPerChan: n, Timeout: 1, ArraySizeInBytes: 4*n + 7})
	if err != nil || len(raw.GetReadArray()) != 4*n+7 || raw.GetSampsRead() != n || raw.GetNumBytesPerSamp() != 2 || raw.GetStatus() != 0 {
		t.Fatalf("%v, %v", raw, err)
	}
	scale, err := c.GetChanAttributeDoubleArray(t.Context(), &nipb.GetChanAttributeDoubleArrayRequest{
		Task: first, Channel: "Dev1/ai1", AttributeEnum: &nipb.GetChanAttributeDoubleArrayRequest_AttributeRaw{AttributeRaw: 6448},
	})
	if err != nil || len(scale.GetValue()) != 4 {
		t.Fatalf("%v, %v", scale, err)
	}
	codes16, err := c.ReadBinaryI16(t.Context(), &nipb.ReadBinaryI16Request{
		Task: first, NumSampsPerChan: n, Timeout: 1, ArraySizeInSamps: 2 * n, FillModeEnum: &nipb.ReadBinaryI16Request_FillModeRaw{},
	})
	if err != nil || codes16.GetSampsPerChanRead() != n {
		t.Fatal(err)
	}
	f64, err := c.ReadAnalogF64(t.Context(), &nipb.ReadAnalogF64Request{
		Task: first, NumSampsPerChan: n, Timeout: 1, ArraySizeInSamps: 2 * n, FillModeEnum: &nipb.ReadAnalogF64Request_FillMode{FillMode: nipb.FillMode_FILL_MODE_GROUP_BY_SCAN},
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
	r, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{Task: s, NumSampsPerChan: -1, Timeout: 1, ArraySizeInBytes: 400})
	if err != nil || r.GetSampsRead() != 100 {
		t.Fatalf("%v, %v", r.GetSampsRead(), err)
	}
	if _, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{Task: s, NumSampsPerChan: 1, Timeout: 1, ArraySizeInBytes: 400}); status.Code(err) != codes.Unknown {
		t.Errorf("the sample after the last: %v", err)
	}
}

// Time-outs bring what there is, with a negative status and no error.
func TestTimeOut(t *testing.T) {
	_, at := serve(t, pace.Real(time.Now()), Config{})
	c := dial(t, at)
	s := ready(t, c, 1000, continuous, 100_000)
	r, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{Task: s, NumSampsPerChan: 50_000, Timeout: 0.05, ArraySizeInBytes: 200_000})
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
		_, err := c.ReadRaw(t.Context(), &nipb.ReadRawRequest{Task: s, NumSampsPerChan: 100, Timeout: 1, ArraySizeInBytes: 400})
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
