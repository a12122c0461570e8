package measurement_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// place is a host with several GPUs, each with a meter and a monitor of its own.
type place struct {
	db      *store.DB
	benches []*bench
}

func newPlace(t *testing.T, n int) *place {
	t.Helper()
	p := &place{db: openDatabase(t)}
	for i := range n {
		p.benches = append(p.benches, newBenchOn(t, p.db, uint64(10+i), true))
	}
	t.Cleanup(func() {
		if err := p.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// config measures all GPUs, each of which streams memory for as long as lengths says.
func (p *place) config(lengths ...time.Duration) measurement.GroupConfig {
	cfg := measurement.GroupConfig{DB: p.db, Each: p.benches[0].config()}
	for i, b := range p.benches {
		m := measurement.Member{GPU: b.device.Info(), Monitor: b.client, Device: b.device, Sensor: b.sensor}
		if i < len(lengths) {
			m.Work = b.memory(lengths[i])
		}
		cfg.Members = append(cfg.Members, m)
	}
	return cfg
}

func (p *place) group(t *testing.T, id store.GroupID) measurement.GroupResult {
	t.Helper()
	g, err := measurement.ReadGroup(t.Context(), p.db, id)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// check holds every member with a result, and the total of all, against what
// the boards drew.
func (p *place) check(t *testing.T, g *measurement.GroupResult) {
	t.Helper()
	var sum measure.Joule
	for _, i := range g.Summed {
		task, truth := g.Tasks[i], p.benches[i].truth(t, g.Tasks[i].ID)
		sum += truth
		within(t, task.GPUUUID, task.Result.Total, truth)
	}
	within(t, "total", g.Sum.Estimate, sum)
}

func within(t *testing.T, what string, e measure.Estimate, truth measure.Joule) {
	t.Helper()
	t.Logf("%s: %v ± %v, truth %v", what, e.Energy, e.U, truth)
	if off := math.Abs(float64(e.Energy - truth)); off > float64(e.U) || off > 0.005*float64(truth) || e.U <= 0 {
		t.Errorf("%s: %v ± %v, truth %v", what, e.Energy, e.U, truth)
	}
}

func (p *place) mustBeFree(t *testing.T) {
	t.Helper()
	for _, b := range p.benches {
		b.mustBeFree(t)
		if n := b.captures(t); n != 0 {
			t.Errorf("monitor %s still keeps %d captures", b.address, n)
		}
	}
}

// markersAround fails where a work began before the last start marker had ended,
// or a stop marker began before the last work had ended.
func (p *place) markersAround(t *testing.T, g *measurement.GroupResult) {
	t.Helper()
	var begins, ends, starts, stops []time.Time
	for _, task := range g.Tasks {
		k, err := p.db.Kernels(t.Context(), task.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range k {
			begins, ends = append(begins, x.Start), append(ends, x.End)
		}
		edges, err := p.db.Played(t.Context(), task.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range edges {
			if e.Kind == marker.Start {
				starts = append(starts, e.At)
			} else {
				stops = append(stops, e.At)
			}
		}
	}
	by := func(a, b time.Time) int { return a.Compare(b) }
	if first, last := slices.MinFunc(begins, by), slices.MaxFunc(starts, by); first.Before(last) {
		t.Errorf("work began at %v, a start marker ended at %v", first, last)
	}
	if last, first := slices.MaxFunc(ends, by), slices.MinFunc(stops, by); first.Before(last) {
		t.Errorf("work ended at %v, a stop marker began at %v", last, first)
	}
}

// Each GPU has its own work, of its own length.
func TestGroupOfBenchmarks(t *testing.T) {
	p := newPlace(t, 3)
	id, err := measurement.MeasureGroup(t.Context(),
		p.config(100*time.Millisecond, 250*time.Millisecond, 150*time.Millisecond), nil)
	if err != nil {
		t.Fatal(err)
	}
	g := p.group(t, id)
	if g.State != store.Complete || len(g.Summed) != 3 || g.Name != "gemm" || g.User != "lab" {
		t.Fatalf("state %v, summed %v", g.State, g.Summed)
	}
	p.check(t, &g)
	p.markersAround(t, &g)
	tags := map[uint32]bool{}
	for i, task := range g.Tasks {
		if task.State != store.Complete || task.Group != (store.GroupRef{Group: id, Member: i}) ||
			task.BenchGPU != p.benches[i].device.Info().UUID ||
			task.Monitor != p.benches[i].address || len(task.Markers) != 2 || !task.Markers[0].TagOK {
			t.Errorf("member %d: %+v", i, task)
		}
		tags[task.Marker.Tag] = true
		if task.NVML == nil {
			t.Errorf("member %d: its own sensor was not read", i)
		}
	}
	// Three meters, one of which tells no serial number: nothing is shared.
	if s := g.Sum; s.Shared != 0 || s.U != s.Independent || s.AllShared < s.U {
		t.Errorf("sum %+v", s)
	}
	p.mustBeFree(t)
}

// One program works on all GPUs; every member's window is the program's.
func TestGroupOfOneProgram(t *testing.T) {
	p := newPlace(t, 2)
	failed := errors.New("exit status 3")
	id, err := measurement.MeasureGroup(t.Context(), p.config(), func(ctx context.Context) ([]gpu.Kernel, error) {
		kernels, err := p.benches[1].device.RunBenchmark(ctx, gpu.BenchHalf, 100*time.Millisecond)
		return kernels, errors.Join(err, failed)
	})
	if !errors.Is(err, failed) || strings.Count(err.Error(), "exit status 3") != 1 {
		t.Errorf("got %v", err)
	}
	g := p.group(t, id)
	if len(g.Summed) != 2 || g.State != store.Failed {
		t.Fatalf("state %v, summed %v", g.State, g.Summed)
	}
	p.markersAround(t, &g)
	p.check(t, &g)
	for _, task := range g.Tasks {
		if !strings.Contains(task.Reason, "the work failed: exit status 3") {
			t.Errorf("task %d: %s", task.ID, task.Reason)
		}
	}
	if a, b := g.Tasks[0].Result.Total.Energy, g.Tasks[1].Result.Total.Energy; a >= b {
		t.Errorf("the GPU that rested drew %v, the one that worked %v", a, b)
	}
	p.mustBeFree(t)
}

// A monitor that is away is missing; the others are measured.
func TestGroupWithoutAMonitor(t *testing.T) {
	p := newPlace(t, 3)
	cfg := p.config(60*time.Millisecond, 60*time.Millisecond, 60*time.Millisecond)
	gone, err := monitorclient.Dial("127.0.0.1:1", monitorclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gone.Close() })
	cfg.Members[1].Monitor = gone
	cfg.Members[2].Missing = errors.New("its monitor was known to be away")
	var mu sync.Mutex
	lost := map[int]error{}
	cfg.Lost = func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		lost[i] = err
	}
	id, err := measurement.MeasureGroup(t.Context(), cfg, nil)
	if !errors.Is(err, monitorclient.ErrUnreachable) || !strings.Contains(err.Error(), cfg.Members[1].GPU.UUID) {
		t.Errorf("got %v", err)
	}
	g := p.group(t, id)
	if g.State != store.Incomplete || !slices.Equal(g.Summed, []int{0}) || g.Tasks[0].State != store.Complete {
		t.Fatalf("state %v, summed %v", g.State, g.Summed)
	}
	p.check(t, &g)
	if m := g.Members[1]; m.Task != 0 || !strings.Contains(m.Reason, "monitor does not answer") ||
		m.GPUUUID != p.benches[1].device.Info().UUID {
		t.Errorf("member %+v", m)
	}
	if m := g.Members[2]; m.Reason != "its monitor was known to be away" || m.Monitor != "" {
		t.Errorf("member %+v", m)
	}
	if len(lost) != 2 || !errors.Is(lost[1], monitorclient.ErrUnreachable) {
		t.Errorf("lost %v", lost)
	}
	p.mustBeFree(t)
}

func TestGroupOfNobody(t *testing.T) {
	p := newPlace(t, 2)
	cfg := p.config()
	// Each bench measures the other's GPU.
	cfg.Members[0].Monitor, cfg.Members[1].Monitor = cfg.Members[1].Monitor, cfg.Members[0].Monitor
	worked := false
	id, err := measurement.MeasureGroup(t.Context(), cfg, func(context.Context) ([]gpu.Kernel, error) {
		worked = true
		return nil, nil
	})
	if id != 0 || !errors.Is(err, measurement.ErrWrongGPU) || worked {
		t.Errorf("group %d, worked %v: %v", id, worked, err)
	}
	if _, err := p.db.Group(t.Context(), 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a group of nobody is kept: %v", err)
	}
	for i := range cfg.Members {
		cfg.Members[i].Missing = fmt.Errorf("away %d", i)
	}
	if id, err := measurement.MeasureGroup(t.Context(), cfg, nil); id != 0 || err == nil ||
		!strings.Contains(err.Error(), "away 1") {
		t.Errorf("group %d: %v", id, err)
	}
	p.mustBeFree(t)
}

// A meter that is unplugged midway costs its own task alone.
func TestGroupWithAPulledCable(t *testing.T) {
	p := newPlace(t, 2)
	cfg := p.config(200*time.Millisecond, 0)
	b := p.benches[1]
	cfg.Members[1].Work = func(ctx context.Context) ([]gpu.Kernel, error) {
		k, err := b.device.RunBenchmark(ctx, gpu.BenchMemory, 60*time.Millisecond)
		b.pull()
		return k, err
	}
	id, err := measurement.MeasureGroup(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := p.group(t, id)
	if g.State != store.Incomplete || !slices.Contains(g.Summed, 0) || g.Tasks[0].State != store.Complete {
		t.Fatalf("state %v, summed %v: %s", g.State, g.Summed, g.Tasks[0].Reason)
	}
	if task := g.Tasks[1]; task.State != store.Incomplete ||
		!strings.Contains(task.Reason, "the capture ended early") || task.Scans == 0 {
		t.Errorf("state %v: %s; %d scans", task.State, task.Reason, task.Scans)
	}
	within(t, "the other", g.Tasks[0].Result.Total, p.benches[0].truth(t, g.Tasks[0].ID))
	p.mustBeFree(t)
}

// A GPU that breaks before the work is not waited for.
func TestGroupWithABrokenGPU(t *testing.T) {
	p := newPlace(t, 2)
	cfg := p.config(60*time.Millisecond, 60*time.Millisecond)
	cfg.Members[0].Device = broken{p.benches[0].device}
	id, err := measurement.MeasureGroup(t.Context(), cfg, nil)
	if !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	g := p.group(t, id)
	if g.Tasks[0].State != store.Incomplete || !strings.Contains(g.Tasks[0].Reason, "GPU is lost") ||
		g.Tasks[1].State != store.Complete {
		t.Errorf("%s; state %v: %s", g.Tasks[0].Reason, g.Tasks[1].State, g.Tasks[1].Reason)
	}
	p.check(t, &g)
	p.mustBeFree(t)
}

// Wherever it is cancelled, all benches are free and every task says so.
func TestCancelledGroup(t *testing.T) {
	for _, at := range []measurement.Phase{measurement.PhaseCapture, measurement.PhaseMarker, measurement.PhaseWork} {
		t.Run(string(at), func(t *testing.T) {
			p := newPlace(t, 2)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cfg := p.config(10*time.Second, 10*time.Second)
			cfg.Progress = func(i int, u measurement.Progress) {
				if i == 1 && u.Phase == at {
					cancel()
				}
			}
			id, err := measurement.MeasureGroup(ctx, cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			p.mustBeFree(t)
			if id == 0 {
				return
			}
			g := p.group(t, id)
			if g.State != store.Incomplete {
				t.Errorf("state %v", g.State)
			}
			for i, task := range g.Tasks {
				if task == nil && g.Members[i].Reason == "" || task != nil &&
					!strings.Contains(task.Reason, "cancelled during") {
					t.Errorf("member %+v, task %+v", g.Members[i], task)
				}
			}
		})
	}
}

// The host dies while one member's samples are on their way, and another's
// work was never noted: all is brought to its end, and the group stays one.
func TestGroupIsRecovered(t *testing.T) {
	p := newPlace(t, 2)
	cfg := p.config(150*time.Millisecond, 150*time.Millisecond)
	cfg.DB = &interruptedGroup{interrupted: interrupted{DB: p.db, after: 3}}
	id, err := measurement.MeasureGroup(t.Context(), cfg, nil)
	if !errors.Is(err, errKilled) {
		t.Fatalf("got %v", err)
	}
	if g := p.group(t, id); g.State != store.Running {
		t.Fatalf("state %v", g.State)
	}
	done, err := measurement.Recover(t.Context(), p.db,
		func(_ context.Context, address string) (measurement.Monitor, func() error, error) {
			c, err := monitorclient.Dial(address, monitorclient.Options{})
			if err != nil {
				return nil, nil, err
			}
			return c, c.Close, nil
		})
	if err != nil || len(done) != 2 {
		t.Fatal(done, err)
	}
	g := p.group(t, id)
	if g.State != store.Complete || len(g.Summed) != 2 {
		t.Fatalf("state %v, summed %v", g.State, g.Summed)
	}
	p.check(t, &g)
	p.mustBeFree(t)
}

// interruptedGroup is an interrupted database for several writers.
type interruptedGroup struct{ interrupted }

func TestGroupRefusesAnEmptyConfig(t *testing.T) {
	p := newPlace(t, 1)
	for _, cfg := range []measurement.GroupConfig{{}, {DB: p.db}, {DB: p.db, Members: []measurement.Member{{}}}} {
		if id, err := measurement.MeasureGroup(t.Context(), cfg, nil); id != 0 || err == nil {
			t.Errorf("group %d: %v", id, err)
		}
	}
}
