package measurement_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/store"
)

// driver is a sensor that also lists the processes on the GPU, as busy as they are said to be.
type driver struct {
	gpu.PowerSensor
	use func(within gpu.Span) ([]gpu.ProcessUse, error)
}

func (d driver) Processes(within gpu.Span) ([]gpu.ProcessUse, error) { return d.use(within) }

// marked measures a server that works for the first second of each six, with a mark each so often.
func marked(t *testing.T, b *bench, sensor gpu.PowerSensor, m measurement.Marks, length time.Duration) (store.Task, []serving.Window) {
	t.Helper()
	cfg := b.config()
	cfg.Sensor, cfg.NoMethods, cfg.Marks = sensor, true, m
	rng := rand.New(rand.NewPCG(1, 2))
	var windows []serving.Window
	id, err := measurement.Measure(t.Context(), cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
		begin := time.Now()
		for time.Since(begin) < length {
			for until := time.Now().Add(time.Second); time.Now().Before(until); {
				at := time.Now()
				if _, err := b.live.SetLevel(at, measure.Watt(60+200*rng.Float64())); err != nil {
					return nil, err
				}
				time.Sleep(20 * time.Millisecond)
				windows = append(windows, serving.Window{ID: "w", Begin: at.UnixNano(), End: time.Now().UnixNano()})
			}
			if _, err := b.live.SetLevel(time.Now(), 50); err != nil {
				return nil, err
			}
			time.Sleep(5 * time.Second)
		}
		return nil, ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.task(t, id), windows
}

// A server with pauses has marks in them, but for work that resumes within the driver's period of samples. Windows
// without a mark have the board's energies, those at the very ends of the task included.
func TestMarksInPauses(t *testing.T) {
	coverage.Long(t)
	inVirtualTimeWith(t, meter.Config{Seed: 5, Rate: 4.8e3, Draw: true}, func(t *testing.T, b *bench) {
		begin := time.Now()
		sensor := driver{b.sensor, func(gpu.Span) ([]gpu.ProcessUse, error) {
			// As an H200's: the share of the second before, anew each 200 ms.
			busy := 0.0
			end := time.Since(begin).Truncate(200 * time.Millisecond)
			for at := end - time.Second; at < end; at += 10 * time.Millisecond {
				if at > 0 && at%(6*time.Second) < 1300*time.Millisecond {
					busy += 0.01
				}
			}
			return []gpu.ProcessUse{{PID: 1, Busy: busy}}, nil
		}}
		task, windows := marked(t, b, sensor, measurement.Marks{Every: 7 * time.Second}, 40*time.Second)
		played, err := b.db.Played(t.Context(), task.ID)
		if err != nil {
			t.Fatal(err)
		}
		marks := 0
		for _, p := range played {
			if p.Kind == marker.Mark && p.Chip == 0 {
				marks++
			}
		}
		if marks < 3 || !strings.Contains(task.Reason, "marks amid the work") || task.State != store.Complete {
			t.Fatalf("%d marks, %v: %s", marks, task.State, task.Reason)
		}
		w := &measurement.ServedWindows{Windows: append(windows, serving.Window{ID: "all", Begin: windows[0].Begin, End: windows[len(windows)-1].End})}
		if err := measurement.AddWindows(t.Context(), b.db, task.ID, *w); err != nil {
			t.Fatal(err)
		}
		got, err := measurement.Windows(t.Context(), b.db, task.ID)
		if err != nil {
			t.Fatal(err)
		}
		in, n, whole := 0, 0, 0
		for _, w := range got.Windows {
			if w.ID == "all" {
				if whole++; w.Marks < measure.Seconds(marks-1)*0.05 {
					t.Errorf("%v of marks in the window over all", w.Marks)
				}
				continue
			}
			e, err := b.live.Energy(time.Unix(0, w.Begin), time.Unix(0, w.End))
			if w.Marks > 0 {
				continue
			}
			if err != nil || w.Share == nil {
				t.Fatalf("%+v, %v; %s, %v", w, err, task.Reason, got.Notes)
			}
			// It shares with the one over all.
			if n++; math.Abs(float64(w.Energy-e.Total/2)) <= float64(w.U) {
				in++
			}
		}
		t.Logf("%d marks, %d of %d windows within U; %s; %v", marks, in, n, task.Reason, got.Notes)
		if whole != 1 || len(got.Notes) != 1 || n < len(windows)*4/5 || float64(in) < 0.9*float64(n) {
			t.Errorf("%d of %d windows within U, notes %v", in, n, got.Notes)
		}
	})
}

// Where the GPU is never idle, or nothing shows that, no mark is played, and the task has the reason; at the user's
// wish they are played at any time.
func TestMarksOfABusyGPU(t *testing.T) {
	coverage.Long(t)
	for name, c := range map[string]struct {
		use    func(gpu.Span) ([]gpu.ProcessUse, error)
		busy   bool
		reason string
	}{
		"busy": {func(gpu.Span) ([]gpu.ProcessUse, error) { return []gpu.ProcessUse{{PID: 1, Busy: 1}}, nil }, false, "never idle"},
		// One sample each 200 ms, and calls that take 17 ms, as on an H200: some fall between a call and its answer.
		"sampled": {func(within gpu.Span) ([]gpu.ProcessUse, error) {
			time.Sleep(17 * time.Millisecond)
			newest := time.Now().Truncate(200 * time.Millisecond)
			use := gpu.ProcessUse{PID: 1}
			if !newest.After(within.End) {
				use.Busy = 0.99
			}
			return []gpu.ProcessUse{use}, nil
		}, false, "never idle"},
		"unknown": {func(gpu.Span) ([]gpu.ProcessUse, error) { return []gpu.ProcessUse{{PID: 1, Busy: math.NaN()}}, nil }, false, "nothing shows"},
		"hidden":  {func(gpu.Span) ([]gpu.ProcessUse, error) { return nil, nil }, false, "nothing shows"},
		"failed":  {func(gpu.Span) ([]gpu.ProcessUse, error) { return nil, errors.New("gone") }, false, "gone"},
		"forced":  {func(gpu.Span) ([]gpu.ProcessUse, error) { return nil, nil }, true, "marks amid the work"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTimeWith(t, meter.Config{Seed: 5, Rate: 4.8e3}, func(t *testing.T, b *bench) {
				task, _ := marked(t, b, driver{b.sensor, c.use}, measurement.Marks{Every: 2 * time.Second, Busy: c.busy}, 11*time.Second)
				if !strings.Contains(task.Reason, c.reason) || task.State != store.Complete || task.Clock == nil {
					t.Errorf("%v: %s", task.State, task.Reason)
				}
			})
		})
	}
	inVirtualTime(t, func(t *testing.T, b *bench) {
		cfg := b.config()
		cfg.Marks.Every = 100 * time.Millisecond
		if id, err := measurement.Measure(t.Context(), cfg, b.memory(time.Second)); id != 0 || !errors.Is(err, marker.ErrSpec) {
			t.Errorf("marks that follow each other: task %d, %v", id, err)
		}
	})
}
