package main

import (
	"slices"
	"testing"
	"time"

	"wattmark/monitor/emulator/board"
)

// A caller whose wall clock was set, by an hour or by a second, has its loads laid down when
// it means, and is told the begin by its own clock: nobody waits for the hour.
func TestClockThatIsSetMovesNoLoad(t *testing.T) {
	for _, off := range []time.Duration{0, time.Second, -time.Second, time.Hour, -time.Hour} {
		b, err := board.New(board.Config{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		live := board.NewLive(b, time.Now())
		s := &plantService{live, &card{live: live}, &cardUser{}}
		asked := time.Now()
		sent := asked.Round(0).Add(off) // as it is told: without a monotonic reading
		var begin time.Time
		if err := s.SetSteps(StepsChange{sent.Add(time.Minute), []board.Step{{Load: board.Full, For: time.Second}}, sent}, &begin); err != nil {
			t.Fatal(err)
		}
		// What the call took counts where the clocks disagree.
		took := time.Since(asked)
		if late := begin.Sub(sent.Add(time.Minute)); late.Abs() > took+time.Microsecond {
			t.Errorf("%+v: it begins %v late", off, late)
		}
		at := since(asked.Add(time.Minute), begin.Add(-off))
		if at == at.Round(0) || at.Sub(asked.Add(time.Minute)).Abs() > took+time.Microsecond {
			t.Errorf("%+v: awaited until %v of %v", off, at, asked.Add(time.Minute))
		}
		from, to := asked.Add(time.Minute+100*time.Millisecond), asked.Add(time.Minute+900*time.Millisecond)
		full, err := live.Level(board.Full)
		if err != nil {
			t.Fatal(err)
		}
		if got := live.MeanPower(from, to); got < full/2 {
			t.Errorf("%+v: %v W are drawn when %v W are meant", off, got, full)
		}
	}
}

// The token and the task database's password are not the measured program's.
func TestProgramHasNoSecrets(t *testing.T) {
	env := []string{"A=1", "WATTMARK_TOKEN=wm_x", "WATTMARK_TOKEN_FILE=/t", "WATTMARK_DB=postgres://u:pw@h/d", "PGPASSWORD=pw"}
	for db, want := range map[string][]string{
		"power.db":         {"A=1", "WATTMARK_TOKEN_FILE=/t", "WATTMARK_DB=postgres://u@h/d", "PGPASSWORD=pw"},
		"postgres://u@h/d": {"A=1", "WATTMARK_TOKEN_FILE=/t", "WATTMARK_DB=postgres://u@h/d"},
	} {
		if got := withoutSecrets(env, db); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", db, got, want)
		}
	}
}
