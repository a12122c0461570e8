package clock

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// recording is a public run: the meter's power against its own time stamps,
// and the host's times of the kernels' starts and ends, in seconds.
type recording struct{ t, watt, kernels []float64 }

func readRecording(t *testing.T, run string) recording {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == filepath.Dir(dir) {
			break
		}
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, "..", "shared", "data", "pmd", run, name))
		if err != nil {
			t.Skipf("recordings are not there: %v", err)
		}
		return b
	}
	raw, out := read("PMD_data.bin"), recording{}
	var tick int64
	for i := 0; i+18 <= len(raw); i += 18 {
		if i > 0 {
			tick += int64(binary.LittleEndian.Uint16(raw[i:]) - binary.LittleEndian.Uint16(raw[i-18:]))
		}
		var p float64
		for c := i + 2; c < i+18; c += 4 {
			volt := int16(binary.LittleEndian.Uint16(raw[c:])) >> 4
			ampere := int16(binary.LittleEndian.Uint16(raw[c+2:])) >> 4
			p += float64(volt) * 0.007568 * float64(ampere) * 0.0488
		}
		out.t, out.watt = append(out.t, float64(tick)/2.9345e6), append(out.watt, p)
	}
	start, err := strconv.ParseInt(strings.TrimSpace(string(read("PMD_start_ts.txt"))), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(string(read("timestamps.csv"))) {
		if v, err := strconv.ParseInt(f, 10, 64); err == nil {
			out.kernels = append(out.kernels, float64(v-start+50000)*1e-6)
		}
	}
	out.kernels = slices.Compact(out.kernels)
	return out
}

// crossing returns the meter's time at which the power crosses the middle of
// the levels around a host time, the first within 80 scans of it.
func (r recording) crossing(host float64) (at float64, ok bool) {
	mean := func(v []float64) (m float64) {
		for _, p := range v {
			m += p / float64(len(v))
		}
		return m
	}
	i := sort.SearchFloat64s(r.t, host)
	a, b := mean(r.watt[i-60:i-30]), mean(r.watt[i+30:i+60])
	level := (a + b) / 2
	for j := i - 80; j < i+80; j++ {
		p, q := r.watt[j], r.watt[j+1]
		if (p < level) != (q < level) && (q > p) == (b > a) {
			return r.t[j] + (level-p)/(q-p)*(r.t[j+1]-r.t[j]), true
		}
	}
	return 0, false
}

// The kernels of a public run against the edges of its power: a clock that
// drifts by some 500 ppm, and a last time stamp that marks no edge at all.
func TestFitClockOnARecording(t *testing.T) {
	r := readRecording(t, "3090-square")
	var obs []Obs
	for _, h := range r.kernels {
		if m, ok := r.crossing(h); ok {
			obs = append(obs, Obs{Host: measure.Seconds(h), Meter: measure.Seconds(m), U: 0.2e-3})
		}
	}
	f := fit(t, obs, Prior{URate: 1e-3})
	t.Logf("%d edges: offset %v, drift %.0f ppm ± %.1f, residual %v rms, %d rejected", len(obs), f.A, 1e6*(f.B-1), 1e6*math.Sqrt(f.VarB), f.RMS, f.Rejected)
	if f.Used < 155 || f.Rejected < 1 {
		t.Errorf("used %d edges and rejected %d of %d, want nearly all used and the false one rejected", f.Used, f.Rejected, len(obs))
	}
	if f.RMS > 0.3e-3 {
		t.Errorf("residual %v rms, want at most 0.3 ms", f.RMS)
	}
	if drift := f.B - 1; drift < 400e-6 || drift > 650e-6 {
		t.Errorf("drift %.0f ppm, want about 530", 1e6*drift)
	}
}
