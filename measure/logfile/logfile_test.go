package logfile_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

var errKind = errors.New("not a log")

func open(text string, o logfile.Options) (*logfile.Table, error) {
	o.Kind, o.Want = errKind, "t_s,power_w"
	return logfile.Open(strings.NewReader(text), o)
}

func TestColumns(t *testing.T) {
	unit := func(u measure.Unit, e int) logfile.Unit { return logfile.Unit{Of: u, Exponent: e} }
	for _, c := range []struct {
		text, base, name string
		spaced           bool
		unit             logfile.Unit
	}{
		{"power_w", "power", "power", false, unit(measure.UnitWatt, 0)},
		{" Power (kW)", "Power", "power", false, unit(measure.UnitWatt, 3)},
		{"12V current [mA]", "12V current", "12v_current", false, unit(measure.UnitAmpere, -3)},
		{"power.draw.instant [W]", "power.draw.instant", "power_draw_instant", false, unit(measure.UnitWatt, 0)},
		{"t [µs]", "t", "t", false, unit(logfile.Second, -6)},
		{"host_ns", "host", "host", false, unit(logfile.Second, -9)},
		{"Phase A", "Phase A", "phase_a", false, logfile.Unit{}},
		{"Phase A", "Phase", "phase", true, unit(measure.UnitAmpere, 0)},
		{"power [furlong]", "power", "power", false, logfile.Unit{}},
		{"energy_j", "energy_j", "energy_j", false, logfile.Unit{}},
		{"w", "w", "w", true, logfile.Unit{}},
		{"[W]", "[W]", "w", false, logfile.Unit{}},
		{"", "", "", true, logfile.Unit{}},
	} {
		want := logfile.Column{Text: strings.TrimSpace(c.text), Base: c.base, Name: c.name, Unit: c.unit}
		if diff := cmp.Diff(want, logfile.ParseColumn(c.text, c.spaced)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}

// rows returns all rows as line:fields.
func rows(tab *logfile.Table) (out []string, err error) {
	for row, err := range tab.Rows() {
		if err != nil {
			return out, err
		}
		out = append(out, fmt.Sprintf("%d%s", row.Line, row.Fields))
	}
	return out, nil
}

// Separators, comments, marks and headings of any program give the same rows.
func TestRows(t *testing.T) {
	for _, c := range []struct {
		name, text string
		o          logfile.Options
		columns    string
		rows       []string
	}{
		{"commas", "a, b\n1, 2\n\n \n3,\"4\n5\"\n6,7\n", logfile.Options{}, "a b", []string{"2[1 2]", "5[3 4\n5]", "7[6 7]"}},
		{"comments", "\ufeff# x\n\n#y\r\na,b\r\n#z\r\n1,2\r\n", logfile.Options{}, "a b", []string{"6[1 2]"}},
		{"semicolons", "a;b\n1;2", logfile.Options{}, "a b", []string{"2[1 2]"}},
		{"tabs", "a\tb\n1\t2", logfile.Options{}, "a b", []string{"2[1 2]"}},
		{"blanks", "timestamp b\n1 2 x\"y\n", logfile.Options{Blanks: true, Ragged: true}, "timestamp b", []string{`2[1 2 x"y]`}},
		{"blanks that part nothing", "timestamp b\n1 2\n", logfile.Options{}, "timestamp b", []string{"2[1 2]"}},
		{"no heading", "1,2\n3,4\n", logfile.Options{Default: "x,y,z"}, "x y", []string{"1[1 2]", "2[3 4]"}},
		{"another heading", "a,b\n3,4\n", logfile.Options{Heading: "x,y", Default: "z,z"}, "x y", []string{"2[3 4]"}},
		{"a heading for one without", "1,2\n", logfile.Options{Heading: "x,y"}, "x y", []string{"1[1 2]"}},
		{"ragged", "a,b\n1\n1,2,3\n", logfile.Options{Ragged: true}, "a b", []string{"2[1]", "3[1 2 3]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab, err := open(c.text, c.o)
			if err != nil {
				t.Fatal(err)
			}
			var columns []string
			for i, x := range tab.Columns {
				if columns = append(columns, x.Text); x.Index != i {
					t.Errorf("column %q has index %d, want %d", x.Text, x.Index, i)
				}
			}
			if got := strings.Join(columns, " "); got != c.columns {
				t.Errorf("columns %s, want %s", got, c.columns)
			}
			got, err := rows(tab)
			if diff := cmp.Diff(c.rows, got); diff != "" || err != nil {
				t.Errorf("rows, %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestComments(t *testing.T) {
	var got []string
	long := strings.Repeat("x", 200_000) // more than the reader's buffer
	_, err := open("# one\n#two \n\n# "+long+"\na,b\n# behind\n", logfile.Options{Comment: func(s string) { got = append(got, s) }})
	if diff := cmp.Diff([]string{"one", "two", long}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Values come in SI units with all of their decimal places.
func TestValues(t *testing.T) {
	tab, err := open("t_us,p_mw,timestamp,x\n1.0000001,2500,2026-01-31 12:00:00,30 mW\n1e15,[N/A],1733935203.149000001,N/A\n", logfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at, p, stamp, x := tab.Columns[0], tab.Find("p_mw"), tab.Find("timestamp", "none"), tab.Columns[3]
	row, err := tab.Next()
	if err != nil {
		t.Fatal(err)
	}
	if ns, form, err := row.Time(at); ns != 1000 || form != logfile.Counted || err != nil {
		t.Errorf("t: %d ns, form %d, %v", ns, form, err)
	}
	if ns, form, err := row.Time(stamp); ns != 1769860800e9 || form != logfile.Local || err != nil {
		t.Errorf("timestamp: %d ns, form %d, %v", ns, form, err)
	}
	for c, want := range map[logfile.Column]float64{p: 2.5, x: 0.03} {
		if v, err := row.Number(c); math.Abs(v-want) > 1e-15 || err != nil || row.Missing(c) {
			t.Errorf("%s: %v, %v; want %v", c.Text, v, err, want)
		}
	}
	if row, err = tab.Next(); err != nil {
		t.Fatal(err)
	}
	if ns, form, err := row.Time(stamp); ns != 1733935203149000001 || form != logfile.Zoned || err != nil {
		t.Errorf("timestamp: %d ns, form %d, %v", ns, form, err)
	}
	none := tab.Find("none")
	if !row.Missing(p) || !row.Missing(x) || !row.Missing(none) || none.Is() || row.Text(none) != "" {
		t.Error("what is missing is not noticed")
	}
	if _, err := tab.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last row: %v", err)
	}
}

// Every error has the form file:line: column: fault, and wraps the reader's kind.
func TestErrors(t *testing.T) {
	number := func(r logfile.Row, c logfile.Column) error { _, err := r.Number(c); return err }
	moment := func(r logfile.Row, c logfile.Column) error { _, _, err := r.Time(c); return err }
	for _, c := range []struct {
		text string
		read func(logfile.Row, logfile.Column) error
		want string
	}{
		{"", number, "f.csv: not a log: it is empty: want a heading such as t_s,power_w, and rows"},
		{"# x\n", number, "f.csv: not a log: it is empty: want a heading such as t_s,power_w, and rows"},
		{"t_s,\"b\n", number, `f.csv:1: extraneous or missing " in quoted-field: mend or remove the row`},
		{"t_s,b\n1\n", number, "f.csv:2: 1 fields, the heading has 2: mend or remove the row"},
		{"# x\nt_s,b\n\nx,2\n", number, `f.csv:4: t_s: "x" is not a finite number: mend or remove the row`},
		{"t_s\nInf\n", number, `f.csv:2: t_s: "Inf" is not a finite number: mend or remove the row`},
		{"t_s\n1 W\n", number, `f.csv:2: t_s: "1 W" is not a finite number: mend or remove the row`},
		{"t_s,b\n,2\n", number, "f.csv:2: t_s: it is empty: fill it in, or remove the row"},
		{"t_s,b\n1e30,2\n", moment, `f.csv:2: t_s: "1e30" is no time within 146 years: mend or remove the row`},
		{"t_s,b\nsoon,2\n", moment, `f.csv:2: t_s: no time: "soon": want a date with a time, as in 2026-01-31T12:00:00.5Z, ` +
			"or a number of seconds, ms, µs or ns since 1970"},
		{"1,2,3\n", number, "f.csv:1: 3 columns without a heading: name them, such as x,y"},
	} {
		o := logfile.Options{}
		if strings.HasPrefix(c.text, "1") {
			o.Default = "x,y"
		}
		tab, err := open(c.text, o)
		if err == nil {
			var row logfile.Row
			if row, err = tab.Next(); err == nil {
				err = c.read(row, tab.Columns[0])
			}
		}
		if err = logfile.In("f.csv", err); err == nil || err.Error() != c.want || !errors.Is(err, errKind) {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
	wrapped := logfile.In("f.csv", fmt.Errorf("more: %w", io.ErrUnexpectedEOF))
	if logfile.In("f.csv", nil) != nil || wrapped.Error() != "f.csv: more: unexpected EOF" || !errors.Is(wrapped, io.ErrUnexpectedEOF) {
		t.Errorf("errors of other kinds: %v", wrapped)
	}
	named, _ := logfile.Open(strings.NewReader("a\n1"), logfile.Options{Name: "g.csv"})
	if err := named.Fault("nothing: %w", io.EOF); err.Error() != "g.csv: nothing: EOF" || !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// After a row that is wrong the next call goes on behind it.
func TestGoesOn(t *testing.T) {
	tab, err := open("a,b\n1\n1,\"2\"x\n3,4\n", logfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := tab.Next(); !errors.Is(err, errKind) {
			t.Errorf("%v", err)
		}
	}
	if row, err := tab.Next(); err != nil || row.Line != 4 {
		t.Errorf("%+v, %v", row, err)
	}
}

// endless yields a text again and again.
type endless struct{ text string }

func (e endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], e.text)
	}
	return n, nil
}

// A row is refused once it is too long, and the rows before it are handed out.
func TestRowsAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ start, tail string }{
		"a line": {"a,b\n1,2\n", "x"}, "a quoted value": {"a,b\n1,2\n\"", "\n"}, "values": {"a,b\n1,2\n", "1,"},
		"a heading": {"", "x"}, "a comment": {"#", "x"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n := 0
		tab, err := logfile.Open(io.MultiReader(strings.NewReader(c.start), endless{c.tail}), logfile.Options{})
		if err == nil {
			var list []string
			list, err = rows(tab)
			n = len(list)
		}
		runtime.ReadMemStats(&after)
		want := min(len(c.start)/8, 1)
		if got := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, logfile.ErrTooLong) || n != want || got > 128<<20 {
			t.Errorf("%s: %d rows, %d bytes allocated, %v", name, n, got, err)
		}
	}
	long := strings.Repeat("x", logfile.MaxRow/2)
	tab, err := logfile.Open(strings.NewReader("a,b\n"+strings.Repeat(long+",\n", 5)), logfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := rows(tab); len(list) != 5 || err != nil {
		t.Errorf("%d long rows, %v", len(list), err)
	}
}

// The reader of each program's tables gives rows of one width with lines that rise, numbers that
// are finite and times in range, or an error with a place.
func FuzzOpen(f *testing.F) {
	for _, seed := range []string{
		"time_s,power_w\n0,1\n1,2\n",
		"# c\ntimestamp,voltage_v,current_a\n2023-11-14T22:13:20Z,1,2\n",
		"2581,132656,132535,132535,2648910,1795222143501749\n6173,132656,132535,132535,2648910,1795222143505393\n",
		"time [ms], a [mW]\n1,\n",
		"1,a-begin\n2,a-end\n",
		"begin_s,end_s,name\n1,2,a\n",
		"time_us, x, power_mw\n0,a,1\n5,\"b\",2e3\n",
		"kernel,blocks,time_s,energy_j,u_j,repeat\na,1,2,3,4,5\n",
		"blocks,time_s,energy_j\n9007199254740993,1e-300,1e300\n",
		"timestamp, power.draw [W], pstate\n2026/01/31 15:04:05.000, 30.00 W, P8\n2026/01/31 15:04:06.000, 30.00 W, P0\n",
		"name,start_us,end_us\na,1700000000500000,1700000001000000\n",
		"timestamp\n1700000000500000\n1700000001000000\n",
		"timestamp device\n1733935225.009 28.873\nM 10.098 \"start\"\n1733935225.069 28.789\n",
		"# wattmark {}\ntimestamp;P [mW]\n2026-01-31 12:00:00;3\n",
		"\ufeffelapsed_s\tcurrent_a\tvoltage_v\n0\t1\t2\n",
	} {
		for mode := range uint8(4) {
			f.Add(seed, mode)
		}
	}
	f.Fuzz(func(t *testing.T, text string, mode uint8) {
		o := logfile.Options{Spaced: mode&1 != 0, Blanks: mode&1 != 0, Ragged: mode&2 != 0}
		if mode&4 != 0 {
			o.Default = "time_us,instant_mw,average_mw"
		}
		tab, err := open(text, o)
		var at *logfile.Error
		if err != nil {
			if !errors.As(err, &at) || !errors.Is(err, errKind) {
				t.Fatalf("%v", err)
			}
			return
		}
		last := 0
		for row, err := range tab.Rows() {
			if err != nil {
				if !errors.As(err, &at) || !errors.Is(err, errKind) {
					t.Fatalf("%v", err)
				}
				return
			}
			if row.Line < last || !o.Ragged && len(row.Fields) != len(tab.Columns) {
				t.Fatalf("line %d behind line %d, %d fields of %d", row.Line, last, len(row.Fields), len(tab.Columns))
			}
			last = row.Line
			for _, c := range tab.Columns {
				if v, err := row.Number(c); err == nil && (math.IsNaN(v) || math.IsInf(v, 0) && c.Unit.Exponent <= 0) {
					t.Fatalf("%s: %v of %q", c.Text, v, row.Text(c))
				}
				if ns, _, err := row.Time(c); err == nil && (ns > math.MaxInt64/2+1 || ns < -math.MaxInt64/2-1) && c.Unit.Of == logfile.Second {
					t.Fatalf("%s: %d ns of %q", c.Text, ns, row.Text(c))
				}
			}
		}
	})
}

func BenchmarkRows(b *testing.B) {
	const n = 10000
	var text strings.Builder
	text.WriteString("time_s,power_w\n")
	for i := range n {
		fmt.Fprintf(&text, "%d.%06d,123.456\n", i/1000, i%1000*1000)
	}
	b.ReportAllocs()
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		tab, err := open(text.String(), logfile.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for row, err := range tab.Rows() {
			if err != nil {
				b.Fatal(err)
			}
			if _, err := row.Number(tab.Columns[1]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
