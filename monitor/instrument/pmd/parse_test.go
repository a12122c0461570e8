package pmd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// put appends a record as the device sends it.
func put(b []byte, r Record) []byte {
	b = binary.LittleEndian.AppendUint16(b, r.Stamp)
	for _, c := range r.Counts {
		b = binary.LittleEndian.AppendUint16(b, uint16(c)<<4)
	}
	return b
}

// records makes n records of a device under load, with the steps of the public
// captures.
func records(n int) (rs []Record, b []byte) {
	rng := rand.New(rand.NewPCG(5, 6))
	t := uint16(60_000)
	for range n {
		r := Record{Stamp: t, Counts: [8]int16{1600, 123, 1601, 263, 1594, 67, 1599, -2}}
		for c := range r.Counts {
			r.Counts[c] += int16(rng.IntN(7)) - 3
		}
		rs, b = append(rs, r), put(b, r)
		t += uint16(600 + rng.IntN(5))
		if rng.IntN(10) == 0 {
			t += uint16(rng.IntN(400))
		}
	}
	return rs, b
}

func parseAll(p *Parser, pieces ...[]byte) (out []Record) {
	for _, b := range pieces {
		for {
			n, ok := p.Next(b)
			b = b[n:]
			if !ok {
				break
			}
			out = append(out, p.Record)
		}
	}
	if p.Flush() {
		out = append(out, p.Record)
	}
	return out
}

func TestFragmentsAtEveryByte(t *testing.T) {
	want, b := records(20)
	for cut := range len(b) + 1 {
		var p Parser
		if d := cmp.Diff(want, parseAll(&p, b[:cut], b[cut:])); d != "" || p.Skipped != 0 {
			t.Fatalf("cut at %d: skipped %d\n%s", cut, p.Skipped, d)
		}
	}
	var p Parser
	pieces := [][]byte{}
	for i := range b {
		pieces = append(pieces, b[i:i+1])
	}
	if d := cmp.Diff(want, parseAll(&p, pieces...)); d != "" {
		t.Errorf("byte by byte:\n%s", d)
	}
}

func TestBeginsInTheMiddleOfARecord(t *testing.T) {
	want, b := records(20)
	for from := range 3 * RecordBytes {
		var p Parser
		first := (from + RecordBytes - 1) / RecordBytes
		if d := cmp.Diff(want[first:], parseAll(&p, b[from:])); d != "" {
			t.Errorf("from byte %d:\n%s", from, d)
		}
	}
}

// check tells whether got are records of want, in order and unharmed, and how
// many are missing. A loss inside a stamp can leave its low byte wrong by what no
// reader can tell from the device's own jitter: up to 255 ticks, 87 µs.
func check(want, got []Record) (missing int, whole bool) {
	i := 0
	for _, g := range got {
		j := slices.IndexFunc(want[i:], func(w Record) bool {
			d := int16(w.Stamp - g.Stamp)
			return w.Counts == g.Counts && d > -256 && d < 256
		})
		if j < 0 {
			return 0, false
		}
		i += j + 1
	}
	return len(want) - len(got), true
}

// Bytes lost or doubled anywhere cost two records at most, and never yield one
// that the device did not send.
func TestBytesLostAndDoubled(t *testing.T) {
	want, b := records(30)
	for i := 5 * RecordBytes; i < 20*RecordBytes; i++ {
		for _, n := range []int{1, 2, 3, 17, 18, 19, 36, 40} {
			var p Parser
			missing, whole := check(want, parseAll(&p, b[:i], b[i+n:]))
			if !whole || missing > 2+(n+RecordBytes-1)/RecordBytes {
				t.Errorf("%d bytes lost at %d: %d records missing, whole %v", n, i, missing, whole)
			}
			if n >= RecordBytes {
				continue
			}
			var q Parser
			missing, whole = check(want, parseAll(&q, b[:i+n], b[i:]))
			if !whole || missing > 2 {
				t.Errorf("%d bytes doubled at %d: %d records missing, whole %v", n, i, missing, whole)
			}
		}
	}
}

func TestBadNibbleCostsOneRecord(t *testing.T) {
	want, b := records(30)
	b[10*RecordBytes+4] |= 1
	var p Parser
	got := parseAll(&p, b)
	if missing, whole := check(want, got); missing != 1 || !whole || p.Skipped != RecordBytes {
		t.Errorf("%d missing, whole %v, %d bytes skipped", missing, whole, p.Skipped)
	}
}

func FuzzParser(f *testing.F) {
	_, b := records(12)
	f.Add(b, 31)
	f.Add(b[7:], 3)
	f.Add(append(append([]byte{}, b[:100]...), b[101:]...), 60)
	f.Add(bytes.Repeat([]byte{0}, 100), 1)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if len(b) > 0 {
			cut = (cut%len(b) + len(b)) % len(b)
		} else {
			cut = 0
		}
		var whole, parts Parser
		want, got := parseAll(&whole, b), parseAll(&parts, b[:cut], b[cut:])
		if d := cmp.Diff(want, got); d != "" || whole.Skipped != parts.Skipped {
			t.Errorf("cut at %d of %d: %s", cut, len(b), d)
		}
		if len(want)*RecordBytes > len(b) {
			t.Errorf("%d records of %d bytes", len(want), len(b))
		}
	})
}

func BenchmarkParser(b *testing.B) {
	_, data := records(10_000)
	var p Parser
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		rest := data
		for {
			n, ok := p.Next(rest)
			rest = rest[n:]
			if !ok {
				break
			}
		}
	}
}

// A line that fell silent behind a record gives it up, once; one that fell
// silent within a record does not: what is there may be a loss.
func TestRestsBehindAWholeRecord(t *testing.T) {
	want, b := records(30)
	for tail := range RecordBytes {
		var p Parser
		var got []Record
		for rest := b[:20*RecordBytes+tail]; ; {
			n, ok := p.Next(rest)
			if rest = rest[n:]; !ok {
				break
			}
			got = append(got, p.Record)
		}
		released := p.Rest()
		if released != (tail == 0) {
			t.Errorf("silent %d bytes into a record: released %v", tail, released)
		}
		if released {
			got = append(got, p.Record)
		}
		if p.Rest() {
			t.Error("released twice")
		}
		got = append(got, parseAll(&p, b[20*RecordBytes+tail:])...)
		if d := cmp.Diff(want, got); d != "" || p.Skipped != 0 {
			t.Errorf("silent %d bytes into a record: skipped %d\n%s", tail, p.Skipped, d)
		}
	}
}

// sharedData finds the public recordings beside the repository.
func sharedData(t *testing.T, parts ...string) []byte {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	b, err := os.ReadFile(filepath.Join(append([]string{dir, "..", "shared", "data", "pmd"}, parts...)...))
	if err != nil {
		t.Skip("the public recordings are not here: ", err)
	}
	return b
}

func collector() *montest.Collector {
	in := Inputs(Defaults())
	return &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
}

var recordings = map[string]int{"3090-square": 47940, "3090-step": 66852, "a100-step": 67051, "k40m-step": 67015}

func TestPublicRecordings(t *testing.T) {
	for name, n := range recordings {
		t.Run(name, func(t *testing.T) {
			data := sharedData(t, name, "PMD_data.bin")
			out := collector()
			if err := ReadRecording(bytes.NewReader(data), Defaults(), instrument.SinkOf(out)); err != nil {
				t.Fatal(err)
			}
			if got := len(out.Scans()); got != n {
				t.Errorf("%d scans, want %d", got, n)
			}
			if e := out.Events(0); len(e) != 0 {
				t.Errorf("events: %+v", e)
			}
			// The time that passed is the sum of the stamps' steps, apart from the parser.
			var want int64
			stamp := func(i int) uint16 { return binary.LittleEndian.Uint16(data[i*RecordBytes:]) }
			for i := 1; i < n; i++ {
				want += int64(stamp(i) - stamp(i-1))
			}
			ticks := out.Ticks()
			if got := ticks[len(ticks)-1]; got != want {
				t.Errorf("%d ticks in all, want %d", got, want)
			}
		})
	}
}

// A recording that begins in the middle of a record and is read a byte at a time
// yields the same scans.
func TestRecordingFromItsMiddle(t *testing.T) {
	data := sharedData(t, "k40m-step", "PMD_data.bin")[:2000*RecordBytes]
	for _, from := range []int{1, 2, 9, 17} {
		out := collector()
		if err := ReadRecording(iotest.OneByteReader(bytes.NewReader(data[from:])), Defaults(),
			instrument.SinkOf(out)); err != nil {
			t.Fatal(err)
		}
		if got := len(out.Scans()); got != 1999 || len(out.Events(0)) != 0 {
			t.Errorf("from byte %d: %d scans, events %+v", from, got, out.Events(0))
		}
		if got, want := out.Counts(7)[0],
			measure.Count(int16(binary.LittleEndian.Uint16(data[RecordBytes+16:]))>>4); got != want {
			t.Errorf("from byte %d: EPS2's current %d, want %d", from, got, want)
		}
	}
}

// Bytes lost from a real recording: the scans that remain keep their time.
func TestRecordingWithLosses(t *testing.T) {
	data := sharedData(t, "3090-step", "PMD_data.bin")[:20_000*RecordBytes]
	whole := collector()
	if err := ReadRecording(bytes.NewReader(data), Defaults(), instrument.SinkOf(whole)); err != nil {
		t.Fatal(err)
	}
	var cut []byte
	for i := range 10 { // ten losses of 1 to 10 bytes
		cut = append(cut, data[i*36_000+i+1:(i+1)*36_000]...)
	}
	out := collector()
	if err := ReadRecording(bytes.NewReader(cut), Defaults(), instrument.SinkOf(out)); err != nil {
		t.Fatal(err)
	}
	if lost := out.Lost(); lost < 9 || lost > 20 {
		t.Errorf("%d scans lost", lost)
	}
	a, b := whole.Ticks(), out.Ticks()
	if d := a[len(a)-1] - b[len(b)-1]; d != a[1] { // the first record lost a byte: time zero is the second
		t.Errorf("the end lies %d ticks off, want %d", d, a[1])
	}
}

// serial makes records with the given steps of the stamp; counts follow the index.
func serial(steps []int) []byte {
	var out []byte
	stamp := 65000
	for i, s := range steps {
		stamp += s
		out = binary.LittleEndian.AppendUint16(out, uint16(stamp))
		for c := range Channels {
			v := 1580 // 12 V
			if c%2 == 1 {
				v = i%7 - 3 // also negative
			}
			out = binary.LittleEndian.AppendUint16(out, uint16(v<<4))
		}
	}
	return out
}

func constant(n, step int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = step
	}
	return out
}

func TestTotals(t *testing.T) {
	steps := constant(400, 602)
	steps[200] = 3000 // three records lost
	i, n, at := 0, 0, 0.0
	for s, err := range Totals(iotest.OneByteReader(bytes.NewReader(serial(steps))), Defaults()) {
		if err != nil {
			t.Fatal(err)
		}
		step := float64(steps[i])
		if i == 199 { // the loss may have bitten into it: it is not believed
			i++
			step += float64(steps[i])
		}
		if i > 0 {
			at += step / Defaults().TickHz
		}
		want := 4 * 1580 * voltsPerCount * float64(i%7-3) * amperesPerCount
		if math.Abs(float64(s.At)-at) > 1e-12 || math.Abs(float64(s.Power)-want) > 1e-9 {
			t.Fatalf("record %d: %v, want %v W at %v s", i, s, want, at)
		}
		if (s.Lost > 0) != (i == 200) || i == 200 &&
			math.Abs(float64(s.Lost)*Defaults().TickHz-(3602-ticksPerScan)) > 1 {
			t.Fatalf("record %d: lost %v", i, s.Lost)
		}
		i++
		n++
	}
	if n != len(steps)-1 {
		t.Errorf("%d records of %d", n, len(steps))
	}
}

func TestTotalsOfDamagedBytes(t *testing.T) {
	raw := serial(constant(300, 602))
	// begins within one, loses a part of another
	cut := append(append([]byte{}, raw[5:100*RecordBytes]...), raw[100*RecordBytes+7:]...)
	var n int
	var skipped uint64
	for s, err := range Totals(bytes.NewReader(cut), Defaults()) {
		if err != nil {
			t.Fatal(err)
		}
		n, skipped = n+1, skipped+s.Skipped
	}
	if n < 296 || skipped == 0 {
		t.Errorf("%d records, %d bytes skipped", n, skipped)
	}
}

func TestTotalsFail(t *testing.T) {
	broken := errors.New("broken")
	var last error
	for _, err := range Totals(io.MultiReader(bytes.NewReader(serial(constant(20, 602))), iotest.ErrReader(broken)),
		Defaults()) {
		last = err
	}
	if !errors.Is(last, broken) {
		t.Errorf("%v", last)
	}
	for _, err := range Totals(bytes.NewReader(nil), Options{}) {
		last = err
	}
	if last == nil || errors.Is(last, broken) {
		t.Errorf("options without a rate: %v", last)
	}
}

func BenchmarkTotals(b *testing.B) {
	const n = 100_000
	raw := serial(constant(n, 602))
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		k := 0
		for _, err := range Totals(bytes.NewReader(raw), Defaults()) {
			if err != nil {
				b.Fatal(err)
			}
			k++
		}
		if k != n {
			b.Fatal(k)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/sample")
}
