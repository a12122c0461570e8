package perf

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/cluster"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
	"github.com/wattmark/wattmark/store"
)

// A benchmark starts its own program again as the monitor, as an emulated
// instrument, or to export; under test that is the test binary, which must then be the program
// and nothing else.
func init() {
	if len(os.Args) > 2 && (os.Args[1] == "bench" && os.Args[2] == "monitor" ||
		slices.Contains([]string{"emulate", "export", "cluster"}, os.Args[1])) {
		cli.Main(Commands, bench.Commands, exchange.Commands, cluster.Commands)
		os.Exit(0)
	}
}

// runBench runs a benchmark and decodes its JSON.
func runBench(t *testing.T, to any, args ...string) {
	t.Helper()
	runBenchJSON(t, to, append(args, "--dir", t.TempDir())...)
}

func runBenchJSON(t *testing.T, to any, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	args = append(append([]string{"bench"}, args...), "--json")
	if err := cli.Run(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs},
		Commands); err != nil {
		t.Fatalf("wattmark %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatalf("not one JSON object: %v", err)
	}
	if d.More() {
		t.Error("more than one object on standard output")
	}
}

// shared returns the flags of a benchmark in a scratch folder of the test.
func shared(t testing.TB) benchFlagsShared {
	t.Helper()
	return benchFlagsShared{dir: t.TempDir(), transport: "unix"}
}

func checkStream(t *testing.T, name string, r *streamReport) {
	t.Helper()
	switch {
	case r == nil:
		t.Fatalf("%s: no such run", name)
	case r.Gaps != 0 || r.Missing != 0:
		t.Errorf("%s: %d gaps, %d scans missing", name, r.Gaps, r.Missing)
	case r.Stored == 0 || r.Stored > r.Scans:
		t.Errorf("%s: %d scans stored of %d", name, r.Stored, r.Scans)
	case r.DurationS <= 0 || r.Commits == 0 || r.HostCPUS <= 0 || r.MonitorCPUS <= 0:
		t.Errorf("%s: nothing was measured: %+v", name, r)
	}
	if want := float64(r.Stored) / r.DurationS; !near(r.ScansPerS, want) || !near(r.RawBytesPerS, 12*want) {
		t.Errorf("%s: %v scans/s, %v B/s, want %v", name, r.ScansPerS, r.RawBytesPerS, want)
	}
}

func near(a, b float64) bool { return a > b*(1-1e-9) && a < b*(1+1e-9) }

func TestBenchIngest(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "kept.db")
	var r ingestReport
	runBench(t, &r, "ingest", "--seconds", "0.3", "--paced", "0", "--db", db)
	checkStream(t, "full speed", r.Fast)
	if r.Fast.BytesPerScan < 1 || r.Fast.BytesPerScan > goalBytesPerScan {
		t.Errorf("%.3f bytes a scan in the database, want at most %v", r.Fast.BytesPerScan, goalBytesPerScan)
	}
	if r.Fast.PyramidBytes > goalPyramidBytes {
		t.Errorf("%.3f bytes a scan in the pyramid, want at most %v", r.Fast.PyramidBytes, goalPyramidBytes)
	}
	if r.Paced != nil {
		t.Error("a paced run that was left out")
	}
	for _, g := range r.Goals {
		if g.Met != (g.Result >= goalScansPerS) && g.Name == "full speed" {
			t.Errorf("%+v: wrong verdict", g)
		}
	}
	checkSamples(t, db, r.Fast.Stored)
	if err := cli.Run(t.Context(), []string{"bench", "ingest", "--db", db}, cli.Streams{},
		Commands); cli.ExitCode(err) != cli.ExitUsage {
		t.Errorf("onto a database that exists: %v", err)
	}
}

// checkSamples compares every stored count with the one that the generator delivered.
func checkSamples(t *testing.T, path string, want uint64) {
	t.Helper()
	db, err := store.OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	g := NewGenerator(10e6, false)
	g.tag = markerTag
	setup, err := g.Setup(g.Inputs())
	if err != nil {
		t.Fatal(err)
	}
	s := g.newScore()
	var next, n, odd uint64
	var got measure.Block
	for c, err := range db.Chunks(t.Context(), 1, 0) {
		if err == nil {
			err = chunk.Decode(c, setup.Timebase, len(setup.Channels), &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 && c.FirstScan != next {
			t.Fatalf("chunk %d begins at scan %d, want %d", c.No, c.FirstScan, next)
		}
		odd += differing(s, &got)
		n += uint64(c.Scans)
		next = c.FirstScan + uint64(c.Scans)
	}
	if n != want {
		t.Errorf("%d scans in the database, the report says %d", n, want)
	}
	if odd > 0 || s.stop == never {
		t.Errorf("%d of %d scans are not what the generator delivered (stop marker at %d)", odd, n, s.stop)
	}
}

// differing counts the scans that differ from the score. Where the stop
// marker begins is not known before: the first busy scan that is missing is
// its begin, and from there on the score must fit again.
func differing(s *score, got *measure.Block) (odd uint64) {
	for i := 0; i < got.Scans(); {
		scan := got.FirstScan + uint64(i)
		m := min(generatorBlock, uint64(got.Scans()-i), generatorPeriod-scan%generatorPeriod)
		if scan < s.startEnd {
			m = min(m, s.startEnd-scan)
		}
		k := firstOdd(s.block(scan, m), got, i)
		if k < int(m) && s.stop == never {
			s.stop = scan + uint64(k)
			i += k
			continue
		}
		if k < int(m) {
			odd++
		}
		i += int(m)
	}
	return odd
}

// firstOdd is the first scan of want that differs from got's from i on.
func firstOdd(want, got *measure.Block, i int) int {
	first := want.Scans()
	for c, counts := range want.Counts {
		for k := range first {
			if counts[k] != got.Counts[c][i+k] {
				first = k
				break
			}
		}
	}
	return first
}

func TestBenchIngestPaced(t *testing.T) {
	t.Parallel()
	noRaces(t)
	var r ingestReport
	runBench(t, &r, "ingest", "--seconds", "0", "--paced", "2e5", "--paced-seconds", "0.6", "--transport", "tcp")
	checkStream(t, "paced", r.Paced)
	p := r.Paced
	if r.Fast != nil || !p.Paced || p.Transport != "tcp" || p.RateHz != 2e5 {
		t.Errorf("another run than was asked for: %+v", p)
	}
	if !(p.LatencyP50S > 0 && p.LatencyP50S <= p.LatencyP99S && p.LatencyP99S <= p.LatencyMaxS) {
		t.Errorf("latency p50 %v, p99 %v, max %v: a sample is durable after it was taken, and in order", p.LatencyP50S,
			p.LatencyP99S, p.LatencyMaxS)
	}
	if p.ScansPerS > p.RateHz {
		t.Errorf("%v scans/s at a pace of %v", p.ScansPerS, p.RateHz)
	}
}

func TestBenchPyramid(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	goals, err := benchPyramid(t.Context(), io.Discard, ingestFlags{benchFlagsShared: shared(t), seconds: 0.1}, 1)
	if err != nil || len(goals) != 1 || goals[0].Result <= 0 {
		t.Errorf("%+v, %v", goals, err)
	}
}

func TestBenchTrim(t *testing.T) {
	t.Parallel()
	noRaces(t)
	var r trimReport
	runBench(t, &r, "trim", "--captures", "1", "--seconds", "0.05")
	if r.DetectorScansPerS <= 0 || len(r.Sizes) != len(paperSizes) {
		t.Fatalf("%+v", r)
	}
	for i, s := range r.Sizes {
		if want := float64(paperSizes[i].bytes); s.Bytes < 0.8*want {
			t.Errorf("a capture of %.0f bytes, want about %.0f", s.Bytes, want) // a busy machine makes it longer
		}
		if !(s.MonitorP50S > 0 && s.MonitorP50S < s.StopP50S && s.StopP50S <= s.StopP99S && s.HeaderP50S > s.StopP50S) {
			t.Errorf("%+v: the monitor answers before the host hears it, and the header comes after", s)
		}
	}
}

func TestBenchMemory(t *testing.T) {
	t.Parallel()
	noRaces(t)
	r, err := benchMemory(t.Context(), io.Discard, memoryFlags{shared(t), 0.02, 2e5, 60})
	if err != nil {
		t.Fatal(err)
	}
	checkStream(t, "memory", r.Stream)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the resident memory")
	}
	if len(r.SeriesBytes) == 0 || r.RSSMinBytes <= 0 || r.RSSMinBytes > r.RSSMedianBytes ||
		r.RSSMedianBytes > r.RSSMaxBytes {
		t.Errorf("resident memory %v: %v to %v, median %v", r.SeriesBytes, r.RSSMinBytes, r.RSSMaxBytes,
			r.RSSMedianBytes)
	}
}

func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	noRaces(t)
	for _, args := range [][]string{
		{"ingest", "--seconds", "0", "--paced", "0"},
		{"ingest", "--transport", "pigeon"},
		{"trim", "--captures", "0"},
	} {
		err := cli.Run(t.Context(), append([]string{"bench"}, args...),
			cli.Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}, Commands)
		if cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("bench %s: %v, want a usage error", strings.Join(args, " "), err)
		}
	}
}

func TestQuantileAndLatencies(t *testing.T) {
	v := make([]float64, 1000)
	for i := range v {
		v[i] = float64(i)
	}
	if quantile(v, 0.5) != 499 || quantile(v, 0.99) != 989 || quantile(v[:1], 0) != 0 || quantile(v, 1) != 999 ||
		quantile(nil, 0.5) != 0 {
		t.Error("quantiles of 0 to 999 are off")
	}
	begun := time.Unix(1700000000, 0)
	// One chunk of a second at 4096 scans/s that is safe a second after its end.
	l := latencies([]durable{{begun.Add(2e9), 0, 4096}}, begun, 4096)
	if len(l) != 4 || l[0] < 1 || l[3] > 2 || l[0] != 1.125 || l[3] != 1.875 {
		t.Errorf("latencies %v", l)
	}
}

// The detector finds the markers that the generator plays, and no others.
func TestGeneratorPlaysMarkers(t *testing.T) {
	for _, rate := range []measure.Hertz{trimRate, 1e6} {
		g := NewGenerator(rate, false)
		g.tag = markerTag
		setup, err := g.Setup(g.Inputs())
		if err != nil {
			t.Fatal(err)
		}
		s := g.newScore()
		spec := marker.ProfileFor(setup, g.tag)
		det, err := marker.NewDetector(spec, &setup)
		if err != nil {
			t.Fatal(err)
		}
		s.stop = s.startEnd + uint64(rate)/2
		for scan := uint64(0); scan < s.stop+2*s.length; {
			n := min(1000, generatorPeriod-scan%generatorPeriod)
			if err := det.Push(s.block(scan, n)); err != nil {
				t.Fatal(err)
			}
			scan += n
		}
		found := det.Found()
		if len(found) != 2 || found[0].Kind != marker.Start || found[1].Kind != marker.Stop || !found[0].TagOK ||
			!found[1].TagOK {
			t.Fatalf("at %v: found %+v", rate, found)
		}
		guard := float64(spec.Guard) * float64(spec.Chip)
		for i, at := range []uint64{s.start, s.stop} {
			want := float64(at)/float64(rate) + guard
			if d := float64(found[i].T) - want; d > 1e-4 || d < -1e-4 {
				t.Errorf("at %v: marker %d is %v s off", rate, i, d)
			}
		}
	}
}

func TestBenchInstruments(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	r, err := benchInstruments(t.Context(), io.Discard, instrumentsFlags{each: 0.01, record: 0.3, drive: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Decoders {
		if d.Scans == 0 || d.Passes == 0 || d.SamplesPerS <= 0 || d.Channels == 0 || d.Bytes < d.Scans {
			t.Errorf("nothing was measured: %+v", d)
		}
	}
	for _, d := range r.Drivers {
		if d.Samples == 0 || d.Cores <= 0 || d.DurationS <= 0 || !near(d.Rate, float64(d.Samples)/d.DurationS) {
			t.Errorf("nothing was measured: %+v", d)
		}
	}
	if len(r.Decoders) != len(benchSubjects) || len(r.Drivers) != 3 || len(r.Goals) < 8 {
		t.Errorf("%d decoders, %d drivers, %d goals", len(r.Decoders), len(r.Drivers), len(r.Goals))
	}
}

// The decoder of every kind is measured.
func TestDecodersOfAllKinds(t *testing.T) {
	measured := map[string]bool{"nvml": true, "amdsmi": true, "replay": true} // these have no bytes on a line
	for _, s := range benchSubjects {
		measured[bench.DriverOf(s.emulated)] = true
	}
	for _, k := range registry.Kinds() {
		if !measured[k.Name] {
			t.Errorf("no decoder of %s is measured: add it to benchSubjects in cmd/internal/perf/decode_test.go", k.Name)
		}
	}
}

// The tap keeps the longest answer, whole, and none of the bytes sent to the device.
func TestTapKeepsTheLongestAnswer(t *testing.T) {
	mine, theirs := net.Pipe()
	defer mine.Close()
	keep := &tap{fits: func(b []byte) bool { return b[0] != 'x' }}
	device := keep.around(theirs)
	go func() {
		ask := make([]byte, 1)
		for _, parts := range [][]string{{"ab", "cd"}, {"xxxxxxxxxx"}, {"e"}, {"fgh"}} {
			_, _ = device.Read(ask)
			for _, s := range parts {
				_, _ = device.Write([]byte(s))
			}
		}
		_ = device.Close()
	}()
	for range 4 {
		_, _ = mine.Write([]byte("?"))
		b := make([]byte, 20)
		_, _ = mine.Read(b)
		if b[0] == 'a' {
			_, _ = mine.Read(b)
		}
	}
	if _, err := mine.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if got := string(keep.longest()); got != "abcd" {
		t.Errorf("%q", got)
	}
}

// noRaces skips a test of timing, and of stored tasks, under the race detector, where the
// database takes twenty times as long.
func noRaces(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector distorts what is timed here")
	}
}
