package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/experiment/tiny"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// tinyRun measures a tiny kernel on the rig and returns its report.
func (r *rig) tinyRun(more ...string) (x report.Report) {
	r.t.Helper()
	p := start(r.t, append([]string{
		"tiny", "--gpu", "sim:" + r.socket, "--monitor", r.address, "--db", r.db, "--json", "--warm-up", "50ms",
	}, more...)...)
	if code := p.wait(r.t); code != 0 {
		r.t.Fatalf("exit code %d\n%s%s", code, &p.out, &p.err)
	}
	object(r.t, p.out.String(), &x)
	if x.Tiny == nil || !measure.Known(x.Tiny.Energy) || x.State != "complete" {
		r.t.Fatalf("no energy of a launch:\n%s", &p.out)
	}
	return x
}

// added is what the card really drew for one launch: what the phases with the
// kernel drew, less what the carrier in them draws where it is plain.
func (r *rig) added(id store.TaskID, length time.Duration) float64 {
	r.t.Helper()
	db := r.stored()
	defer db.Close()
	ks, err := db.Kernels(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	var plain, plainS, with, withS, launches float64
	for _, k := range ks {
		e, err := r.live.Energy(k.Start, k.End)
		if err != nil {
			r.t.Fatal(err)
		}
		s := k.End.Sub(k.Start).Seconds()
		if i := strings.LastIndex(k.Name, "×"); i >= 0 {
			var n float64
			if _, err := fmt.Sscan(k.Name[i+len("×"):], &n); err != nil {
				r.t.Fatal(err)
			}
			with, withS, launches = with+float64(e.Total), withS+s-n*length.Seconds(), launches+n
		} else if strings.Contains(k.Name, "plain") {
			plain, plainS = plain+float64(e.Total), plainS+s
		}
	}
	return (with - plain/plainS*withS) / launches
}

// The whole way: a kernel of 20 µs on a meter of 20 kS/s, over the monitor, into
// the database and out again.
func TestTinyContrast(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	x := r.tinyRun("--sim-kernel", "280W:20us", "--phase", "200ms", "--quads", "3")
	truth := r.added(1, 20*time.Microsecond)
	e, u := float64(x.Tiny.Energy), float64(x.Tiny.EnergyU)
	t.Logf("%.4g ± %.2g J, the card drew %.4g J for it", e, u, truth)
	if math.Abs(e-truth) > u || u > 0.1*e || math.Abs(e/truth-1) > 0.02 {
		t.Errorf("%v ± %v J, truth %v J", e, u, truth)
	}
	if math.Abs(float64(x.Tiny.Length)-20e-6) > 1e-9 || x.Tiny.Method != "contrast" || len(x.Tiny.Budget) < 3 {
		t.Errorf("got %+v", x.Tiny)
	}
	var again report.Report
	object(t, wattmark(t, "show", "1", "--json", "--db", r.db).ok(t).out, &again)
	if again.Tiny == nil || float64(again.Tiny.Energy) != e || again.Tiny.Launches != x.Tiny.Launches {
		t.Errorf("show says %+v, tiny said %+v", again.Tiny, x.Tiny)
	}
	text := wattmark(t, "show", "1", "--db", r.db).ok(t).out
	if !strings.Contains(text, "One launch of 280W:20us, by contrast over") || !strings.Contains(text, " mJ (k = ") {
		t.Errorf("for a person:\n%s", text)
	}
}

func TestTinyFoldAndRepeat(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	x := r.tinyRun("--scheme", "fold", "--sim-kernel", "280W:600us,120W:400us", "--launches", "300", "--settle", "2500us", "--bins", "60", "--until-u", "0.1")
	if n := len(x.Tiny.Profile); n != 60 {
		t.Fatalf("%d points of the profile", n)
	}
	var top, bottom float64 = 0, math.Inf(1)
	for _, p := range x.Tiny.Profile {
		top, bottom = max(top, float64(p.Power)), min(bottom, float64(p.Power))
	}
	if top < 270 || bottom > 175 {
		t.Errorf("a profile from %v to %v W", bottom, top)
	}
	if text := wattmark(t, "show", "1", "--db", r.db).ok(t).out; !strings.Contains(text, "═ the launch") {
		t.Errorf("no profile is drawn:\n%s", text)
	}
	y := r.tinyRun("--scheme", "repeat", "--sim-kernel", "250W:100us/230W:60us", "--launches", "5000")
	if len(y.Tiny.Warnings) == 0 || !strings.Contains(y.Tiny.Warnings[0], "single cold kernel") || y.Tiny.Energy > 0.7*0.025 {
		t.Errorf("repeat: %+v", y.Tiny)
	}
}

func TestTinyUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"tiny"},
		{"tiny", "--benchmark", "half"},
		{"tiny", "--benchmark", "half", "--length", "10us", "--ptx", "x"},
		{"tiny", "--benchmark", "half", "--length", "10us", "--scheme", "magic"},
		{"tiny", "--benchmark", "half", "--length", "10us", "--until-u", "0"},
		{"tiny", "--sim-kernel", "280W:10us"},
		{"tiny", "--gpu", "sim:/x", "--sim-kernel", "280W"},
		{"tiny", "--gpu", "sim:/x", "--sim-kernel", "-1W:10us"},
		{"tiny", "--gpu", "sim:/x", "--sim-kernel", "/280W:10us"},
	} {
		if r := wattmark(t, args...); r.code != cli.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.err)
		}
	}
}

// The documented plan needs the bench alone: no GPU, no wish, a meter with nominal gains.
func TestTinyPlansWithoutGPU(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var p tiny.Plan
	object(t, inside(t, "tiny", "--benchmark", "compute", "--length", "10us", "--dry-run", "--json", "--monitor", r.address).ok(t).out, &p)
	if p.Blocks == 0 || p.U < 0.02 || p.U > 0.03 {
		t.Errorf("%+v", p)
	}
}
