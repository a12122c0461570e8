package faults

import (
	"testing"
	"time"

	"wattmark/cmd/campaign/play"
	"wattmark/monitor/capture"
)

// The campaign, for as many schedules as there is time for. It is longer by command:
// go run ./cmd/campaign --schedules 5000.
func TestCampaign(t *testing.T) {
	n, limit := 1000, 75*time.Second
	if testing.Short() {
		n, limit = 24, 40*time.Second
	}
	r, err := Run(t.Context(), play.Options{Seed: 1, Schedules: n, Until: time.Now().Add(limit)}, Whole)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d schedules of %d in %v\n%s", r.Played, n, r.Took.Round(time.Millisecond), r.Table())
	if r.Played < n/10 || len(r.Moves) == 0 {
		t.Errorf("%d schedules with %d moves show nothing", r.Played, len(r.Moves))
	}
	if r.Played < n {
		t.Logf("only %d of %d schedules were played: this machine is slow, or busy", r.Played, n)
	}
	for _, v := range r.Violated {
		t.Error(v)
	}
	for _, l := range r.Leaks {
		t.Errorf("left behind:\n%s", l)
	}
	for m := range r.Moves {
		if to, err := capture.Life().Next(m.From, m.On); err != nil || to != m.To {
			t.Errorf("%+v is not in the table", m)
		}
	}
}

// Seeds walk through all pairs of faults and steps.
func TestDrawReachesEveryPair(t *testing.T) {
	type pair struct {
		Kind
		Step
	}
	seen := map[pair]bool{}
	for seed := range uint64(len(Kinds) * len(Steps)) {
		f := Draw(seed).Faults[0]
		seen[pair{f.Kind, f.Step}] = true
	}
	if want := len(Kinds) * len(Steps); len(seen) != want {
		t.Errorf("%d of %d pairs", len(seen), want)
	}
}

// A product that breaks its word is caught: a monitor that calls samples durable
// before it has synced them, a host that has a capture dropped before it is stored.
func TestBrokenBuildsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("it is caught without -short; nothing here races that the campaign does not")
	}
	for _, c := range []struct {
		name   string
		broken Broken
		kind   Kind
		steps  []Step
		also   []Fault
	}{
		// The host dies with it, or it mostly has the samples already.
		{"acknowledged before synced", AckBeforeSync, CutPower, []Step{StepStopped}, []Fault{{Kind: KillHost, Step: StepStopped, Nth: 1}}},
		{"committed before synced", CommitBeforeSync, CutHost, []Step{StepStored, StepFinished, StepRelease, StepReleased}, nil},
		{"released before stored", ReleaseBeforeStore, KillHost, []Step{StepStopped, StepStoring, StepTrailer}, nil},
		{"released while in the log", KeepLog, LogRot, []Step{StepReleased}, nil},
		{"given up for a flipped bit", GiveUp, Corrupt, Steps, nil},
		{"plotted too early", OldPlot, DatabaseFull, []Step{StepStoring}, nil},
		{"calibrations trusted", BlindCheck, StoredRot, Steps, nil},
		{"crowded out", CrowdedOut, Crowded, []Step{StepBench}, nil},
		{"spool cleared", ClearSpool, KillMonitor, Steps, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			played := 0
			for seed := uint64(0); played < 400; seed++ {
				s := Draw(seed)
				if len(s.Faults) != 1 || s.Faults[0].Kind != c.kind || !among(s.Faults[0].Step, c.steps) {
					continue
				}
				played++
				s.Faults = append(s.Faults, c.also...)
				r, err := Play(t.Context(), s, c.broken, play.Scratch())
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Violations) == 0 {
					continue
				}
				t.Logf("caught by schedule %d, %v: %q", played, s, r.Violations)
				if r, err = Play(t.Context(), s, Whole, play.Scratch()); err != nil || len(r.Violations) > 0 {
					t.Errorf("the product as it is breaks its word in the same schedule: %q, %v", r.Violations, err)
				}
				return
			}
			t.Errorf("not caught by %d schedules", played)
		})
	}
}

func among(s Step, list []Step) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
