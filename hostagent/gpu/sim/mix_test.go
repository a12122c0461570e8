package sim

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cupti"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/measure/load"
)

// levels is a plant that takes levels in watts.
type levels struct {
	plant
	taken []load.Step
}

func (p *levels) SetSteps(at time.Time, steps []load.Step) (time.Time, error) {
	p.taken = append(p.taken, steps...)
	return at, nil
}

func TestMixDrawsItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &levels{}
		d, err := Open(Config{Plant: p, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		m := DefaultRoofline()
		for _, rounds := range []uint32{1, 40, 1024} {
			r, err := d.RunMix(t.Context(), rounds, 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			s := p.taken[len(p.taken)-2]
			if last := p.taken[len(p.taken)-1]; last != (load.Step{Load: load.ActiveIdle}) {
				t.Errorf("%d rounds end with %+v", rounds, last)
			}
			joules := 2 * float64(s.Level)
			want := r.Flops*float64(m.Flop) + r.Bytes*float64(m.Byte) + 2*float64(m.ConstantPower)
			if s.For != 2*time.Second || math.Abs(joules/want-1) > 1e-12 {
				t.Errorf("%d rounds: %v J, want %v", rounds, joules, want)
			}
			if math.Abs(r.Flops/r.Bytes/gpu.MixIntensity(rounds)-1) > 1e-12 || r.Flops > 2*m.Flops*1.000001 ||
				r.Bytes > 2*m.Bytes*1.000001 {
				t.Errorf("%d rounds: %+v", rounds, r)
			}
			if r.Flops < 1.999999*m.Flops && r.Bytes < 1.999999*m.Bytes {
				t.Errorf("%d rounds reach no roof: %+v", rounds, r)
			}
		}
		if _, err := d.RunMix(t.Context(), 0, time.Second); err == nil {
			t.Error("a mix of no rounds was run")
		}
	})
}

// The launch log of a simulated GPU says that markers around launches, which were asked for, are not played.
func TestNoMarkersAroundLaunches(t *testing.T) {
	for selection, want := range map[string]int{"": 0, "{}": 1} {
		dir := t.TempDir()
		t.Setenv(cupti.EnvLogs, dir)
		t.Setenv(cupti.EnvSelection, selection)
		var l launches
		if err := errors.Join(l.record(gpu.Info{}, []gpu.Kernel{{Name: "memory"}}), l.end()); err != nil {
			t.Fatal(err)
		}
		logs, _ := filepath.Glob(filepath.Join(dir, "*"+cupti.LogSuffix))
		f, err := os.Open(logs[0])
		if err != nil {
			t.Fatal(err)
		}
		log, err := launchlog.Open(f)
		for k := new(launchlog.Kernel); err == nil; {
			err = log.Next(k)
		}
		if !errors.Is(err, io.EOF) || len(log.Process.Trouble) != want {
			t.Errorf("%q: %q, %v", selection, log.Process.Trouble, err)
		}
		_ = f.Close()
	}
}
