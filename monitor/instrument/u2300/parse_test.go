package u2300

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	scpiface "github.com/wattmark/wattmark/monitor/emulator/scpi"
	"github.com/wattmark/wattmark/monitor/scpi"
	"github.com/wattmark/wattmark/monitor/transport"
)

func TestParseReplies(t *testing.T) {
	for s, want := range map[string]status{
		"EPTY": statusEmpty, " frag\r": statusFragment, "DATA": statusData,
		"OVER": statusOver,
	} {
		if got, err := parseStatus(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "YES", "DATA,1", "\x00\x01"} {
		if got, err := parseStatus(s); !errors.Is(err, scpi.ErrReply) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for s, want := range map[string][]int{"(@101)": {101}, "(@101,103:105, 102)\r": {101, 103, 104, 105, 102}} {
		if got, err := parseChannels(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "(@)", "101", "(@1:2000000000)", "(@105:101)", "(@x)", "(@101",
		strings.Repeat("(@", 9),
	} {
		if got, err := parseChannels(s); !errors.Is(err, scpi.ErrReply) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

// The examples of the maker's User's Guide: 12768 on a range of 10 V.
func TestScale(t *testing.T) {
	for want, i := range map[float64]Input{
		3.896: {Channel: 101, Range: 10},
		6.948: {Channel: 101, Range: 10, Unipolar: true},
	} {
		o := Defaults()
		o.Inputs = []Input{i}
		if v := Inputs(o).Channels[0].Value(12768); math.Abs(v-want) > 6e-4 {
			t.Errorf("%+v: %v V, want %v", i, v, want)
		}
	}
}

func TestSkew(t *testing.T) {
	o := Defaults()
	if s := o.inputs(models[0]).Channels[1].Skew; math.Abs(float64(s)-4e-6) > 1e-12 {
		t.Errorf("burst at 250 kS/s: %v", s)
	}
	o.Burst = false
	if s := o.inputs(models[0]).Channels[1].Skew; math.Abs(float64(s)-50e-6) > 1e-12 {
		t.Errorf("two inputs in 100 µs: %v", s)
	}
}

func TestOptions(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.ScanRate = 2 },
		func(o *Options) { o.ScanRate = 250_001 },
		func(o *Options) { o.ScanRate = math.NaN() },
		func(o *Options) { o.Inputs = nil },
		func(o *Options) { o.Inputs[0].Channel = 100 },
		func(o *Options) { o.Inputs[0].Channel = 165 },
		func(o *Options) { o.Inputs[0].Channel = 102 },
		func(o *Options) { o.Inputs[0].Name = "aux.current" },
		func(o *Options) { o.Inputs[0].Unit = "Hz" },
		func(o *Options) { o.Inputs[0].Range = 3 },
		func(o *Options) { o.Inputs[0].Ground = "earth" },
		func(o *Options) { o.Inputs[0].PerVolt = math.Inf(1) },
		func(o *Options) { o.Block = 0 },
		func(o *Options) { o.Timeout = 0 },
		func(o *Options) { o.Silence = 0 },
		func(o *Options) { o.UGain = -1 },
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

func block(n, inputs int) []byte {
	b := make([]byte, 0, 2*n*inputs)
	for i := range n * inputs {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(i*37)))
	}
	return b
}

// Whatever bytes come, there are as many scans as they hold, of values that 16
// bits can have; a block that does not hold whole scans gives none.
func FuzzScans(f *testing.F) {
	f.Add(block(4, 3), uint8(3))
	f.Add(block(4, 3)[1:], uint8(3))
	f.Add([]byte{}, uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, inputs uint8) {
		counts, n := make([]measure.Count, 1+int(inputs)), 0
		err := scans(data, counts, func(c []measure.Count) error {
			for _, v := range c {
				if v < math.MinInt16 || v > math.MaxInt16 {
					t.Fatalf("count %d", v)
				}
			}
			n++
			return nil
		})
		if size := 2 * len(counts); (err == nil) != (len(data)%size == 0) || err != nil && n > 0 || err == nil &&
			n != len(data)/size {
			t.Fatalf("%d scans of %d bytes, %v", n, len(data), err)
		}
	})
}

func FuzzReplies(f *testing.F) {
	for _, s := range []string{"DATA", "(@101,103:105)", "(@", "(@1:2:3)", "OVER\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := parseStatus(s); err == nil && len(v) != 4 {
			t.Errorf("%q gives %q", s, v)
		}
		if v, err := parseChannels(s); err == nil && (len(v) == 0 || len(v) > 130) {
			t.Errorf("%q gives %d channels", s, len(v))
		}
	})
}

func TestDecoderDoesNotAllocate(t *testing.T) {
	data, counts := block(1000, 6), make([]measure.Count, 6)
	if n := testing.AllocsPerRun(10, func() {
		_ = scans(data, counts,
			func([]measure.Count) error { return nil })
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecoder(b *testing.B) {
	const n, inputs = 4150, 6 // 50 ms of the fastest six
	data, counts := block(n, inputs), make([]measure.Count, inputs)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := scans(data, counts, func([]measure.Count) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*n*inputs/b.Elapsed().Seconds(), "samples/s")
}

// The face's block is what the driver takes for one.
func TestBlockOfTheFace(t *testing.T) {
	b := scpiface.Block(8, block(3, 2))
	if data, ok := bytes.CutPrefix(b, []byte("#800000012")); !ok || len(data) != 12 {
		t.Errorf("%q", b)
	}
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
