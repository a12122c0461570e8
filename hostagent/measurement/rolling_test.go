package measurement_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc/test/bufconn"
)

// twin writes a task into two databases, and thins it in the first alone.
type twin struct {
	*store.DB
	all *store.DB
}

func (d *twin) BeginTask(ctx context.Context, t store.NewTask) (store.TaskID, error) {
	other, err := d.all.BeginTask(ctx, t)
	id, fault := d.DB.BeginTask(ctx, t)
	if other != id {
		fault = errors.Join(fault, errors.New("the databases number the task differently"))
	}
	return id, errors.Join(err, fault)
}

func (d *twin) PutHeader(ctx context.Context, id store.TaskID, h store.Header) error {
	return errors.Join(d.DB.PutHeader(ctx, id, h), d.all.PutHeader(ctx, id, h))
}

func (d *twin) AppendChunks(ctx context.Context, id store.TaskID, c []*chunk.Chunk, e []measure.Event) error {
	return errors.Join(d.DB.AppendChunks(ctx, id, c, e), d.all.AppendChunks(ctx, id, c, e))
}

func (d *twin) PutPlayed(ctx context.Context, id store.TaskID, p []store.Played) error {
	return errors.Join(d.DB.PutPlayed(ctx, id, p), d.all.PutPlayed(ctx, id, p))
}

func (d *twin) PutKernels(ctx context.Context, id store.TaskID, k []store.Kernel) error {
	return errors.Join(d.DB.PutKernels(ctx, id, k), d.all.PutKernels(ctx, id, k))
}

func (d *twin) Finish(ctx context.Context, id store.TaskID, o store.Outcome) error {
	return errors.Join(d.DB.Finish(ctx, id, o), d.all.Finish(ctx, id, o))
}

// packOnce packs a chunk: what the program makes for that once must be made outside of the bubbles of virtual time.
func packOnce(t *testing.T) {
	t.Helper()
	ctx, db := t.Context(), openDatabase(t)
	defer db.Close()
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100},
		Channels: []measure.Channel{{Name: "w", Unit: measure.UnitWatt, Gain: 1, MaxCount: 9}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, Y: -1}},
	}
	e, err := chunk.NewEncoder(setup.Timebase, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Append(&measure.Block{Counts: [][]measure.Count{{1, 2, 3}}})
	id, fault := db.BeginTask(ctx, store.NewTask{Name: "x", User: "x", Launched: time.Now()})
	err = errors.Join(err, fault, db.PutHeader(ctx, id, store.Header{Bench: "b", Setup: setup, CalibrationID: "c", Started: time.Now()}),
		db.AppendChunks(ctx, id, []*chunk.Chunk{e.Flush(0)}, nil), db.Finish(ctx, id, store.Outcome{State: store.Incomplete}))
	if _, fault = db.Compact(ctx, id); err != nil || fault != nil {
		t.Fatal(err, fault)
	}
}

// sleepy serves for a length of time: windows of 20 ms and of 8 s one after another, then a rest
// without any, and so on. Windows are written into the folder as they end.
func sleepy(b *bench, dir string, length, rest time.Duration) measurement.Work {
	rng := rand.New(rand.NewPCG(3, 4))
	return func(ctx context.Context) ([]gpu.Kernel, error) {
		f, err := os.OpenFile(filepath.Join(dir, "1.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		lines := json.NewEncoder(f)
		for begin := time.Now(); time.Since(begin) < length && ctx.Err() == nil; {
			for i := range 10 {
				at := time.Now()
				_, err := b.live.SetLevel(at, measure.Watt(60+200*rng.Float64()))
				if i == 9 {
					time.Sleep(8 * time.Second)
				}
				time.Sleep(20 * time.Millisecond)
				err = errors.Join(err, lines.Encode(serving.Window{ID: "w", Begin: at.UnixNano(), End: time.Now().UnixNano()}))
				if err != nil {
					return nil, err
				}
			}
			if _, err := b.live.SetLevel(time.Now(), 50); err != nil {
				return nil, err
			}
			time.Sleep(rest)
		}
		return nil, ctx.Err()
	}
}

func rollingConfig(b *bench, dir string) measurement.Config {
	cfg := b.config()
	cfg.Sensor, cfg.NoMethods = nil, true
	cfg.Rolling = measurement.Rolling{Keep: 12 * time.Second, Folder: dir}
	cfg.Marks = measurement.Marks{Every: 8 * time.Second, Busy: true}
	return cfg
}

// sameEnergies fails where two energies differ beyond the rounding of sums.
func sameEnergies(t *testing.T, what string, got, want measure.Estimate) {
	t.Helper()
	off := func(a, b measure.Joule) float64 { return math.Abs(float64(a/b) - 1) }
	if !(off(got.Energy, want.Energy) < 1e-12) || !(off(got.U, want.U) < 1e-9) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// thinnedScans returns how many of a task's scans are gone.
func thinnedScans(task *store.Task) (n uint64) {
	for _, e := range task.Events {
		if e.Kind == measure.EventThinned {
			n += e.Scans
		}
	}
	return n
}

// A long capture of windows and marks keeps some of its samples, and has the energies of one that keeps all.
func TestRollingCapture(t *testing.T) {
	coverage.Long(t)
	packOnce(t)
	inVirtualTimeWith(t, meter.Config{Seed: 5, Rate: 4.8e3, Draw: true}, func(t *testing.T, b *bench) {
		ctx, dir := t.Context(), t.TempDir()
		all := openDatabase(t)
		defer all.Close()
		cfg := rollingConfig(b, dir)
		cfg.DB, cfg.Marks.Every = &twin{b.db, all}, 13*time.Second
		var spooled uint64
		id, err := measurement.Measure(ctx, cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
			k, err := sleepy(b, dir, 2*time.Minute, 0)(ctx)
			held, fault := b.client.Captures(ctx)
			if fault == nil {
				spooled = held[0].SpoolBytes
			}
			return k, errors.Join(err, fault)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := measurement.Recompute(ctx, all, id); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for c, err := range all.Chunks(ctx, id, 0) {
			if err != nil {
				t.Fatal(err)
			}
			whole += chunk.PayloadSize(c)
		}
		if t.Logf("the monitor's spool held %d of %d bytes", spooled, whole); spooled > uint64(whole)*3/5 {
			t.Error("samples that the host has deleted stay in the spool")
		}
		thin := b.task(t, id)
		full, err := all.Task(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		gone := thinnedScans(&thin)
		t.Logf("%d of %d scans deleted; %s", gone, thin.Scans, thin.Reason)
		if thin.State != store.Complete || thin.Scans != full.Scans || gone < thin.Scans/2 || gone == thin.Scans {
			t.Fatalf("%v: %s: %d of %d scans deleted, %d in all", thin.State, thin.Reason, gone, thin.Scans, full.Scans)
		}
		sameEnergies(t, "the task", thin.Result.Total, full.Result.Total)
		sameWindows(t, b, id, all, dir)
	})
}

// sameWindows holds the windows of a task against those of its twin, and against the truth.
func sameWindows(t *testing.T, b *bench, id store.TaskID, all *store.DB, dir string) {
	t.Helper()
	ctx := t.Context()
	var windows [2]*measurement.ServedWindows
	for i, db := range []*store.DB{b.db, all} {
		files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		err := measurement.StoreWindows(ctx, db, id, files)
		if err == nil {
			windows[i], err = measurement.Windows(ctx, db, id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(windows[0].Windows); n < 100 || n != len(windows[1].Windows) {
		t.Fatalf("%d windows of %d", n, len(windows[1].Windows))
	}
	n, settled, held, off := len(windows[0].Windows), 0, 0, 0.0
	for i, w := range windows[0].Windows {
		want := windows[1].Windows[i]
		if w.Share == nil && want.Share == nil { // all of it lies in a mark
			n--
			continue
		} else if w.Share == nil || want.Share == nil {
			t.Fatalf("window %d without energy: %+v, %+v; %v", i, w, want, windows[0].Notes)
		}
		if w.Settled {
			settled++
		}
		d := float64((w.Energy - want.Energy) / want.U)
		off += d * d
		truth, err := b.live.Energy(time.Unix(0, w.Begin), time.Unix(0, w.End))
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(float64(w.Energy-truth.Total)) <= float64(w.U) {
			held++
		}
	}
	rms := math.Sqrt(off / float64(n))
	t.Logf("%d of %d windows settled amid the capture, off those of all samples by %.3f U rms; the truth is within U of %d",
		settled, n, rms, held)
	if settled < n/2 || rms > 0.1 || held < n*93/100 {
		t.Errorf("notes %v", windows[0].Notes)
	}
}

// Each card of several has its own samples deleted, on its own meter's clock.
func TestRollingCapturesOfSeveralCards(t *testing.T) {
	coverage.Long(t)
	packOnce(t)
	c := meter.Config{Seed: 7, Rate: 4.8e3, Draw: true}
	inVirtualTimeWith(t, c, func(t *testing.T, other *bench) {
		p, dir := &place{db: other.db}, t.TempDir()
		for range 2 {
			b := &bench{db: other.db, line: bufconn.Listen(1 << 20)}
			c.Seed++
			b.build(t, c.Seed, true, c)
			p.benches = append(p.benches, b)
		}
		cfg := p.config()
		cfg.Each.Methods, cfg.Each.NoMethods = p.benches[0].config().Methods, true
		rolling := rollingConfig(p.benches[0], dir)
		cfg.Each.Rolling, cfg.Each.Marks = rolling.Rolling, rolling.Marks
		serve := sleepy(p.benches[0], dir, 36*time.Second, 0)
		id, err := measurement.MeasureGroup(t.Context(), cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
			begin := time.Now()
			if _, err := serve(ctx); err != nil {
				return nil, err
			}
			line, _ := json.Marshal(serving.Window{ID: "long", Begin: begin.UnixNano(), End: time.Now().UnixNano()})
			if err := os.WriteFile(filepath.Join(dir, "2.jsonl"), append(line, '\n'), 0o600); err != nil {
				return nil, err
			}
			return serve(ctx)
		})
		if err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		for i, task := range p.group(t, id).Tasks {
			b := p.benches[i]
			if gone := thinnedScans(task); task.State != store.Complete || gone == 0 || task.Result == nil {
				t.Fatalf("card %d: %v: %s: %d of %d scans deleted", i, task.State, task.Reason, gone, task.Scans)
			}
			within(t, "the work", task.Result.Total, b.truth(t, task.ID))
			if err := measurement.StoreWindows(t.Context(), p.db, task.ID, files); err != nil {
				t.Fatal(err)
			}
			w, err := measurement.Windows(t.Context(), p.db, task.ID)
			if err != nil || len(w.Windows) < 10 {
				t.Fatalf("card %d: %+v, %v", i, w, err)
			}
			for _, w := range w.Windows {
				if long := w.ID == "long"; long && (w.Settled || w.Share != nil) || !long && w.Share == nil && w.Marks == 0 {
					t.Errorf("card %d: %+v", i, w)
				}
			}
			if want := "1 window over samples that had been deleted"; !strings.Contains(strings.Join(w.Notes, "; "), want) {
				t.Errorf("card %d: %q, want %q", i, w.Notes, want)
			}
		}
	})
}

// killed is a database whose host is killed before it stores when the work ran.
type killed struct{ interrupted }

func (k *killed) PutKernels(context.Context, store.TaskID, []store.Kernel) error { return errKilled }

// What a host that was killed between two deletions had thinned stays thinned, and the rest comes from the monitor.
func TestRollingCaptureIsRecovered(t *testing.T) {
	coverage.Long(t)
	packOnce(t)
	inVirtualTimeWith(t, meter.Config{Seed: 5, Rate: 4.8e3, Draw: true}, func(t *testing.T, b *bench) {
		dir := t.TempDir()
		cfg := rollingConfig(b, dir)
		cfg.DB = &killed{interrupted{DB: b.db, after: 1200}}
		id, err := measurement.Measure(t.Context(), cfg, sleepy(b, dir, 110*time.Second, 0))
		if !errors.Is(err, errKilled) {
			t.Fatalf("got %v", err)
		}
		left := b.task(t, id)
		if left.State != store.Running || thinnedScans(&left) == 0 {
			t.Fatalf("%v, %d of %d scans deleted", left.State, thinnedScans(&left), left.Scans)
		}
		if _, err := measurement.Recover(t.Context(), b.db, b.dial); err != nil {
			t.Fatal(err)
		}
		task := b.task(t, id)
		if task.State != store.Incomplete || task.Result == nil || thinnedScans(&task) != thinnedScans(&left) || task.Scans < left.Scans*3/2 {
			t.Fatalf("%v: %s: %d scans deleted, %d and %d in all, %+v", task.State, task.Reason, thinnedScans(&task), left.Scans,
				task.Scans, task.Result)
		}
		from, to := measurement.HostTime(*task.Clock, hostOf(&task, task.Result.From)), measurement.HostTime(*task.Clock, hostOf(&task, task.Result.To))
		truth, err := b.live.Energy(from, to)
		if err != nil {
			t.Fatal(err)
		}
		within(t, "between the markers", task.Result.Total, truth.Total)
		if n := b.captures(t); n != 0 {
			t.Errorf("the monitor still keeps %d captures", n)
		}
		found, err := b.db.Check(t.Context(), store.CheckOptions{})
		if err != nil || len(found.Findings) > 0 {
			t.Errorf("%+v, %v", found, err)
		}
	})
}

func hostOf(t *store.Task, at measure.Seconds) measure.Seconds {
	host, _ := t.Clock.Host(at)
	return host
}

// Hours of a capture with and without Keep: the sizes of database and heap each half an hour.
func TestRollingHours(t *testing.T) {
	if os.Getenv("WATTMARK_HOUR") == "" {
		t.Skip("hours in virtual time: WATTMARK_HOUR=1 runs them")
	}
	var last [2]int64
	for i, keep := range []time.Duration{10 * time.Minute, 0} {
		b := &bench{tune: &capture.Config{FlushEvery: time.Second}}
		inVirtualTimeOn(t, b, meter.Config{Seed: 5, Rate: 4.8e3}, func(t *testing.T, b *bench) {
			dir := t.TempDir()
			cfg := rollingConfig(b, dir)
			cfg.Rolling.Keep, cfg.Marks.Every = keep, time.Minute
			serve := func(ctx context.Context) (k []gpu.Kernel, err error) {
				for half := 1; half <= 4 && err == nil; half++ {
					if _, err = sleepy(b, dir, 30*time.Minute, 0)(ctx); err == nil {
						last[i] = b.sizes(t, half, keep)
					}
				}
				return k, err
			}
			id, err := measurement.Measure(t.Context(), cfg, serve)
			if err != nil {
				t.Fatal(err)
			}
			task := b.task(t, id)
			t.Logf("%d of %d scans deleted, %v: %s", thinnedScans(&task), task.Scans, task.State, task.Reason)
		})
	}
	if last[0]*2 > last[1] {
		t.Errorf("%d bytes with samples deleted, %d with all", last[0], last[1])
	}
}

// sizes logs the bytes of the database and of its log, and the heap, which holds the emulated bench too.
func (b *bench) sizes(t *testing.T, half int, keep time.Duration) (bytes int64) {
	t.Helper()
	sum := func(suffix string) int64 {
		i, err := os.Stat(b.db.Path() + suffix)
		if err != nil {
			t.Fatal(err)
		}
		return i.Size()
	}
	bytes = sum("")
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	held, err := b.client.Captures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("keep %v, %.1f h: database %.1f MB, its log %.1f MB, spool %.1f MB, heap %.1f MB", keep, float64(half)/2,
		float64(bytes)/1e6, float64(sum("-wal"))/1e6, float64(held[0].SpoolBytes)/1e6, float64(m.HeapAlloc)/1e6)
	return bytes
}
