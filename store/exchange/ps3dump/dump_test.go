package ps3dump_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange/ps3dump"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

// recording is what a device measured, and what a library wrote of it.
type recording struct {
	l      *library
	first  int64 // µs of the device, when the dump begins
	values [][8]float64
	lost   map[int]int64 // frames lost before a frame
	marks  map[int]byte  // at frames
	micros []int64       // of each frame
	epoch  float64       // s, by the host's clock
	// behind makes the host slow from a frame on: s a frame.
	behind, until int
	slow          float64
	period        float64
	jitter        int // µs, of the device's stamps
}

// write has the library write it: readings arrive in bunches, late by what a busy
// machine does.
func (r *recording) write() {
	l := r.l
	at, host := float64(r.first), 0.0
	bunch := 0.0
	for n, v := range r.values {
		if n > 0 {
			at += r.period * float64(1+r.lost[n])
		}
		micros := int64(at) + int64(l.rng.IntN(r.jitter+1))
		r.micros = append(r.micros, micros)
		arrives := r.epoch + (at-float64(r.first))*1e-6*(1+30e-6)
		if arrives > bunch { // USB delivers every ms, and now and then later
			bunch = (math.Floor(arrives*1e3) + 1) / 1e3
			if l.rng.IntN(500) == 0 {
				bunch += 0.008 * l.rng.Float64()
			}
		}
		host = max(bunch, l.host)
		if n >= r.behind && n < r.until {
			host = max(host, l.host+r.slow)
		}
		l.frame(micros, v, r.marks[n], host)
		if n == 0 { // what was read before the dump was asked for is not in it
			l.out.Reset()
			l.heading()
		}
	}
}

// made makes a recording of n frames with steps and noise on all sensors.
func made(rng *rand.Rand, l *library, n int) *recording {
	l.rng = rng
	r := &recording{l: l, first: int64(rng.IntN(5000)), lost: map[int]int64{}, marks: map[int]byte{}, period: 50}
	var v [8]float64
	for i := range n {
		if i%700 == 0 {
			for k := range v {
				v[k] = []float64{2 + 15*rng.Float64(), 12}[k%2]
			}
		}
		w := v
		for k := range w {
			w[k] += 0.05 * rng.NormFloat64()
		}
		r.values = append(r.values, w)
	}
	return r
}

// imported is what a dump gives.
type imported struct {
	in     *ps3dump.Input
	survey *textin.Survey
	energy measure.Joule
	events []measure.Event
	ticks  []int64
	scans  []uint64
	counts [][]float64
}

func take(t *testing.T, text string, o ps3dump.Options) *imported {
	t.Helper()
	in, err := ps3dump.Open(opened(text), o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := textin.Look(in.Rows, in.Columns)
	if err != nil {
		t.Fatal(err)
	}
	got := &imported{in: in, survey: s}
	setup := in.Setup(s, 0, 0)
	for i := range setup.Rails {
		setup.Rails[i].Role = measure.RolePSU
	}
	g, err := measure.NewIntegrator(&setup, 0, measure.Seconds(float64(s.Last-s.First)/1e9))
	if err != nil {
		t.Fatal(err)
	}
	got.counts = make([][]float64, len(setup.Channels))
	err = textin.Read(in.Rows, in.Columns, s, textin.Sink{Block: func(b *measure.Block) error {
		for i, tick := range b.Ticks {
			got.ticks, got.scans = append(got.ticks, tick), append(got.scans, b.FirstScan+uint64(i))
			for c := range setup.Channels {
				got.counts[c] = append(got.counts[c], setup.Channels[c].Value(b.Counts[c][i]))
			}
		}
		return g.Add(b)
	}, Event: func(e measure.Event) error { got.events = append(got.events, e); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	got.energy = res.Total.Energy
	return got
}

// joules is the energy between two frames by the trapezoid rule.
func (r *recording) joules(from, to int) (e float64) {
	power := func(n int) (p float64) {
		for k := range r.l.pairs {
			p += r.values[n][2*k] * r.values[n][2*k+1]
		}
		return p
	}
	for n := from; n < to; n++ {
		e += (power(n) + power(n+1)) / 2 * float64(r.micros[n+1]-r.micros[n]) * 1e-6
	}
	return e
}

// What a device measured comes back from a dump of any version: its joules, its
// times, its markers, its sensors in one frame, and no loss that was none.
func TestVersions(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for pairs := 1; pairs <= 4; pairs++ {
		for name, library := range versions(pairs) {
			for _, epoch := range []float64{0.3, 12, 140, 1300, 14_000}[pairs-1:] {
				t.Run(fmt.Sprintf("%s/%d pairs/%gs", name, pairs, epoch), func(t *testing.T) {
					r := made(rng, library(), 3000)
					r.epoch = epoch
					if !r.l.groups || pairs < 4 { // a marker would put the readings out of step
						r.marks = map[int]byte{700: 'A', 1401: 'M', 2002: '7'}
						if r.l.inline {
							r.marks[2803] = ' '
						}
					}
					r.write()
					got := take(t, r.l.out.String(), ps3dump.Options{Library: map[bool]string{true: "1.1.0"}[r.l.groups]})
					r.check(t, got)
				})
			}
		}
	}
}

// check holds an import against the recording: the frames 1 to the last or the one
// before it.
func (r *recording) check(t *testing.T, got *imported) {
	t.Helper()
	first := 1
	n := len(got.ticks)
	if n < len(r.values)-3 || n > len(r.values) {
		t.Fatalf("%d rows of %d frames", n, len(r.values))
	}
	if r.l.groups && r.micros[0]%1024 == int64(0) || n == len(r.values) {
		first = 0
	}
	last := first + n - 1
	var lost int64
	gaps := 0
	for f, k := range r.lost {
		if f > first && f <= last && k > 0 {
			lost += k
			gaps++
		}
	}
	if got.in.Gaps != gaps || got.in.Lost != lost || got.in.Guessed != 0 {
		t.Errorf("%d gaps, %d lost, %d guessed; want %d and %d", got.in.Gaps, got.in.Lost, got.in.Guessed, gaps, lost)
	}
	for i := range n {
		if got.ticks[i] != 1000*(r.micros[first+i]-r.micros[first]) {
			t.Fatalf("frame %d: tick %d, want %d", first+i, got.ticks[i], 1000*(r.micros[first+i]-r.micros[first]))
		}
		if r.l.groups && r.l.pairs == 3 {
			continue // its readings mix frames, in three of four
		}
		for c := range got.counts {
			if want := r.values[first+i][c]; math.Abs(got.counts[c][i]-want) > 1e-4 {
				t.Fatalf("frame %d: sensor %d is %v, want %v", first+i, c, got.counts[c][i], want)
			}
		}
	}
	if want := r.joules(first, last); math.Abs(float64(got.energy)/want-1) > 1e-6 && !(r.l.groups && r.l.pairs == 3) {
		t.Errorf("%v J, want %v", got.energy, want)
	}
	if len(got.in.Markers) != len(r.marks) {
		t.Fatalf("markers %+v, want %v", got.in.Markers, r.marks)
	}
	at := map[int64]string{}
	for f, c := range r.marks {
		at[1000*(r.micros[f]-r.micros[first])] = string([]byte{c})
	}
	for _, m := range got.in.Markers {
		if name, ok := at[m.At-got.survey.First]; !ok || name != m.Name && !(name == " " && m.Name == `\x20`) {
			t.Errorf("marker %q at %d ns: not where it was made", m.Name, m.At-got.survey.First)
		}
	}
}

// Frames that the device dropped are counted, to the frame, whatever their number, on
// all clocks that the firmware has.
func TestLosses(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for _, period := range []float64{50, 400.0 / 7, 88.0 / 3} {
		for jitter, epoch := range []float64{2, 30_000} {
			t.Run(fmt.Sprintf("%.0f µs/%gs", period, epoch), func(t *testing.T) {
				r := made(rng, versions(2)["1.6"](), 20_000)
				r.epoch, r.period, r.jitter = epoch, period, jitter
				for at := 3000; at < 19_000; at += 2000 + rng.IntN(500) {
					r.lost[at] = 1 + int64(rng.IntN(20))
					if rng.IntN(3) == 0 {
						r.lost[at] = int64(rng.IntN(6000)) + 1
					}
					if r.lost[at]%512 == 0 || r.lost[at]%448 == 0 || r.lost[at]%384 == 0 { // not to be seen
						r.lost[at]++
					}
				}
				r.write()
				got := take(t, r.l.out.String(), ps3dump.Options{})
				r.check(t, got)
				if len(got.events) != len(r.lost) {
					t.Errorf("%d events of %d gaps", len(got.events), len(r.lost))
				}
			})
		}
	}
}

// A host that falls behind and catches up has lost nothing but what the stamps show.
func TestSlowHost(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	r := made(rng, versions(4)["1.6"](), 60_000)
	r.epoch, r.behind, r.until, r.slow = 5, 10_000, 30_000, 60e-6
	for _, at := range []int{12_000, 15_000, 29_000} {
		r.lost[at] = int64(3 + rng.IntN(300))
	}
	r.write()
	r.check(t, take(t, r.l.out.String(), ps3dump.Options{}))
}

// A dump in six digits of the seconds since 1970 still has its device's times.
func TestSixDigitDate(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	r := made(rng, versions(2)["1.6"](), 30_000)
	r.epoch = 1733935203
	r.lost[9000], r.lost[20_000] = 7, 900
	r.write()
	if text := r.l.out.String(); !strings.Contains(text, "\nS 1.73394e+09 ") {
		t.Fatalf("%.300s", text)
	}
	got := take(t, r.l.out.String(), ps3dump.Options{})
	r.check(t, got)
	if !got.in.Absolute {
		t.Error("the seconds since 1970 are not taken for such")
	}
}

// Markers of their own lines, as other programs of the family write them, stand where
// their times say, or where the line does.
func TestMarkerLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	r := made(rng, versions(4)["1.4"](), 4000)
	r.epoch = 1
	r.write()
	lines := strings.SplitAfter(r.l.out.String(), "\n")
	hosts := func(n int) string { return strings.Fields(lines[n])[1] }
	text := strings.Join(lines[:2000], "") + "M 7.5 \"elsewhere\"\n" + strings.Join(lines[2000:], "") +
		"M " + hosts(500) + " \"start\"\nM " + hosts(1000) + " " + hosts(1500) + " 3 \"a kernel\"\n"
	got := take(t, text, ps3dump.Options{})
	var said []string
	for _, m := range got.in.Markers {
		said = append(said, fmt.Sprintf("%s %.1f-%.1f", m.Name, float64(m.At-got.survey.First)/5e4, float64(m.To-got.survey.First)/5e4))
	}
	want := []string{"start 499", "a kernel 3 999", "elsewhere 1999"} // counted from the first reading
	for i, w := range want {
		if len(said) != len(want) || !strings.HasPrefix(said[i], w) {
			t.Fatalf("%q, want %q", said, want)
		}
	}
	if !strings.Contains(said[1], "-1499") {
		t.Errorf("%q: ends elsewhere", said[1])
	}
}

// The version decides whether sensors are brought back to their frame; the dump tells
// it where it can, else the caller.
func TestPairing(t *testing.T) {
	rng := rand.New(rand.NewPCG(61, 62))
	write := func(version string, pairs int, marked bool) string {
		r := made(rng, versions(pairs)[version](), 3000)
		if marked {
			r.marks[700], r.marks[1400] = 'A', 'B'
		}
		r.write()
		return r.l.out.String()
	}
	for _, c := range []struct {
		name, text, library string
		want                ps3dump.Pairing
		err                 string
	}{
		{"1.1 of two pairs", write("1.1", 2, false), "", ps3dump.Pairing{Known: true}, ""},
		{"1.1 of four pairs", write("1.1", 4, false), "", ps3dump.Pairing{Late: true}, ""},
		{"1.1 that is said", write("1.1", 4, false), "1.1.0", ps3dump.Pairing{Known: true}, ""},
		{"1.1 with markers", write("1.1", 4, true), "1.1.0", ps3dump.Pairing{}, ""},
		{"1.4 of two pairs", write("1.4", 2, false), "", ps3dump.Pairing{Late: true, Known: true}, ""},
		{"1.4 of four pairs", write("1.4", 4, true), "", ps3dump.Pairing{Late: true}, ""},
		{"1.4 that is said", write("1.4", 4, true), "1.4.1", ps3dump.Pairing{Late: true, Known: true}, ""},
		{"1.6 with markers", write("1.6", 4, true), "", ps3dump.Pairing{Late: true, Known: true}, ""},
		{"1.6 with dates", write("1.6 date", 4, false), "", ps3dump.Pairing{Late: true, Known: true}, ""},
		{"not 1.4", write("1.6", 4, true), "1.4.1", ps3dump.Pairing{}, "markers within its readings"},
		{"not 1.6", write("1.1", 1, false), "1.6.1", ps3dump.Pairing{}, "several readings of a frame"},
		{"no version", write("1.6", 4, true), "new", ps3dump.Pairing{}, "as in 1.4.1"},
	} {
		in, err := ps3dump.Open(opened(c.text), ps3dump.Options{Library: c.library})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil || in.Pairing != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, in, err, c.want)
		}
	}
}

// A dump whose program was killed comes in without its last line.
func TestCutShort(t *testing.T) {
	r := made(rand.New(rand.NewPCG(71, 72)), versions(2)["1.6"](), 3000)
	r.write()
	whole := r.l.out.String()
	for cut := 1; cut < 60; cut++ {
		in, err := ps3dump.Open(opened(whole[:len(whole)-cut]), ps3dump.Options{})
		if err != nil {
			t.Fatalf("%d bytes cut: %v", cut, err)
		}
		if in.Gaps != 0 {
			t.Errorf("%d bytes cut: %d gaps", cut, in.Gaps)
		}
	}
}

// endless repeats a dump's readings with stamps that go on.
type endless struct {
	rows, at int
	rest     []byte
}

func (e *endless) Close() error { return nil }

func (e *endless) Read(b []byte) (int, error) {
	if len(e.rest) == 0 {
		if e.at == e.rows {
			return 0, io.EOF
		}
		e.rest = fmt.Appendf(e.rest, "S %.6g 50 %d 1.5 12 18 18\n", 1+float64(e.at)*50e-6, e.at*50%1024)
		e.at++
	}
	n := copy(b, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// Memory does not grow with a dump.
func TestMemory(t *testing.T) {
	held := func(rows int) uint64 {
		var most uint64
		open := func() (io.ReadCloser, error) { return &endless{rows: rows}, nil }
		in, err := ps3dump.Open(open, ps3dump.Options{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := in.Rows(func(textin.Row) error {
			if n++; n%(rows/4) == 0 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
			return nil
		}); err != nil || in.Gaps != 0 {
			t.Fatal(err, in.Gaps)
		}
		return most
	}
	short, long := held(20_000), held(200_000)
	if long > short+1<<20 {
		t.Errorf("%d bytes for 20 000 rows, %d for ten times as many", short, long)
	}
}

// library is what PowerSensor3's firmware and host library of a version do between a
// sensor and a line of the dump: what order the packets come in, what a reading is made
// of, and how it is printed.
type library struct {
	skipsFirst bool // 1.2 on: the first packet is read to see that data flow
	groups     bool // to 1.1: a reading after as many sensors as are in use
	inline     bool // 1.5 on: markers are the first character of a reading
	absolute   bool // 1.6 on, by choice
	pairs      int

	out      bytes.Buffer
	rng      *rand.Rand
	marks    []byte
	marker   bool
	begun    bool
	read     int
	stamp    int
	levels   [8]float64
	host     float64 // s
	previous float64
	lastMark string
}

// versions are the libraries that differ.
func versions(pairs int) map[string]func() *library {
	return map[string]func() *library{
		"1.1":      func() *library { return &library{groups: true, pairs: pairs} },
		"1.4":      func() *library { return &library{skipsFirst: true, pairs: pairs} },
		"1.6":      func() *library { return &library{skipsFirst: true, inline: true, pairs: pairs} },
		"1.6 date": func() *library { return &library{skipsFirst: true, inline: true, absolute: true, pairs: pairs} },
	}
}

func (l *library) heading() {
	l.out.WriteString("marker time dt_micro device_timestamp")
	for p := range l.pairs {
		fmt.Fprintf(&l.out, " current%d voltage%d power%d", p, p, p)
	}
	l.out.WriteString(" power_total\n")
}

// frame sends a frame at a time of the host in seconds.
func (l *library) frame(micros int64, values [8]float64, mark byte, host float64) {
	if l.previous == 0 {
		l.previous = host - 1e-4
	}
	l.host = host
	if mark != 0 {
		l.marks = append(l.marks, mark)
	}
	l.packet(7, true, float64(micros%1024), true)
	for i, v := range values {
		l.packet(i, mark != 0 && i == 0, v, false)
	}
}

func (l *library) packet(sensor int, bit bool, value float64, stamp bool) {
	l.marker = l.marker || bit
	if l.skipsFirst && !l.begun {
		l.begun = true
		return
	}
	if l.marker && sensor == 7 {
		if l.marker = false; stamp {
			l.stamp = int(value)
		} else {
			l.stamp = 1023 // a level that is taken for a stamp
		}
		return
	}
	l.levels[sensor] = value
	full := 8
	if l.groups {
		full = 2 * l.pairs
	}
	if l.read++; l.read >= full {
		l.read = 0
		l.reading()
	}
}

func (l *library) number(v float64) string {
	if l.absolute {
		return strconv.FormatFloat(v, 'f', 6, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

func (l *library) reading() {
	first := "S"
	if l.marker {
		l.marker = false
		c := l.marks[0]
		l.marks = l.marks[1:]
		l.lastMark = string([]byte{c})
		if l.inline {
			first = l.lastMark
		} else {
			fmt.Fprintf(&l.out, "M %c\n", c)
		}
	}
	l.host += 2e-6 + 8e-6*l.rng.Float64()
	at := l.host
	if l.absolute {
		at = float64(int64(1e6*(1733935203+l.host))) / 1e6
	}
	fmt.Fprintf(&l.out, "%s %s %d %d", first, l.number(at), int(1e6*(l.host-l.previous)), l.stamp)
	l.previous = l.host
	total := 0.0
	for p := range l.pairs {
		i, v := l.levels[2*p], l.levels[2*p+1]
		fmt.Fprintf(&l.out, " %s %s %s", l.number(i), l.number(v), l.number(i*v))
		total += i * v
	}
	fmt.Fprintf(&l.out, " %s\n", l.number(total))
}
