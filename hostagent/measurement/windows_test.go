package measurement_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/store"
)

// server is a load of random powers, and windows of 20 ms in it: some begin with a change of the power, and overlap.
type server struct {
	rng     *rand.Rand
	windows []serving.Window
}

// serve lasts for a time in which it opens so many windows, as the work of a measurement.
func (s *server) serve(b *bench, length time.Duration, n int) measurement.Work {
	return func(ctx context.Context) ([]gpu.Kernel, error) {
		begin := time.Now()
		for len(s.windows) < n {
			time.Sleep(time.Duration(s.rng.ExpFloat64() * float64(length) / float64(n+1)))
			at := time.Now()
			if s.rng.IntN(2) == 0 {
				at = at.Add(time.Duration(s.rng.IntN(5e6)))
			}
			s.windows = append(s.windows, serving.Window{
				ID: fmt.Sprint(len(s.windows)), Begin: at.UnixNano(), End: at.Add(20 * time.Millisecond).UnixNano(),
			})
			for range 4 {
				if _, err := b.live.SetLevel(time.Now(), measure.Watt(60+200*s.rng.Float64())); err != nil {
					return nil, err
				}
				time.Sleep(time.Duration(s.rng.IntN(8e6)))
			}
		}
		time.Sleep(max(length-time.Since(begin), 30*time.Millisecond))
		return []gpu.Kernel{{Name: "server", Span: gpu.Span{Start: begin, End: time.Now()}}}, ctx.Err()
	}
}

// truths are the windows' true energies: of the board, in equal shares.
func (s *server) truths(t *testing.T, b *bench) []measure.Joule {
	t.Helper()
	out := make([]measure.Joule, len(s.windows))
	var edges []int64
	for _, w := range s.windows {
		edges = append(edges, w.Begin, w.End)
	}
	for i, w := range s.windows {
		for from := w.Begin; from < w.End; {
			to, open := w.End, 0
			for _, e := range edges[max(0, 2*i-40):min(len(edges), 2*i+40)] {
				if e > from {
					to = min(to, e)
				}
			}
			for _, x := range s.windows[max(0, i-20):min(len(s.windows), i+20)] {
				if x.Begin <= from && x.End > from {
					open++
				}
			}
			e, err := b.live.Energy(time.Unix(0, from), time.Unix(0, to))
			if err != nil {
				t.Fatal(err)
			}
			out[i], from = out[i]+e.Total/measure.Joule(open), to
		}
	}
	return out
}

// written is a folder of windows, as a program leaves it.
func written(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "1.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

// Windows of a server have the board's energies; TestRefereesWindows has captures of an hour.
func TestWindowsOfAServer(t *testing.T) {
	calibrated := meter.Spread{ // gains that hide nothing
		UGainI: 1e-5, UGainV: 1e-5, UOffsetI: 1e-4, UOffsetV: 1e-4, UClock: 50e-6, NoiseI: 0.05, NoiseV: 1e-3,
	}
	inVirtualTimeWith(t, meter.Config{Seed: 5, Rate: 20e3, Spread: calibrated, Draw: true}, windowsOf)
}

func windowsOf(t *testing.T, b *bench) {
	const length, n = 6 * time.Second, 100
	s := &server{rng: rand.New(rand.NewPCG(7, 11))}
	id, err := measurement.Measure(t.Context(), b.config(), s.serve(b, length, n))
	if err != nil {
		t.Fatal(err)
	}
	text := `{"id":"early","begin_ns":1,"end_ns":2}` + "\n" + `{"id":"open","begin_ns":3}` + "\n"
	for _, w := range s.windows {
		text += fmt.Sprintf(`{"id":%q,"begin_ns":%d,"end_ns":%d,"counts":{"tokens":10}}`+"\n", w.ID, w.Begin, w.End)
	}
	if err := measurement.StoreWindows(t.Context(), b.db, id, written(t, text)); err != nil {
		t.Fatal(err)
	}
	got, err := measurement.Windows(t.Context(), b.db, id)
	if err != nil || len(got.Windows) != n+1 || len(got.Notes) != 2 || got.Windows[0].Share != nil {
		t.Fatalf("%d windows, notes %v, %v", len(got.Windows), got.Notes, err)
	}
	in, z2 := 0, 0.0
	for i, truth := range s.truths(t, b) {
		w := got.Windows[1+i]
		if w.Share == nil || w.ID != s.windows[i].ID {
			t.Fatalf("window %d: %+v", i, w)
		}
		z := float64((w.Energy - truth) / w.U)
		if z2 += 4 * z * z; math.Abs(z) <= 1 {
			in++
		}
	}
	t.Logf("%d of %d within U, rms %.2f u", in, n, math.Sqrt(z2/float64(n)))
	if p := 0.93; float64(in) < float64(n)*p-3*math.Sqrt(float64(n)*p*(1-p)) {
		t.Errorf("%d of %d windows have the true energy within U", in, n)
	}
	all, err := got.Served(t.Context(), b.db, id)
	if err != nil || all.Valid != 0 || len(all.Reasons) != 1 || all.Requests != n+1 {
		t.Errorf("with a window before the task's and one without an end: %+v, %v", all, err)
	}
	var sum measure.Share
	for i := range got.Windows[1:] {
		sum.Add(got.Windows[1+i].Share)
	}
	all, err = (&measurement.ServedWindows{Windows: got.Windows[1:]}).Served(t.Context(), b.db, id)
	if err != nil || all.Valid != 1 || !(all.Energy >= sum.Energy) || all.Output != 10*n {
		t.Errorf("of %v: %+v, %v", sum, all, err)
	}
	// Windows that come later, and a new result, are calculated anew.
	more := measurement.ServedWindows{Windows: []serving.Window{{ID: "late", Begin: s.windows[0].Begin, End: s.windows[0].End}}}
	if err := measurement.AddWindows(t.Context(), b.db, id, more); err != nil {
		t.Fatal(err)
	}
	again, err := measurement.Windows(t.Context(), b.db, id)
	if err != nil || len(again.Windows) != n+2 || !(again.Windows[1].Energy < 0.6*got.Windows[1].Energy) {
		t.Errorf("%d windows, the first %v, alone %v, %v", len(again.Windows), again.Windows[1].Estimate, got.Windows[1].Estimate, err)
	}
}

// Without a clock the windows are kept, and have no energies; a task that names none has none.
func TestWindowsWithoutAClock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, b *bench) {
		cfg := b.config()
		cfg.Device = silent{b.device}
		id, err := measurement.Measure(t.Context(), cfg, b.memory(20*time.Millisecond))
		if id == 0 {
			t.Fatal(err)
		}
		if w, err := measurement.Windows(t.Context(), b.db, id); w != nil || err != nil {
			t.Errorf("windows of a task without: %v, %v", w, err)
		}
		if err := measurement.StoreWindows(t.Context(), b.db, id, written(t, `{"id":"a","begin_ns":1,"end_ns":2}`)); err != nil {
			t.Fatal(err)
		}
		w, err := measurement.Windows(t.Context(), b.db, id)
		if w == nil || len(w.Windows) != 1 || w.Windows[0].Share != nil {
			t.Errorf("%+v, %v", w, err)
		}
		if _, err := measurement.Windows(t.Context(), b.db, store.TaskID(99)); err == nil {
			t.Error("windows of no task")
		}
	})
}
