package session

import (
	"context"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/store"
)

// A second process's context and its end do not reduce the load that the first has scheduled;
// both processes are listed with their use.
func TestSharedCard(t *testing.T) {
	b, err := board.New(board.Config{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	live := board.NewLive(b, time.Now())
	k := &card{live: live}
	one, two := &cardUser{pid: 1, name: "one"}, &cardUser{pid: 2, name: "two"}
	at := time.Now().Add(50 * time.Millisecond)
	lay := func(c *cardUser, at time.Time, steps ...load.Step) {
		t.Helper()
		if begin, err := k.schedule(c, at, steps); err != nil || !begin.Equal(at) {
			t.Fatal(begin, err)
		}
	}
	level := func(l load.State) float64 { w, _ := live.Level(l); return float64(w) }
	lay(one, at, load.Step{Load: load.Memory, For: time.Second}, load.Step{Load: load.ActiveIdle})
	lay(two, at.Add(300*time.Millisecond), load.Step{Load: load.ActiveIdle})
	lay(two, at.Add(400*time.Millisecond), load.Step{Load: load.Full, For: 200 * time.Millisecond},
		load.Step{Load: load.ActiveIdle})
	k.cancel(two, at.Add(500*time.Millisecond))
	if _, err := k.leave(two, at.Add(500*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		from, to time.Duration
		load     load.State
	}{
		{250, 290, load.Memory},
		{350, 390, load.Memory},
		{450, 490, load.Full},
		{600, 900, load.Memory},
		{1100, 1200, load.ActiveIdle},
	} {
		got := float64(live.MeanPower(at.Add(tc.from*time.Millisecond), at.Add(tc.to*time.Millisecond)))
		if want := level(tc.load); math.Abs(got/want-1) > 0.1 {
			t.Errorf("%v to %v ms: %.1f W, want %.1f", int64(tc.from), int64(tc.to), got, want)
		}
	}
	ps := k.processes(at, at.Add(2*time.Second))
	if len(ps) != 2 || ps[0].PID != 1 || math.Abs(ps[0].Busy-0.5) > 0.01 || ps[1].PID != 2 ||
		math.Abs(ps[1].Busy-0.05) > 0.01 {
		t.Errorf("%+v", ps)
	}
	if _, err := k.leave(one, at.Add(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := float64(live.MeanPower(at.Add(4*time.Second),
		at.Add(5*time.Second))); math.Abs(got/level(load.Idle)-1) > 0.2 {
		t.Errorf("%.1f W when all have gone", got)
	}
}

// A command without flags for the database's space keeps the limit of free disk space.
func TestDatabaseKeepsRoomWithoutFlags(t *testing.T) {
	var none DatabaseFlags
	if got := none.Limits(); got != (store.Limits{Free: DefaultFree}) {
		t.Errorf("without flags %+v", got)
	}
	var f DatabaseFlags
	fl := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddTo(fl)
	if got := f.Limits(); got != (store.Limits{Free: DefaultFree}) {
		t.Errorf("with flags left alone %+v", got)
	}
	if err := fl.Parse([]string{"--db-quota=3GB", "--db-free=0"}); err != nil {
		t.Fatal(err)
	}
	if got := f.Limits(); got != (store.Limits{Bytes: 3e9}) {
		t.Errorf("with both given %+v", got)
	}
}

// Loads of a caller whose wall clock was set, by an hour or by a second, begin at the intended
// instant, and the caller gets the beginning by its own clock, also where the call took long.
func TestClockThatIsSetMovesNoLoad(t *testing.T) {
	for _, c := range []struct{ off, delay time.Duration }{
		{0, 0}, {time.Second, 0}, {-time.Second, 0}, {time.Hour, 0}, {-time.Hour, 0}, {0, time.Second}, {time.Hour, time.Second},
	} {
		off := c.off
		b, err := board.New(board.Config{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		live := board.NewLive(b, time.Now())
		s := &plantService{live, &card{live: live}, &cardUser{}}
		clock := sim.Now()
		asked := clock.Day.Add(-c.delay)
		sent := asked.Round(0).Add(off) // as it is sent: without a monotonic reading
		begin, err := s.SetSteps(sim.StepsChange{
			At:    sent.Add(time.Minute),
			Steps: []load.Step{{Load: load.Full, For: time.Second}},
			Sent:  sim.Moment{Day: sent, Up: clock.Up - c.delay},
		})
		if err != nil {
			t.Fatal(err)
		}
		// The duration of the call is an error of the conversion if the clocks differ.
		took := time.Since(clock.Day)
		if late := begin.Sub(sent.Add(time.Minute)); late.Abs() > took+time.Microsecond {
			t.Errorf("%+v: it begins %v late", c, late)
		}
		at := sim.OnClockOf(asked.Add(time.Minute), begin.Add(-off))
		if at == at.Round(0) || at.Sub(asked.Add(time.Minute)).Abs() > took+time.Microsecond {
			t.Errorf("%+v: awaited until %v of %v", c, at, asked.Add(time.Minute))
		}
		from, to := asked.Add(time.Minute+100*time.Millisecond), asked.Add(time.Minute+900*time.Millisecond)
		full, err := live.Level(load.Full)
		if err != nil {
			t.Fatal(err)
		}
		if got := live.MeanPower(from, to); got < full/2 {
			t.Errorf("%+v: %v W are drawn when %v W are meant", c, got, full)
		}
	}
}

// Calls reach the board of another process with their arguments, results and errors.
func TestBoardAnswersCallsOverItsSocket(t *testing.T) {
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	socket, served := filepath.Join(t.TempDir(), "plant"), make(chan error, 1)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { served <- servePlant(ctx, l, board.NewLive(b, time.Now())) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	c, err := sim.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, now := c, time.Now()
	if w := p.MeanPower(now, now); !(w > 0) {
		t.Errorf("the idle card draws %v", w)
	}
	begin, err := p.SetSteps(now.Add(time.Second), []load.Step{{Load: load.Full}})
	if err != nil || begin.Before(now.Add(time.Second)) {
		t.Errorf("the load begins at %v, %v", begin, err)
	}
	var uses []gpu.ProcessUse
	if err := c.Call("Processes", sim.TimeSpan{From: now, To: now.Add(2 * time.Second), Sent: sim.Now()}, &uses); err != nil || len(uses) != 1 {
		t.Errorf("%v, %v", uses, err)
	}
	if err := c.Call("Connect", SourceChange{Rails: []string{"none"}}, nil); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a rail that does not exist: %v", err)
	}
	if err := c.Call("Sing", true, nil); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("an unknown call: %v", err)
	}
}

// The measured program gets neither the token nor the task database's password.
func TestProgramHasNoSecrets(t *testing.T) {
	env := []string{
		"A=1", "WATTMARK_TOKEN=wm_x", "WATTMARK_TOKEN_FILE=/t", "WATTMARK_DB=postgres://u:pw@h/d",
		"PGPASSWORD=pw",
	}
	for db, want := range map[string][]string{
		"power.db":         {"A=1", "WATTMARK_TOKEN_FILE=/t", "WATTMARK_DB=postgres://u@h/d", "PGPASSWORD=pw"},
		"postgres://u@h/d": {"A=1", "WATTMARK_TOKEN_FILE=/t", "WATTMARK_DB=postgres://u@h/d"},
	} {
		if got := withoutSecrets(env, db); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", db, got, want)
		}
	}
}
