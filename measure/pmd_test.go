package measure

import (
	"bufio"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sharedData returns the folder of public recordings beside the repository, and
// skips the test where there is none.
func sharedData(t testing.TB, elem ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Skip("no go.mod above the test's folder")
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(append([]string{dir, "..", "shared", "data"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("recordings are not there: %v", err)
	}
	return path
}

// pmdBlock decodes 18-byte records: a 16-bit time stamp that wraps, then eight
// channels of 12 signed bits in the upper part of 16.
func pmdBlock(t testing.TB, raw []byte) *Block {
	t.Helper()
	n := len(raw) / 18
	b := &Block{Ticks: make([]int64, n), Counts: make([][]Count, 8)}
	for c := range b.Counts {
		b.Counts[c] = make([]Count, n)
	}
	var last uint16
	var tick int64
	for i := range n {
		rec := raw[18*i:]
		stamp := binary.LittleEndian.Uint16(rec)
		if i > 0 {
			tick += int64(stamp - last)
		}
		last, b.Ticks[i] = stamp, tick
		for c := range b.Counts {
			b.Counts[c][i] = Count(int16(binary.LittleEndian.Uint16(rec[2+2*c:])) >> 4)
		}
	}
	return b
}

func pmdSetup() *Setup {
	s := &Setup{Timebase: Timebase{TickHz: 2.9345e6, UTickHz: 1e-4, TicksPerScan: 613, Stamped: true}, Missing: []string{"pcie_3v3"}}
	for i, name := range []string{"pcie1", "pcie2", "eps1", "eps2"} {
		s.Channels = append(s.Channels,
			Channel{Name: name + ".voltage", Unit: UnitVolt, Gain: 0.007568, UGain: 0.005},
			Channel{Name: name + ".current", Unit: UnitAmpere, Gain: 0.0488, UGain: 0.01})
		s.Rails = append(s.Rails, Rail{Name: name, Role: RolePSU, Wiring: WiringClamp, X: 2*i + 1, Y: 2 * i})
	}
	return s
}

// hostTimes reads the numbers of a file, host times in µs since 1970; a line
// that is no number is a heading.
func hostTimes(t testing.TB, path string) []int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []int64
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if v, err := strconv.ParseInt(strings.TrimSpace(sc.Text()), 10, 64); err == nil {
			out = append(out, v)
		}
	}
	return out
}

func TestPublicRecordings(t *testing.T) {
	for _, c := range []struct {
		run   string
		meter Joule
	}{
		{"3090-square", 2392.5},
		{"3090-step", 3438.9},
		{"a100-step", 1579.9},
		{"k40m-step", 945.9},
	} {
		t.Run(c.run, func(t *testing.T) {
			dir := sharedData(t, "pmd", c.run)
			raw, err := os.ReadFile(filepath.Join(dir, "PMD_data.bin"))
			if err != nil {
				t.Fatal(err)
			}
			start := hostTimes(t, filepath.Join(dir, "PMD_start_ts.txt"))[0] - 50000
			kernels := hostTimes(t, filepath.Join(dir, "timestamps.csv"))
			after := func(host int64) Seconds { return Seconds(float64(host-start) * 1e-6) }
			from, to := after(kernels[0]), after(kernels[len(kernels)-1])

			s, b := pmdSetup(), pmdBlock(t, raw)
			whole := integrate(t, s, from, to, Edges{}, *b)
			if d := math.Abs(float64(whole.Total.Energy/c.meter - 1)); d > 5e-4 {
				t.Errorf("energy %.2f J, want %.1f J within 0.05 %%", float64(whole.Total.Energy), float64(c.meter))
			}
			parts := integrate(t, s, from, to, Edges{}, split(s.Timebase, *b, 1000)...)
			if d := math.Abs(float64(parts.Total.Energy/whole.Total.Energy - 1)); d > 1e-12 {
				t.Errorf("in blocks of 1000 scans the energy differs by %g", d)
			}
			t.Logf("%.3f ± %.3f J from %v to %v, mean %v, peak %v, %d samples", float64(whole.Total.Energy),
				float64(whole.Total.U), whole.From, whole.To, whole.Mean, whole.Peak, whole.Samples)
		})
	}
}
