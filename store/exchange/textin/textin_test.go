package textin

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

func rows(lines ...string) Source {
	return func(row func(Row) error) error {
		for i, l := range lines {
			if err := row(Row{Row: logfile.Row{Line: i + 2, Fields: strings.Split(l, ",")}}); err != nil {
				return err
			}
		}
		return nil
	}
}

func plan(t *testing.T) *Plan {
	t.Helper()
	columns := []Column{{Column: logfile.ParseColumn("t_s", false), Kind: Time}, {Column: logfile.Column{Text: "i"}}, {}}
	p, err := NewPlan(columns, []Field{{1, "aux", logfile.Unit{Of: measure.UnitAmpere, Exponent: -3}}, {2, "aux", logfile.Unit{Of: measure.UnitVolt}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What was written with few digits comes back to the last of them.
func TestDigitsAreKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	p := plan(t)
	var lines []string
	var want [][2]float64
	for i := range 10_000 {
		mA, v := math.Round(rng.Float64()*3e5)/10, math.Round(rng.NormFloat64()*1e4)/1000
		lines = append(lines, fmt.Sprintf("%.6f,%.1f,%.3f", 100+float64(i)*1e-4, mA, v))
		want = append(want, [2]float64{mA / 1000, v})
	}
	s, err := Look(rows(lines...), p.Columns)
	if err != nil {
		t.Fatal(err)
	}
	if s.Rows != 10_000 || s.Step != 1e5 || s.First != 100e9 || s.Gain[0] != 1e-4 || s.Gain[1] != 1e-3 || !s.Exact[0] || !s.Exact[1] {
		t.Fatalf("%+v", s)
	}
	setup := p.Setup(s, 0.01, 1e-4)
	if err := setup.Validate(); err == nil || !strings.Contains(err.Error(), "role") {
		t.Errorf("a rail without a role: %v", err)
	}
	n := 0
	err = Read(rows(lines...), p.Columns, s, Sink{Block: func(b *measure.Block) error {
		for i := range b.Scans() {
			for c, want := range want[n] {
				if got := setup.Channels[c].Value(b.Counts[c][i]); math.Abs(got-want) > 1e-12 {
					t.Fatalf("row %d: %v, want %v", n, got, want)
				}
			}
			if b.Ticks[i] != int64(n)*1e5 {
				t.Fatalf("row %d: tick %d", n, b.Ticks[i])
			}
			n++
		}
		return nil
	}, Event: func(e measure.Event) error { return fmt.Errorf("an event: %+v", e) }})
	if err != nil || n != len(want) {
		t.Errorf("%d rows, %v", n, err)
	}
}

// Numbers with all digits of a float64 are kept to a part in 2^29 of the largest.
func TestManyDigits(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		most := math.Exp(rng.Float64()*40 - 20)
		g, exact := resolution(most, 17)
		if exact || most/g > 1<<30 || most > 1e-8 && most/g < 4e8 {
			t.Fatalf("%v: %v a count, %v counts", most, g, most/g)
		}
	}
	if g, exact := resolution(0, 20); !(g > 0) || exact {
		t.Errorf("nothing but zeros: %v", g)
	}
}

func TestLostScans(t *testing.T) {
	p := plan(t)
	columns := append([]Column{{Kind: Scan}}, p.Columns...)
	for _, c := range []struct {
		name    string
		columns []Column
		lines   []string
		at      uint64
		lost    uint64
		exact   bool
	}{
		{"by number", columns, []string{"7,0,1,1", "8,1,1,1", "11,1.5,1,1"}, 2, 2, true},
		{"by time", p.Columns, []string{"0,1,1", "1,1,1", "2,1,1", "22,1,1", "23,1,1"}, 3, 19, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Look(rows(c.lines...), c.columns)
			if err != nil {
				t.Fatal(err)
			}
			var events []measure.Event
			var last uint64
			err = Read(rows(c.lines...), c.columns, s, Sink{
				Block: func(b *measure.Block) error { last = b.FirstScan; return nil },
				Event: func(e measure.Event) error { events = append(events, e); return nil },
			})
			if err != nil || len(events) != 1 || events[0].FirstScan != c.at || events[0].Scans != c.lost || events[0].Exact != c.exact || last != c.at+c.lost {
				t.Errorf("%+v, %v, last block from %d", events, err, last)
			}
		})
	}
}

func TestBadRows(t *testing.T) {
	p := plan(t)
	for _, c := range []struct{ line, want string }{
		{"1,2", "2 values"},
		{"1,x,3", `i: "x" is no finite number`},
		{"1,NaN,3", "no finite number"},
		{"1,0x10,3", "no finite number"},
		{"1,,3", "no finite number"},
		{"later,1,3", "no time"},
		{"0,1,3", "not later"},
		{"-1,1,3", "not later"},
	} {
		_, err := Look(rows("0,1,2", c.line), p.Columns)
		if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "line 3: ") {
			t.Errorf("%s: %v, want %q and line 3", c.line, err, c.want)
		}
	}
	if _, err := Look(rows("0,1,2"), p.Columns); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "two at least") {
		t.Errorf("one row: %v", err)
	}
	s, err := Look(rows("0,1,2", "1,1,2"), p.Columns)
	if err != nil {
		t.Fatal(err)
	}
	none := Sink{Block: func(*measure.Block) error { return nil }, Event: func(measure.Event) error { return nil }}
	for _, changed := range []Source{rows("0,1,2", "1,1,2", "2,1,2"), rows("0,1,2", "1,9e11,2"), rows("0,1,2", "9,1,2")} {
		if err := Read(changed, p.Columns, s, none); err == nil || !strings.Contains(err.Error(), "changed") {
			t.Errorf("a file that changed: %v", err)
		}
	}
}

func TestPlans(t *testing.T) {
	a, v, w := logfile.Unit{Of: measure.UnitAmpere}, logfile.Unit{Of: measure.UnitVolt}, logfile.Unit{Of: measure.UnitWatt}
	for _, c := range []struct {
		name    string
		fields  []Field
		assumed map[string]measure.Volt
		rails   string
		left    int
		err     string
	}{
		{"clamp, its power follows", []Field{{0, "x", a}, {1, "x", v}, {2, "x", w}}, nil, "x:clamp", 1, ""},
		{"power alone", []Field{{0, "x", w}}, nil, "x:power", 0, ""},
		{"power and current", []Field{{0, "x", w}, {1, "x", a}}, nil, "x:power", 1, ""},
		{"assumed", []Field{{0, "x", a}}, map[string]measure.Volt{"x": 12}, "x:assumed", 0, ""},
		{"total alone", []Field{{0, "", w}}, nil, "total:power", 0, ""},
		{"total beside rails", []Field{{0, "", w}, {1, "x", w}}, nil, "x:power", 1, ""},
		{"current alone", []Field{{0, "x", a}}, nil, "", 0, "--assume x=12"},
		{"voltage alone", []Field{{0, "x", v}}, nil, "", 0, "no column makes a power"},
		{"twice", []Field{{0, "x", w}, {1, "x", w}}, nil, "", 0, "two columns"},
		{"assumed for nothing", []Field{{0, "x", w}}, map[string]measure.Volt{"y": 12}, "", 0, "--assume y"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := NewPlan(make([]Column, 3), c.fields, Options{Assumed: c.assumed})
			if c.err != "" {
				if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var rails []string
			for _, r := range p.Rails {
				rails = append(rails, r.Name+":"+r.Wiring.String())
			}
			if got := strings.Join(rails, " "); got != c.rails || len(p.Left) != c.left {
				t.Errorf("rails %s, left %q", got, p.Left)
			}
		})
	}
}

func TestChosenRails(t *testing.T) {
	w := logfile.Unit{Of: measure.UnitWatt}
	fields := []Field{{0, "x", w}, {1, "y", w}}
	p, err := NewPlan(make([]Column, 2), fields, Options{Rails: []string{"y"}})
	if err != nil || len(p.Rails) != 1 || p.Rails[0].Name != "y" || p.Columns[0].Kind != Ignored {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := NewPlan(make([]Column, 2), fields, Options{Rails: []string{"z"}}); err == nil || !strings.Contains(err.Error(), "its rails are x, y") {
		t.Errorf("a rail that is not there: %v", err)
	}
}

func FuzzQuantity(f *testing.F) {
	f.Add("1.5", 0)
	f.Add("-17e3", -3)
	f.Fuzz(func(t *testing.T, s string, e int) {
		e = -(e & 15)
		if q, err := parseQuantity(s, e); err == nil {
			if g, _ := resolution(math.Abs(q.v), q.digits); !(g > 0) || math.Abs(q.v)/g > 1<<30 {
				t.Errorf("%q: %v a count", s, g)
			}
		}
	})
}
