package experiment

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/store"
)

// logged is a bench whose steps are noted in the order in which they happen.
type logged struct {
	gpu.Device
	steps []string
	fail  string // the step that fails
}

var errStep = errors.New("the step failed")

func (l *logged) step(name string) error {
	l.steps = append(l.steps, name)
	if name == l.fail {
		return errStep
	}
	return nil
}

func (l *logged) WarmUp(context.Context, time.Duration) error { return l.step("warm up") }

func (l *logged) bench() *Bench {
	return &Bench{
		Device: l, WarmUp: time.Second,
		Open:    func(context.Context) (gpu.PowerSensor, error) { return nil, l.step("open") },
		Prepare: func(context.Context) error { return l.step("prepare") },
	}
}

func (l *logged) work(context.Context) ([]gpu.Kernel, error) {
	return []gpu.Kernel{{Name: "k"}}, l.step("work")
}

// measure stands in for measurement.Measure.
func (l *logged) measure(ctx context.Context, cfg measurement.Config, work measurement.Work) (store.TaskID, error) {
	if _, err := cfg.Open(ctx); err != nil {
		return 0, err
	}
	if err := cfg.Device.WarmUp(ctx, cfg.WarmUp); err != nil {
		return 7, err
	}
	_, err := work(ctx)
	return 7, err
}

func TestRunOrdersItsSteps(t *testing.T) {
	alone := []string{"open", "warm up", "prepare", "work"}
	metered := []string{"open", "prepare", "warm up", "work"}
	for _, tc := range []struct {
		name  string
		meter bool
		fail  string
		steps []string
		want  Ran
	}{
		{"alone", false, "", alone, Ran{Kernels: []gpu.Kernel{{Name: "k"}}}},
		{"alone, GPU lost", false, "open", alone[:1], Ran{}},
		{"alone, cold", false, "warm up", alone[:2], Ran{}},
		{"alone, no plan", false, "prepare", alone[:3], Ran{}},
		{"alone, work failed", false, "work", alone, Ran{Kernels: []gpu.Kernel{{Name: "k"}}}},
		{"metered", true, "", metered, Ran{7, []gpu.Kernel{{Name: "k"}}}},
		{"metered, no plan", true, "prepare", metered[:2], Ran{}},
		{"metered, cold", true, "warm up", metered[:3], Ran{Task: 7}},
		{"metered, work failed", true, "work", metered, Ran{7, []gpu.Kernel{{Name: "k"}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &logged{fail: tc.fail}
			b := l.bench()
			if tc.meter {
				b.Meter, b.Measure = &measurement.Config{Name: "n"}, l.measure
			}
			got, err := b.Run(t.Context(), l.work)
			if (err != nil) != (tc.fail != "") || err != nil && !errors.Is(err, errStep) {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tc.steps, l.steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAroundReadsBeforeAndAfterTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var span, work time.Duration
		l := &logged{}
		read := func(ctx context.Context) { <-ctx.Done(); span = time.Since(begin) }
		_, err := Around(t.Context(), time.Second, 2*time.Second, read,
			func(ctx context.Context) ([]gpu.Kernel, error) {
				work = time.Since(begin)
				return l.work(ctx)
			})
		if err != nil || work != time.Second || span != 3*time.Second || !slices.Equal(l.steps, []string{"work"}) {
			t.Errorf("work began after %v, reading ended after %v: %v", work, span, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errStep)
		if _, err := Around(ctx, time.Second, 0, read, l.work); !errors.Is(err, errStep) || len(l.steps) != 1 {
			t.Errorf("cancelled: %v, steps %v", err, l.steps)
		}
	})
}
