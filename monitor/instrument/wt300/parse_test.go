package wt300

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/scpi"
	"github.com/wattmark/wattmark/monitor/transport"
)

func floats(v ...float64) (b []byte) {
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(x)))
	}
	return b
}

func channels() []measure.Channel { return Inputs(Defaults()).Channels }

func TestReadings(t *testing.T) {
	counts := make([]measure.Count, 3)
	for _, c := range []struct {
		in   []float64
		want []float64
		ok   bool
	}{
		{[]float64{12.25, 5.5, 67.375}, []float64{12.25, 5.5, 67.375}, true},
		{[]float64{-12.25, 0, -0.5}, []float64{-12.25, 0, -0.5}, true},
		{[]float64{12, 5, 9.91e37}, nil, false},
		{[]float64{12, 5, math.NaN()}, nil, false},
	} {
		ok, err := Readings(floats(c.in...), channels(), counts)
		if err != nil || ok != c.ok {
			t.Errorf("%v: %v, %v", c.in, ok, err)
		}
		for i, v := range c.want {
			if got := channels()[i].Value(counts[i]); math.Abs(got-v) > channels()[i].Gain/2 {
				t.Errorf("%v: %v, want %v", c.in, got, v)
			}
		}
	}
	for _, v := range []float64{9.9e37, -9.9e37, math.Inf(1), math.Inf(-1), 1e9, -1e9} {
		ok, err := Readings(floats(12, v, v), channels(), counts)
		if err != nil || !ok || channels()[0].OverRange(counts[0]) || !channels()[1].OverRange(counts[1]) ||
			(counts[2] > 0) != (v > 0) {
			t.Errorf("%v: %v, %v, %v", v, counts, ok, err)
		}
	}
	for _, n := range []int{0, 4, 11, 13, 16} {
		if _, err := Readings(make([]byte, n), channels(), counts); !errors.Is(err, scpi.ErrReply) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// Rounding to steps stays within the stated bound on every range, no reading
// below 1.4 times the ranges reaches the end of the counts, and near full scale
// the float itself is coarser.
func TestStepIsFineEnough(t *testing.T) {
	for _, u := range voltRanges {
		for _, a := range ampereRanges {
			for _, full := range []float64{u, a, u * a} {
				s := step(full)
				if r := s / full; r > math.Exp2(-28)*(1+1e-12) || r <= math.Exp2(-29) {
					t.Errorf("full scale %v: a step of %v is 2^%v of it", full, s, math.Log2(r))
				}
				if 1.96*full/s >= limitCount-1 {
					t.Errorf("full scale %v: %v steps", full, 1.96*full/s)
				}
				ulp := float64(math.Nextafter32(float32(0.9*full), math.MaxFloat32)) - float64(float32(0.9*full))
				if s > ulp/2 {
					t.Errorf("full scale %v: a step of %v, the float's is %v", full, s, ulp)
				}
			}
		}
	}
}

// Whatever bytes come, values lie within the counts, and none is made of a block
// of another size.
func FuzzReadings(f *testing.F) {
	f.Add(floats(12, 5, 60))
	f.Add(floats(9.91e37, -9.9e37, math.NaN()))
	f.Add([]byte("#40012"))
	in := channels()
	f.Fuzz(func(t *testing.T, data []byte) {
		counts := make([]measure.Count, len(in))
		ok, err := Readings(data, in, counts)
		if (err == nil) != (len(data) == 12) || ok && err != nil {
			t.Fatalf("%d bytes: %v, %v", len(data), ok, err)
		}
		for _, n := range counts {
			if n < -limitCount || n > limitCount {
				t.Fatalf("count %d", n)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Elements = nil },
		func(o *Options) { o.Elements[0].Element = 4 },
		func(o *Options) { o.Elements[0].Name = " " },
		func(o *Options) { o.Elements = []Element{{1, "a"}, {1, "b"}} },
		func(o *Options) { o.Elements = []Element{{1, "a"}, {2, "a"}} },
		func(o *Options) { o.VoltRange = 12 },
		func(o *Options) { o.AmpereRange = 3 },
		func(o *Options) { o.Rate = 50 * time.Millisecond },
		func(o *Options) { o.Mode = "ac" },
		func(o *Options) { o.UGain = math.NaN() },
		func(o *Options) { o.Timeout = 0 },
		func(o *Options) { o.Silence = o.Rate },
	} {
		o := Defaults()
		change(&o)
		if _, err := New("usbtmc:/dev/usbtmc0", o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	if _, err := New("nowhere", Defaults()); err == nil {
		t.Error("an address that is none is taken")
	}
}

// The uncertainty is the maker's, of the range that is set.
func TestUncertainty(t *testing.T) {
	c := channels()[2]
	if u := c.UOffset * math.Sqrt(3); math.Abs(u-0.6) > 1e-9 || math.Abs(c.UGain*math.Sqrt(3)-1e-3) > 1e-9 {
		t.Errorf("300 W: ±%v W and %v of the reading", u, c.UGain)
	}
}

func BenchmarkReadings(b *testing.B) {
	o := Defaults()
	o.Elements = []Element{{1, "a"}, {2, "b"}, {3, "c"}}
	in := Inputs(o).Channels
	data, counts := floats(12, 5, 60, 12, 5, 60, 12, 5, 60), make([]measure.Count, len(in))
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := Readings(data, in, counts); !ok || err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(in))/b.Elapsed().Seconds(), "samples/s")
}

// quick makes opening cheap: it waits for a silent line no longer than it must.
func (d *Device) quick() {
	cfg := d.config()
	cfg.Quiet, cfg.Stale = time.Millisecond, -1
	d.client = scpi.New(cfg)
}

// dial puts the driver on pipes, for virtual time.
func (d *Device) dial(open func() net.Conn) {
	cfg := d.config()
	cfg.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(open()), nil }
	d.client = scpi.New(cfg)
}
