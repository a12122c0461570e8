package marker

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"wattmark/measure"
)

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

// TestMarkersOfAnH200 compares the two markers of a session: the sensor's lag is
// another one in each session, but both markers share it, and must agree within
// their uncertainties. Updates are left out in all of them, and the lag of
// "memory" falls back by 20 ms within its stop marker.
func TestMarkersOfAnH200(t *testing.T) {
	for _, name := range []string{"memory", "compute", "half", "pulse"} {
		t.Run(name, func(t *testing.T) {
			s := readSession(t, name)
			m := s.Marker
			spec := Spec{m.Code, m.Chip, m.Guard, m.TagBits, m.Tag}
			found := detect(spec, &s.setup, s.block)
			if len(found) != 2 {
				t.Fatalf("found %+v", found)
			}
			start, stop := Pair(found)
			if start == nil || stop == nil {
				t.Fatalf("no pair in %+v", found)
			}
			for _, f := range []*Found{start, stop} {
				late := s.late(f)
				t.Logf("%v %.2f ms late, U %.2f ms, correlation %.4f", f.Kind, late*1e3, float64(f.U)*1e3, f.Correlation)
				if !(math.Abs(late) < 15e-3) || f.Correlation < 0.99 || f.U > 4e-3 {
					t.Errorf("%v: %v s late, %+v", f.Kind, late, f)
				}
			}
			apart := s.late(stop) - s.late(start)
			if u := math.Hypot(float64(start.U), float64(stop.U)); !(math.Abs(apart) < 2*u) || math.Abs(apart) > 6e-3 {
				t.Errorf("the markers differ by %.2f ms, u %.2f ms", apart*1e3, u*1e3)
			}
		})
	}
}
