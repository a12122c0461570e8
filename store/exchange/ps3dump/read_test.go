package ps3dump_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange/ps3dump"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

func opened(text string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

const old = `S 0.000050 50 1.5 12 18 0.5 3.3 1.65 19.65
S 0.000100 50 1.5 12 18 0.5 3.3 1.65 19.65
M 0.000100 A
S 0.000150 50 2 12 24 0.5 3.3 1.65 25.65
`

func TestLayouts(t *testing.T) {
	stamped := "marker time dt_micro device_timestamp I0 V0 P0 total\nS 0.1 50 1000 1 12 12 12\n\nS 0.10005 50 26 2 12 24 24\nS 0.1001 50 76 2 12 24 24\n"
	for _, c := range []struct {
		name, text string
		rails      int
		markers    int
		first      measure.Watt
	}{
		{"two pairs", old, 2, 1, 19.65},
		{"a pair, with the device's time", stamped, 1, 0, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, err := ps3dump.Open(opened(c.text), ps3dump.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(in.Rails) != c.rails || len(in.Markers) != c.markers || in.Rails[0].Name != "pair0" {
				t.Fatalf("%+v, %+v", in.Rails, in.Markers)
			}
			s, err := textin.Look(in.Rows, in.Columns)
			if err != nil {
				t.Fatal(err)
			}
			setup := in.Setup(s, 0, 0)
			for i := range setup.Rails {
				setup.Rails[i].Role = measure.RolePSU
			}
			m, err := measure.NewPowerMeter(&setup)
			if err != nil {
				t.Fatal(err)
			}
			var p []measure.Watt
			err = textin.Read(in.Rows, in.Columns, s, textin.Sink{Block: func(b *measure.Block) error {
				p = append(p, m.Total(b, nil)...)
				return nil
			}})
			if err != nil || len(p) != int(s.Rows) || float64(p[0]-c.first) > 1e-9 || float64(c.first-p[0]) > 1e-9 {
				t.Errorf("%v, %v; want %v first", p, err, c.first)
			}
		})
	}
}

// PowerSensor2's host library writes a row each time one of its sensors has a reading, with what the others had last,
// by the host's clock in six digits. The first step counts from 1970; the end of a mark of a span, too.
func TestPowerSensor2(t *testing.T) {
	for sensors := 1; sensors <= 5; sensors++ {
		var text strings.Builder
		const period, n = 357e-6, 20_000
		zero := 1.7e9 // of the library, since 1970
		w := make([]float64, sensors)
		number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
		sum, at, last := 0.0, 0.0, -zero
		for i := range n {
			at = 0.8 + float64(i)*period + 3e-6*float64(i%7)
			w[i%sensors] = float64(10*(i%sensors)) * (1 + float64(i/4000)) // the first sensor rests at 0 W
			total := 0.0
			fmt.Fprintf(&text, "S %s %s", number(at), number(1e6*(at-last)))
			for _, v := range w {
				fmt.Fprintf(&text, " %s", number(v))
				total += v
			}
			fmt.Fprintf(&text, " %s\n", number(total))
			if i > 0 {
				sum += total * (at - last)
			}
			if last = at; i == 1000 {
				text.WriteString("M A\n")
			} else if i == 2000 {
				fmt.Fprintf(&text, "M %s %s 3 \"gemm\"\n", number(at-0.1), number(zero+at))
			}
		}
		in, err := ps3dump.Open(opened(text.String()), ps3dump.Options{})
		if err != nil {
			t.Fatalf("%d sensors: %v", sensors, err)
		}
		if len(in.Rails) != sensors || in.Rails[0].Name != "sensor0" || in.Turns != sensors || len(in.Markers) != 2 || in.Absolute {
			t.Fatalf("%d sensors: %+v, %+v, %d in turn", sensors, in.Rails, in.Markers, in.Turns)
		}
		s, err := textin.Look(in.Rows, in.Columns)
		if err != nil {
			t.Fatal(err)
		}
		setup := in.Setup(s, 0, 0)
		for i := range setup.Rails {
			setup.Rails[i].Role = measure.RolePSU
		}
		if took := float64(s.Last-s.First) / 1e9; math.Abs(took-(at-0.8)) > 1e-3 || s.Rows != n {
			t.Errorf("%d sensors: %d rows over %v s of %v", sensors, s.Rows, took, at-0.8)
		}
		g, err := measure.NewIntegrator(&setup, 0, measure.Seconds(s.Last-s.First)/1e9)
		if err != nil {
			t.Fatal(err)
		}
		if err := textin.Read(in.Rows, in.Columns, s, textin.Sink{Block: g.Add}); err != nil {
			t.Fatal(err)
		}
		r, err := g.Result(measure.Edges{})
		if err != nil || math.Abs(float64(r.Total.Energy)-sum) > 2e-4*sum+1e-6 {
			t.Errorf("%d sensors: %v of %.6g J, %v", sensors, r.Total, sum, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "no line of it is a reading"},
		{"t,w\n1,2\n", "no line of it is a reading"},
		{"S 1 2 3\n", "line 1: "},
		{"S 0.1 50 1.5 12 99 99\n", "do not make 99 W"},
		{"S 0.1 50 1.5 12 18 99\n", "the total is 99 W"},
		{"S 0.1 50 1.5 12 18 18\nS 0.2 50 1.5 12 18\n", "line 2: "},
		{"S 0.1 50 1.5 12 18 x\n", "nor a marker"},
		{"S 0.1 50 1.5 x 18 18\n", `"x" is no number`},
		{"S 0.1 50 1.5 12 18 18\nsome words\nS 0.2 50 1.5 12 18 18\n", "line 2: "},
		{"S 0.1 50 1.5 12 18 18\nM x A\nS 0.2 50 1.5 12 18 18\n", "want M and a character"},
		{"S 0.1 50 2000 1.5 12 18 18\nS 0.1 50 2000 1.5 12 18 18\n", "0 to 1023"},
		{"S 0.1 50 7 1.5 12 18 18\nS 0.2 50 7 1.5 12 18 18\n", "stand still"},
		{"marker time x\nS 0.1 50 1.5 12 18 18\nmarker time x\n", "a second dump"},
		{strings.Repeat("S ", 1<<16), "line 1: "},
	} {
		if _, err := ps3dump.Open(opened(c.text), ps3dump.Options{}); !errors.Is(err, textin.ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(old)
	f.Add("S 1 2 1 1 1 1\nM 3 x\n")
	rng := rand.New(rand.NewPCG(1, 2))
	for _, library := range versions(2) {
		r := made(rng, library(), 40)
		r.marks[9], r.lost[20] = 'A', 700
		r.write()
		f.Add(r.l.out.String())
	}
	f.Add("marker time dt_micro device_timestamp current2 voltage2 power2 power_total\nS 1.73394e+09 -2147483648 0 1 12 12 12\n  1.73394e+09 50 50 1 12 12 12\nM 1 2 3 \"a b\"\nM \n\n 1.73394e+09 50 99 1 12 12 12\nS 1.73394e+09 5 14")
	f.Fuzz(func(t *testing.T, text string) {
		in, err := ps3dump.Open(opened(text), ps3dump.Options{})
		if err != nil {
			return
		}
		s, err := textin.Look(in.Rows, in.Columns)
		if err != nil {
			return
		}
		if s.Last-s.First < 0 || in.Guessed > in.Gaps || in.Lost < int64(in.Gaps)-1 {
			t.Errorf("%+v", in)
		}
		rows := uint64(0)
		if err := textin.Read(in.Rows, in.Columns, s, textin.Sink{
			Block: func(b *measure.Block) error { rows += uint64(b.Scans()); return nil },
			Event: func(measure.Event) error { return nil },
		}); err != nil || rows != s.Rows {
			t.Errorf("looked at %d rows, read %d: %v", s.Rows, rows, err)
		}
	})
}
