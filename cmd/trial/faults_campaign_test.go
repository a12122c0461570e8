package trial

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/store"
)

// The campaign plays schedules of faults against a whole measuring place in
// one process: the real monitor with its spool on disk, gRPC over real sockets,
// the real host agent, the real database in a file. Only the meter, the GPU and
// the faults are made here.
//
// A schedule is drawn from a seed: one to three faults, each at a step of the
// protocol. Each of the meter's samples contains its own number, so that
// each stored sample can be compared with the one that was taken. When all faults
// have passed, the invariants are checked: see faults_check_test.go.

// FaultReport sums up a campaign.
type FaultReport struct {
	Report
	Leaks   []string     // stacks of goroutines that are left
	Reached map[Step]int // faults that struck there
	Moves   map[Move]int // steps of captures' lives, from their logs
	Kept    int          // captures that the monitor rightly keeps
	Off     []float64    // of complete tasks without a note: how many U the energy was off
}

// RunFaults plays schedules, 16 at a time unless Options have another number: most of a
// schedule is waiting. It returns the results of those that were played, and the first
// error that kept the campaign itself from going on.
func RunFaults(ctx context.Context, o Options, broken FaultBuild) (FaultReport, error) {
	if o.Workers <= 0 {
		o.Workers = 16
	}
	if o.Dir == "" {
		o.Dir = Scratch()
	}
	r := FaultReport{Moves: map[Move]int{}, Reached: map[Step]int{}}
	var mu sync.Mutex
	var err error
	r.Report, err = Run(ctx, o, func(ctx context.Context, seed uint64) (out Result, err error) {
		pprof.Do(ctx, pprof.Labels(label, strconv.FormatUint(seed, 10)), func(ctx context.Context) {
			var res FaultResult
			res, err = PlayFaults(ctx, DrawFaults(seed), broken, o.Dir)
			out = res.Result
			mu.Lock()
			defer mu.Unlock()
			r.add(res)
		})
		return out, err
	})
	if err == nil {
		r.Leaks = Leaks()
	}
	return r, err
}

func (r *FaultReport) add(res FaultResult) {
	r.Kept += res.Kept
	if !math.IsNaN(res.Off) {
		r.Off = append(r.Off, res.Off)
	}
	for m, n := range res.Moves {
		r.Moves[m] += n
	}
	for _, f := range res.Fired {
		r.Reached[f.Step]++
	}
}

// Table is faults × outcomes as Markdown.
func (r *FaultReport) Table() string {
	all := make([]string, len(Kinds))
	for i, k := range Kinds {
		all[i] = string(k)
	}
	return r.Report.Table(all, []string{OutcomeComplete, OutcomeIncomplete, OutcomeUntrimmed, OutcomeNone})
}

func (r *FaultReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nfaults by step:", r.Table())
	for _, s := range Steps {
		fmt.Fprintf(&b, " %s %d;", s, r.Reached[s])
	}
	fmt.Fprintf(&b, "\nsteps of captures seen in their logs: %d of different kinds\ncaptures rightly kept on the monitor: %d\n", len(r.Moves), r.Kept)
	if len(r.Off) > 0 {
		slices.Sort(r.Off)
		at := func(share float64) float64 { return r.Off[int(share*float64(len(r.Off)-1))] }
		fmt.Fprintf(&b, "energies of %d complete tasks off by: median %.2f U, 95 %% %.2f U, most %.2f U\n", len(r.Off),
			at(0.5), at(0.95), at(1))
	}
	return b.String()
}

// The settings of TestCampaign.
var (
	faultBuild  = flag.String("broken", "", "broken build that must be caught: ack, release or commit before its time")
	faultBuilds = map[string]FaultBuild{
		"": Whole, "ack": AckBeforeSync, "release": ReleaseBeforeStore,
		"commit": CommitBeforeSync,
	}
)

// few is how many schedules a plain test plays: each kind of fault is among them, and each step.
const few = 48

// The campaign. A longer one, and a single schedule again:
//
//	go test ./cmd/trial -run Campaign -timeout 0 -v -schedules 5000
//	go test ./cmd/trial -run Campaign -v -schedules 1 -seed 182
func TestCampaign(t *testing.T) {
	coverage.Long(t)
	n := few
	if testing.Short() {
		n /= 2
	}
	broken, known := faultBuilds[*faultBuild]
	if !known {
		t.Fatalf("-broken %s: there are ack, release and commit", *faultBuild)
	}
	r, err := RunFaults(t.Context(), settings.Options(t, len(Kinds)*len(Steps), n), broken)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v\n%v", &r.Report, &r)
	if len(r.Moves) == 0 && r.Played >= 10 {
		t.Errorf("%d schedules without moves show nothing", r.Played)
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

// Seeds walk through all pairs of faults and steps, and the few of a plain test through each of both.
func TestDrawReachesEveryPair(t *testing.T) {
	type pair struct {
		Kind
		Step
	}
	seen, kinds, steps := map[pair]bool{}, map[Kind]bool{}, map[Step]bool{}
	want := len(Kinds) * len(Steps)
	for i := range want {
		f := DrawFaults(settings.o.Seed + uint64(i*stride(want)%want)).Faults[0]
		seen[pair{f.Kind, f.Step}] = true
		if kinds[f.Kind], steps[f.Step] = true, true; i+1 == few && (len(kinds) < len(Kinds) || len(steps) < len(Steps)) {
			t.Errorf("a plain test tries %d of %d faults at %d of %d steps", len(kinds), len(Kinds), len(steps), len(Steps))
		}
	}
	if len(seen) != want {
		t.Errorf("%d of %d pairs", len(seen), want)
	}
}

// A product that breaks its word is caught: a monitor that calls samples durable
// before it has synced them, a host that has a capture dropped before it is stored.
func TestBrokenBuildsAreCaught(t *testing.T) {
	coverage.Long(t)
	if testing.Short() {
		t.Skip("it is caught without -short; nothing here races that the campaign does not")
	}
	for _, c := range []struct {
		name   string
		broken FaultBuild
		kind   Kind
		steps  []Step
		also   []Fault
	}{
		// The host has not stored the samples yet, and dies with it.
		{
			"acknowledged before synced", AckBeforeSync, CutPower,
			[]Step{StepStopped},
			[]Fault{
				{Kind: KillHost, Step: StepStopped, Nth: 1},
				{Kind: DatabaseWrite, Step: StepStoring, Nth: 1, Hold: time.Second},
			},
		},
		{
			"committed before synced", CommitBeforeSync, CutHost,
			[]Step{StepStored, StepFinished, StepRelease, StepReleased},
			nil,
		},
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
			for seed := uint64(0); played < 50; seed++ {
				s := DrawFaults(seed)
				if len(s.Faults) != 1 || s.Faults[0].Kind != c.kind || !among(s.Faults[0].Step, c.steps) {
					continue
				}
				played++
				s.Faults = append(s.Faults, c.also...)
				r, err := PlayFaults(t.Context(), s, c.broken, Scratch())
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Violations) == 0 {
					continue
				}
				t.Logf("caught by schedule %d, %v: %q", played, s, r.Violations)
				if r, err = PlayFaults(t.Context(), s, Whole, Scratch()); err != nil || len(r.Violations) > 0 {
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

// FaultResult is the course of one schedule.
type FaultResult struct {
	Result
	Fired []Fault // that struck; the steps of the others were never reached
	// Kept is how many captures the monitor rightly still keeps: of a task whose samples
	// its disk has damaged, or of no task.
	Kept int
	// Off is by how many U the energy of a complete task was off; NaN without one.
	Off   float64
	Moves map[Move]int
}

// The outcomes: the state in which the measurement's task ended.
const (
	OutcomeComplete   = "complete"
	OutcomeIncomplete = "incomplete"
	OutcomeUntrimmed  = "untrimmed"
	OutcomeNone       = "no task"
)

// hitLease is short, so that a fault can outlast it.
const hitLease = 1500 * time.Millisecond

// patience bounds how long a world that has healed may take to come to rest.
const patience = 60 * time.Second

// PlayFaults plays one schedule in a folder of its own below dir. An error means that
// the campaign itself could not do it.
func PlayFaults(ctx context.Context, s FaultSchedule, b FaultBuild, dir string) (FaultResult, error) {
	empty, err := EmptyDatabase()
	if err != nil {
		return FaultResult{}, err
	}
	own, err := os.MkdirTemp(dir, fmt.Sprintf("world%d-", s.Seed))
	if err != nil {
		return FaultResult{}, err
	}
	defer os.RemoveAll(own)
	w := newWorld(ctx, s, b, own)
	path := filepath.Join(own, "power.db")
	w.mendRecords()
	if err := errors.Join(w.plant(w.monitor.dir), os.WriteFile(path, empty, 0o600), w.watchDatabase(path)); err != nil {
		return FaultResult{}, err
	}
	err = w.play()
	for _, d := range w.databases {
		d.disk.Forget()
	}
	if err != nil && !errors.Is(err, errLost) {
		return FaultResult{}, fmt.Errorf("%v: %w", s, err)
	}
	if open := openFiles(own); len(open) > 0 {
		w.fail("files are open that nobody closed: %v", open)
	}
	r := FaultResult{Fired: w.struckBy, Kept: w.seen.kept, Off: w.seen.off, Moves: w.seen.moves}
	r.Schedule, r.Again, r.Outcome, r.Violations = s.String(),
		fmt.Sprintf("go test ./cmd/trial -run Campaign -v -schedules 1 -seed %d", s.Seed), w.seen.outcome,
		w.seen.violations
	for _, f := range w.struckBy {
		r.Struck = append(r.Struck, string(f.Kind))
	}
	if !math.IsNaN(r.Off) {
		r.Notes = append(r.Notes, fmt.Sprintf("its energy is off by %.2f U", r.Off))
	}
	return r, nil
}

// play lives through the schedule: a measurement with its faults, recovery until
// nothing is half done, the invariants, and a measurement without faults.
func (w *world) play() error {
	defer w.heals.Wait()
	life, end := context.WithCancel(w.ctx)
	defer end()
	go w.card.run(life)
	if err := w.enterHost(); err != nil {
		return err
	}
	if err := w.monitor.start(); err != nil {
		return err
	}
	defer w.monitor.retire()
	_, w.hitErr = w.measure("hit", hitLease) // its outcome is read from the database
	if err := w.comeToRest(); err != nil {
		return err
	}
	w.check()
	w.afterwards()
	w.leave()
	w.checkPlanted()
	if err := w.host.end(); err != nil || !w.struck(StoredRot) {
		return err
	}
	return w.damaged()
}

// enterHost starts a process of the host, in place of one that ended.
func (w *world) enterHost() error {
	w.mu.Lock()
	old := w.host
	w.mu.Unlock()
	if old != nil {
		if err := old.end(); err != nil {
			return err
		}
	}
	for begun := time.Now(); ; {
		h, err := newHost(w)
		switch {
		case h != nil || err != nil:
			return err
		case time.Since(begun) > patience:
			w.fail("the host's database cannot be opened within %v", patience)
			return errLost
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-w.ctx.Done():
		}
	}
}

var spec = marker.Spec{Code: marker.M31, Chip: 203.1e-6, Guard: 6, TagBits: 4, Tag: 11}

func (w *world) measure(name string, lease time.Duration) (store.TaskID, error) {
	w.mu.Lock()
	h := w.host
	w.mu.Unlock()
	m := spec
	g := hostGPU{w.card, w}
	return measurement.Measure(h.ctx, measurement.Config{
		DB: stores{h.db, h}, Monitor: asks{h}, Device: g, Name: name, User: "campaign", Holder: "campaign@host",
		Marker: &m, Lead: 4 * time.Millisecond, Lease: lease, NoMethods: true, Now: w.card.now,
	}, g.work)
}

// comeToRest starts the host anew and lets it recover, as its daemon does, until
// no task is half done and the bench is free.
func (w *world) comeToRest() error {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if err := w.enterHost(); err != nil {
		return err
	}
	for {
		w.mu.Lock()
		h := w.host
		w.mu.Unlock()
		w.at(StepRecover)
		_, rerr := measurement.Recover(h.ctx, stores{h.db, h}, w.reach)
		if h.dead.Load() || h.ctx.Err() != nil {
			if err := w.enterHost(); err != nil {
				return err
			}
			continue
		}
		open, err := h.db.Unfinished(ctx)
		if err = errors.Join(rerr, err); err == nil && len(open) == 0 {
			b, berr := h.client.GetBench(ctx)
			if berr == nil && b.Holder == "" {
				break
			}
			err = fmt.Errorf("the bench is held by %q: %w", b.Holder, berr)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			if w.ctx.Err() != nil {
				return w.ctx.Err()
			}
			w.fail("after %v of recovery there are %d half tasks: %v", patience, len(open), err)
			w.heals.Wait()
			w.heal()
			return nil
		}
	}
	// Faults that have not struck yet have missed their step.
	w.mu.Lock()
	w.schedule.Faults = nil
	w.mu.Unlock()
	w.heals.Wait()
	w.heal()
	// What was out of reach at the last look is in reach now.
	if _, err := measurement.Recover(w.host.ctx, stores{w.host.db, w.host}, w.reach); err != nil {
		w.fail("recovery fails without a fault: %v", err)
	}
	return nil
}

// reach is measurement.Dial.
func (w *world) reach(context.Context, string) (measurement.Monitor, func() error, error) {
	return asks{w.host}, func() error { return nil }, nil
}
