package job

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/group"
)

func at(s float64) time.Time { return time.Unix(1e9, 0).Add(measure.Seconds(s).Duration()) }

func task(gpu string, from, to, joules float64, serial string, lines ...measure.Contribution) Task {
	var v float64
	for _, c := range lines {
		v += float64(c.U * c.U)
	}
	return Task{Name: "task", UUID: gpu, Span: Span{at(from), at(to)}, Part: group.Part{
		Instrument: measure.Identity{Kind: "daq", Serial: serial}, Setup: &measure.Setup{},
		Result: &measure.Result{Total: measure.Estimate{Energy: measure.Joule(joules), U: measure.Joule(2 * math.Sqrt(v))}, Budget: lines},
	}}
}

func near(a measure.Seconds, b float64) bool { return math.Abs(float64(a)-b) < 1e-6 }

func TestTimes(t *testing.T) {
	total, err := Of([]Host{
		{Name: "a", Tasks: []Task{task("1", 0, 10, 100, ""), task("2", 1, 9, 50, "")}},
		{Name: "b", Tasks: []Task{task("3", 2, 5, 30, ""), task("3", 7, 14, 70, "")}, Missing: []string{"GPU 4"}},
		{Name: "c", Missing: []string{"nobody answers"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := total.Hosts[0], total.Hosts[1], total.Hosts[2]
	if total.Sum.Energy != 250 || total.Tasks != 4 || total.Missing != 2 || !near(total.Span.Length(), 14) || !near(total.Together, 8) {
		t.Errorf("got %+v", total)
	}
	if a.Energy != 150 || !near(a.Busy, 10) || !near(a.Before, 0) || !near(a.After, 4) || !near(a.Between, 0) {
		t.Errorf("a: %+v", a)
	}
	if !near(b.Busy, 10) || !near(b.Between, 2) || !near(b.Before, 2) || !near(b.After, 0) {
		t.Errorf("b: %+v", b)
	}
	if c.Busy != 0 || c.Before != 0 || !c.Span.From.IsZero() {
		t.Errorf("c: %+v", c)
	}
	apart, err := Of([]Host{{Name: "a", Tasks: []Task{task("1", 0, 1, 1, "")}}, {Name: "b", Tasks: []Task{task("2", 5, 6, 1, "")}}})
	if err != nil || !near(apart.Together, -4) {
		t.Errorf("got %v, %v", apart.Together, err)
	}
	if empty, err := Of([]Host{{Name: "a", Missing: []string{"x"}}}); err != nil || empty.Tasks != 0 || empty.Sum.Energy != 0 || empty.Together != 0 {
		t.Errorf("got %+v, %v", empty, err)
	}
}

func TestTwice(t *testing.T) {
	for _, c := range []struct {
		name  string
		hosts []Host
		twice bool
	}{
		{"a copy", []Host{{Name: "a", Tasks: []Task{task("1", 0, 1, 1, "")}}, {Name: "b", Tasks: []Task{task("1", 0, 1, 1, "")}}}, true},
		{"within a longer one, a short one between", []Host{{Name: "a", Tasks: []Task{task("1", 0, 10, 1, ""), task("1", 1, 2, 1, ""), task("1", 5, 6, 1, "")}}}, true},
		{"the third within the first", []Host{{Name: "a", Tasks: []Task{task("2", 0, 10, 1, ""), task("1", 1, 2, 1, ""), task("2", 5, 6, 1, "")}}}, true},
		{"one after the other", []Host{{Name: "a", Tasks: []Task{task("1", 0, 1, 1, ""), task("1", 1, 2, 1, "")}}}, false},
		{"not known", []Host{{Name: "a", Tasks: []Task{task("", 0, 1, 1, ""), task("", 0, 1, 1, "")}}}, false},
	} {
		_, err := Of(c.hosts)
		if got := errors.Is(err, ErrTwice); got != c.twice {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.twice && !strings.Contains(err.Error(), "leave one of them out") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The total's U holds the truth in 95 of 100 jobs, where some hosts share a meter
// and others do not. Of 96 hosts taken alone the gain would be a tenth of it.
func TestUHoldsTheTruth(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	const hosts, gain, noise = 24, 0.02, 0.01
	jobs := coverage.Trials(3000)
	held, alone := 0, 0
	for range jobs {
		gains := map[string]float64{}
		var list []Host
		var truth, got, independent float64
		for h := range hosts {
			serial := fmt.Sprint("own ", h)
			if h < hosts/2 {
				serial = fmt.Sprint("shared ", h%2) // two meters, carried from host to host
			}
			if _, ok := gains[serial]; !ok {
				gains[serial] = gain * rng.NormFloat64()
			}
			e := 100 + 100*rng.Float64()
			m := e*(1+gains[serial]) + e*noise*rng.NormFloat64()
			truth, got = truth+e, got+m
			independent += 4 * m * m * (gain*gain + noise*noise)
			list = append(list, Host{Name: serial, Tasks: []Task{task("", float64(h), float64(h)+1, m, serial,
				measure.Contribution{Source: "gain a", U: measure.Joule(gain * m), Systematic: true}, measure.Contribution{Source: "noise a", U: measure.Joule(noise * m)})}})
		}
		total, err := Of(list)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-truth) <= float64(total.Sum.U) {
			held++
		}
		if math.Abs(got-truth) <= math.Sqrt(independent) {
			alone++
		}
		if total.Sum.AllShared < total.Sum.U || len(total.Sum.Lines) != 2 {
			t.Fatalf("got %+v", total.Sum)
		}
	}
	t.Logf("U holds the truth in %.1f %%, without what is shared in %.1f %%", 100*float64(held)/float64(jobs), 100*float64(alone)/float64(jobs))
	if share := float64(held) / float64(jobs); !coverage.Within(share, 0.94, 0.97, jobs) { // k = 2 is 95.45 %
		t.Errorf("U holds the truth in %.1f %%", 100*share)
	}
	if share := float64(alone) / float64(jobs); share > 0.85 {
		t.Errorf("without what is shared it would in %.1f %%: the trial tests nothing", 100*share)
	}
}
