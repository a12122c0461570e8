package marker

import (
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

// recordings returns the folder of recordings beside the repository.
func recordings(t *testing.T) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	dir = filepath.Join(dir, "..", "shared", "data")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("recordings are not here: ", err)
	}
	return dir
}

const pmdTickHz = 2.9345e6

func pmdSetup() *measure.Setup {
	s := &measure.Setup{Timebase: measure.Timebase{TickHz: pmdTickHz, TicksPerScan: 0.209e-3 * pmdTickHz, Stamped: true}}
	for i, name := range []string{"pcie1", "pcie2", "eps1", "eps2"} {
		s.Channels = append(s.Channels,
			measure.Channel{Name: name + ".v", Unit: measure.UnitVolt, Gain: 7.568e-3},
			measure.Channel{Name: name + ".i", Unit: measure.UnitAmpere, Gain: 48.8e-3})
		s.Rails = append(s.Rails, measure.Rail{Name: name, Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 2*i + 1, Y: 2 * i})
	}
	return s
}

// readPMD decodes the raw bytes of a PMD-USB: a 16-bit time stamp and eight
// 12-bit values, left-justified, a record.
func readPMD(t *testing.T, run string) measure.Block {
	raw, err := os.ReadFile(filepath.Join(recordings(t), "pmd", run, "PMD_data.bin"))
	if err != nil {
		t.Skip(err)
	}
	b := measure.Block{Counts: make([][]measure.Count, 8)}
	var tick int64
	for i := 0; i+18 <= len(raw); i += 18 {
		stamp := int64(binary.LittleEndian.Uint16(raw[i:]))
		if i == 0 {
			tick = stamp
		}
		tick += (stamp - tick) & 0xffff
		b.Ticks = append(b.Ticks, tick)
		for c := range b.Counts {
			b.Counts[c] = append(b.Counts[c], measure.Count(int16(binary.LittleEndian.Uint16(raw[i+2+2*c:]))>>4))
		}
	}
	for i := len(b.Ticks) - 1; i >= 0; i-- {
		b.Ticks[i] -= b.Ticks[0]
	}
	return b
}

var pmdRuns = []string{"3090-square", "3090-step", "a100-step", "k40m-step"}

// TestRecordedWorkHasNoMarker looks for every code, at several lengths of the
// chip, in what an external meter saw of real GPUs at work.
func TestRecordedWorkHasNoMarker(t *testing.T) {
	coverage.Long(t)
	for _, run := range pmdRuns {
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			b := readPMD(t, run)
			t.Logf("%d scans, %.1f s", b.Scans(), float64(b.Ticks[len(b.Ticks)-1])/pmdTickHz)
			for _, code := range []Code{M31, M15, Barker13, UpDown} {
				for _, chip := range []measure.Seconds{2e-3, FastProfile(4785, 0).Chip, 13e-3, 50e-3} {
					spec := FastProfile(4785, 1)
					spec.Code, spec.Chip = code, chip
					for _, f := range detect(spec, pmdSetup(), b) {
						t.Errorf("%v, chip %v: false %v marker at %v, correlation %.3f, step %v", code, chip, f.Kind, f.T, f.Correlation, f.Step)
					}
				}
			}
		})
	}
}

// TestMarkersOnRecordedNoise adds markers to what a real meter saw, so that its
// noise, its stamps' jitter and the GPU's own drift are real.
func TestMarkersOnRecordedNoise(t *testing.T) {
	for _, run := range pmdRuns {
		t.Run(run, func(t *testing.T) {
			recorded := readPMD(t, run)
			var tr trial
			for seed := range uint64(10) {
				rng := newRand(seed)
				spec := FastProfile(4785, rng.Uint32())
				// The work of these runs begins after the first half second.
				levels, t0, end := play([]level{{0, 0}}, spec, Start, 0.05+0.15*rng.Float64(), 0, 100)
				levels = append(levels, level{end, 0})
				gpu := board{levels: levels, rise: 0.3e-3, fal: 0.3e-3}
				b := recorded.Slice(pmdSetup().Timebase, 0, 5000)
				b.Counts[1] = append([]measure.Count(nil), b.Counts[1]...)
				for i := range b.Counts[1] {
					w := gpu.at(float64(b.Ticks[i]) / pmdTickHz)
					b.Counts[1][i] += measure.Count(math.Round(w/12/48.8e-3 + rng.Float64() - 0.5))
				}
				tr.add(spec, detect(spec, pmdSetup(), b), map[Kind]float64{Start: t0})
			}
			tr.check(t, 15e-6, 0.35, 1.8, 0)
		})
	}
}

// TestRecordedSensorHasNoMarker looks into an H200's own readings: phases of two
// seconds, then alternations from 200 down to 10 ms.
func TestRecordedSensorHasNoMarker(t *testing.T) {
	f, err := os.Open(filepath.Join(recordings(t), "h200", "nvml-power.csv"))
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	// The file has no header; columns 1 to 3 are instant, average and usage in mW.
	for column, response := range map[int]measure.Response{
		1: {Window: 25e-3, Update: 0.1}, 2: {Window: 1, Update: 0.1}, 3: {Window: 1, Update: 0.1},
	} {
		setup := (sensorSim{poll: 4e-3}).setup()
		setup.Response = response
		b := measure.Block{Counts: make([][]measure.Count, 1)}
		for i, row := range rows {
			v, err := strconv.Atoi(row[column])
			if err != nil {
				t.Fatalf("row %d: %v", i, err)
			}
			us, err := strconv.ParseInt(row[0], 10, 64)
			if err != nil {
				t.Fatalf("row %d: %v", i, err)
			}
			b.Counts[0] = append(b.Counts[0], measure.Count(v))
			b.Ticks = append(b.Ticks, us*1000)
		}
		for i := len(b.Ticks) - 1; i >= 0; i-- {
			b.Ticks[i] -= b.Ticks[0]
		}
		for _, code := range []Code{M31, M15, Barker13} {
			for _, scale := range []measure.Seconds{1, 0.77, 1.53} {
				spec := ProfileFor(*setup, 3)
				spec.Code, spec.Chip = code, spec.Chip*scale
				for _, f := range detect(spec, setup, b) {
					t.Errorf("column %d, %v, chip %v: false marker %s", column, code, spec.Chip, fmt.Sprint(f))
				}
			}
		}
	}
}

// session is a recording of markers that a host played on an H200, timed by the
// GPU's clock, and of what the GPU's own sensor showed.
type session struct {
	Started time.Time
	Marker  struct {
		Code    Code
		Chip    measure.Seconds `json:"chip_s"`
		Guard   int             `json:"guard_chips"`
		TagBits int             `json:"tag_bits"`
		Tag     uint32
	}
	Played []struct {
		Kind Kind
		Chip int
		At   time.Time
	}
	setup measure.Setup
	block measure.Block
}

func readSession(t *testing.T, name string) *session {
	t.Helper()
	dir := filepath.Join("..", "..", "testdata", "h200", name)
	var s session
	var meter struct {
		Timebase struct {
			TickHz       measure.Hertz `json:"tick_hz"`
			TicksPerScan float64       `json:"ticks_per_scan"`
		}
		Response struct {
			Window measure.Seconds `json:"window_s"`
			Update measure.Seconds `json:"update_s"`
		}
		Channels []struct {
			Name string
			Gain float64
			Skew measure.Seconds `json:"skew_s"`
		}
	}
	for file, into := range map[string]any{"host.json": &s, "recording.json": &meter} {
		raw, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil {
			err = json.Unmarshal(raw, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := meter.Channels[0]
	s.setup = measure.Setup{
		Timebase: measure.Timebase{TickHz: meter.Timebase.TickHz, TicksPerScan: meter.Timebase.TicksPerScan, Stamped: true},
		Channels: []measure.Channel{{Name: c.Name, Unit: measure.UnitWatt, Gain: c.Gain, Skew: c.Skew}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
		Response: measure.Response{Window: meter.Response.Window, Update: meter.Response.Update},
	}
	s.readScans(t, filepath.Join(dir, "scans.csv"))
	return &s
}

func (s *session) readScans(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	s.block.Counts = make([][]measure.Count, 1)
	for _, row := range rows[1:] {
		tick, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		count, err := strconv.Atoi(row[2])
		if err != nil {
			t.Fatal(err)
		}
		s.block.Ticks = append(s.block.Ticks, tick)
		s.block.Counts[0] = append(s.block.Counts[0], measure.Count(count))
	}
	s.block.FirstTick = s.block.Ticks[0]
}

// late is how far a marker was found behind the time at which it was played.
func (s *session) late(f *Found) float64 {
	for _, p := range s.Played {
		if p.Kind == f.Kind && p.Chip == 0 {
			return float64(f.T) - p.At.Sub(s.Started).Seconds()
		}
	}
	return math.NaN()
}

// TestMarkersOfAnH200 compares markers that an H200's own sensor saw with the GPU's clock, with the response
// of today's driver. No constant of the detector or the driver was set on "markers", which were
// recorded on another card afterwards; they are judged alone, too.
func TestMarkersOfAnH200(t *testing.T) {
	sessions := []string{"memory", "compute", "half", "pulse", "pulse2"}
	older := len(sessions)
	for i := 1; i <= 8; i++ {
		sessions = append(sessions, fmt.Sprint("markers/", i))
	}
	var all, recent []float64
	least, most := math.Inf(1), math.Inf(-1)
	for i, name := range sessions {
		s := readSession(t, name)
		m := s.Marker
		s.setup.Channels[0].Skew, s.setup.Response = -10e-3, measure.Response{Update: 0.1, Tau: 13.2e-3}
		found := detect(Spec{m.Code, m.Chip, m.Guard, m.TagBits, m.Tag}, &s.setup, s.block)
		start, stop := Pair(found)
		if len(found) != 2 || start == nil || stop == nil {
			t.Fatalf("%s: found %+v", name, found)
		}
		for _, f := range []*Found{start, stop} {
			late := s.late(f)
			z := late / float64(f.U)
			t.Logf("%-10s %-5v %+6.2f ms late, u %.2f ms, z %+.2f, correlation %.4f", name, f.Kind, late*1e3,
				float64(f.U)*1e3, z, f.Correlation)
			if math.Abs(z) > 2 || f.Correlation < 0.97 || f.U > 8e-3 {
				t.Errorf("%s, %v: %v s late, %+v", name, f.Kind, late, f)
			}
			least, most = min(least, late), max(most, late)
			all = append(all, z)
			if i >= older {
				recent = append(recent, z)
			}
		}
	}
	t.Logf("%+.1f to %+.1f ms; normalised rms %.2f, of the later recordings alone %.2f", least*1e3, most*1e3, rms(all), rms(recent))
	said := strings.ReplaceAll(fmt.Sprintf("%.1f to %+.1f ms", 1e3*least, 1e3*most), "-", "−")
	for _, page := range []string{"README.md", "docs/instruments.md"} {
		if text, err := os.ReadFile(filepath.Join("../..", page)); err != nil || !strings.Contains(string(text), said) {
			t.Errorf("%s: want %q there: %v", page, said, err)
		}
	}
	if r := rms(all); r < 0.8 || r > 1.2 {
		t.Errorf("normalised rms %.2f of %d, want 0.8 to 1.2", r, len(all))
	}
	if r := rms(recent); math.Abs(r-1) > 2/math.Sqrt(2*float64(len(recent))) {
		t.Errorf("normalised rms %.2f of the later %d, want 1 within two of its standard deviations", r, len(recent))
	}
}
