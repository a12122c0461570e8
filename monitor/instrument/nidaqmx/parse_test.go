package nidaqmx

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"wattmark/measure"
	"wattmark/monitor/instrument/analog"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

func TestReplies(t *testing.T) {
	room := make([]byte, 1000)
	for name, c := range map[string]struct {
		reply *nipb.ReadRawResponse
		bytes int
		err   string
	}{
		"whole":                      {&nipb.ReadRawResponse{ReadArray: room, SampsRead: 100, NumBytesPerSamp: 2}, 600, ""},
		"a sample is a scan":         {&nipb.ReadRawResponse{ReadArray: room, SampsRead: 100, NumBytesPerSamp: 6}, 600, ""},
		"half of them":               {&nipb.ReadRawResponse{Status: notYetAvailable, ReadArray: room, SampsRead: 50, NumBytesPerSamp: 2}, 300, ""},
		"none, width unknown":        {&nipb.ReadRawResponse{Status: notYetAvailable, ReadArray: room}, 0, ""},
		"more than asked for":        {&nipb.ReadRawResponse{ReadArray: room, SampsRead: 101, NumBytesPerSamp: 2}, 0, "101 samples where 100"},
		"less than none":             {&nipb.ReadRawResponse{ReadArray: room, SampsRead: -1, NumBytesPerSamp: 2}, 0, "-1 samples"},
		"fewer bytes than samples":   {&nipb.ReadRawResponse{ReadArray: room[:599], SampsRead: 100, NumBytesPerSamp: 2}, 0, "599 bytes for 100 scans"},
		"a converter of 24 bits":     {&nipb.ReadRawResponse{ReadArray: room, SampsRead: 100, NumBytesPerSamp: 4}, 0, "16 bits"},
		"a width that is impossible": {&nipb.ReadRawResponse{ReadArray: room, SampsRead: 100, NumBytesPerSamp: -2}, 0, "16 bits"},
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
		if err := analog.Scans(b, make([]measure.Count, n), func([]measure.Count) error { seen++; return nil }); err != nil {
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
	if ch.Gain != -3.2e-3 || ch.Offset != -0.1 || ch.Unit != measure.UnitAmpere || ch.MinCount != -32768 || ch.MaxCount != 32767 {
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
	reply := &nipb.ReadRawResponse{ReadArray: make([]byte, perBench*benchInputs*bytesCode), SampsRead: perBench, NumBytesPerSamp: bytesCode}
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
	reply := &nipb.ReadRawResponse{ReadArray: make([]byte, 1000*benchInputs*bytesCode), SampsRead: 1000, NumBytesPerSamp: bytesCode}
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
