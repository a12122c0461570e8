package model

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/store"
)

// Result sums up an exploration.
type Result struct {
	States, Steps int
	// Taken is how often each row of the two tables, and each move of the model, was
	// taken; Refused how often a table was asked for a row that it does not have.
	Taken, Refused map[string]int
	// Violation is the first that was met, with the shortest way to it; empty for none.
	Violation string
	Trace     []string
}

// origin is how a state was first reached.
type origin struct {
	from int32
	nth  uint8 // of the steps from there
	does action
}

// Explore visits every state that can be reached, and stops at the first that breaks an
// invariant. When none does, it looks whether from every state the place can come to
// rest once the faults cease.
func Explore(r Rules) Result {
	m := &machine{r: r}
	res := m.explore(nil)
	res.Taken, res.Refused = m.taken.rows()
	return res
}

// explore visits every state, and tells look of every step: the way to the state that
// it is taken from, and which of the steps from there it is. look may be nil.
func (m *machine) explore(look func(way func() []uint8, from *place, s *step)) (res Result) {
	start := place{up: true}
	places, origins := []place{start}, []origin{{from: -1}}
	number := map[place]int32{start: 0}
	var back [][]int32 // by state: those from which a step without fault leads here
	back = append(back, nil)
	for i := 0; i < len(places); i++ {
		for nth, s := range m.next(places[i]) {
			res.Steps++
			if look != nil {
				look(func() []uint8 { return append(way(origins, i), uint8(nth)) }, &places[i], &s)
			}
			m.taken.move(s.does)
			if why := broken(m.r, &s.to); why != "" {
				res.States, res.Violation, res.Trace = len(places), why, append(trace(origins, i), s.does.String())
				return res
			}
			forget(&s.to)
			n, seen := number[s.to]
			if !seen {
				n = int32(len(places))
				number[s.to] = n
				places, origins, back = append(places, s.to), append(origins, origin{int32(i), uint8(nth), s.does}),
					append(back, nil)
			}
			if !s.fault && n != int32(i) {
				back[n] = append(back[n], int32(i))
			}
		}
	}
	res.States = len(places)
	if i := stuck(m.r, places, back); i >= 0 {
		res.Violation, res.Trace = "the place cannot come to rest from here: "+fmt.Sprintf("%+v", places[i]),
			trace(origins, i)
	}
	return res
}

// forget takes out of a state what nothing can depend on any more, so that states
// that differ in it alone are one.
func forget(p *place) {
	for i := range p.all {
		c := &p.all[i]
		if c.daemon == done {
			c.daemon = resting
		}
		if c.daemon != ending {
			c.daemonSaw = false
		}
		if c.session != ending {
			c.sawWhole = false
		}
		if c.life.Ended() {
			c.begun, c.asked, c.told = false, false, false
		}
		if c.session != done && c.session != dead {
			continue
		}
		c.session = done
		c.wire &= toMonitor
		if c.life == 0 {
			c.wire &^= askStop | askRelease
		}
		if c.life == 0 && c.wire == 0 && c.daemon == resting && c.state != store.Running {
			*c = one{session: done}
		}
	}
}

// stuck returns a state from which no way without faults leads to rest, −1 for none.
func stuck(r Rules, places []place, back [][]int32) int {
	good := make([]bool, len(places))
	var todo []int32
	for i := range places {
		if atRest(r, &places[i]) {
			good[i] = true
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range back[n] {
			if !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	return slices.Index(good, false)
}

// atRest: the bench is free, no task is half done, and no task's capture is left.
func atRest(r Rules, p *place) bool {
	if !p.up || p.bench != 0 {
		return false
	}
	for i := range r.Captures {
		c := &p.all[i]
		if c.state == store.Running || c.life != 0 && c.state != 0 && !c.leftByHand() || c.session != done &&
			c.session != dead {
			return false
		}
	}
	return true
}

// leftByHand: somebody ended the task while its monitor had more, and nobody fetches
// that any more. The capture stays until the monitor's keep drops it.
func (c *one) leftByHand() bool { return c.byHand && c.life.Ended() && c.have < c.chunks }

// broken names the invariant that a state breaks; empty for none.
func broken(r Rules, p *place) string {
	for i := range r.Captures {
		c := &p.all[i]
		runs := c.life == session.Arming || c.life == session.Running || c.life == session.Stopping
		switch {
		case p.up && (p.bench == uint8(i+1)) != runs:
			return fmt.Sprintf("capture %d is %v, and the bench is held by %d", i+1, c.life, p.bench)
		case c.refused:
			return fmt.Sprintf("capture or task %d had to take a step that its table does not have: %v, state %d", i+1, c.life,
				c.state)
		case c.untrue:
			return fmt.Sprintf("capture or task %d is %v and %d, which is not what happened to it", i+1, c.life, c.state)
		case c.life == session.Arming && c.chunks > 0:
			return fmt.Sprintf("capture %d has chunks, and has not begun", i+1)
		case c.twice:
			return fmt.Sprintf("task %d was ended twice", i+1)
		case p.up && (c.life == session.Running || c.life == session.Stopping) && !c.begun, c.life == session.Stopping &&
			!c.asked, c.life == session.Arming && c.begun:
			return fmt.Sprintf("capture %d is %v without cause", i+1, c.life)
		case (c.state == store.Complete || c.state == store.Untrimmed) && (c.have != c.total || c.ended != session.Complete):
			return fmt.Sprintf("task %d has all with %d of %d chunks of a capture that was %v", i+1, c.have, c.total, c.ended)
		case c.state != store.Complete && c.state > store.Running && !c.reason:
			return fmt.Sprintf("task %d is not complete, and says no reason", i+1)
		case c.state == store.Complete && c.reason && c.session == done && c.daemon == resting && c.ended != session.Complete:
			return fmt.Sprintf("task %d is complete, and its capture was %v", i+1, c.ended)
		case c.acked > 0 && c.have < c.acked-1 && c.chunks < c.acked-1:
			return fmt.Sprintf("capture %d: %d chunks were called durable; %d are on the monitor, %d on the host", i+1,
				c.acked-1, c.chunks, c.have)
		case c.released && c.state != 0 && c.have < c.total:
			return fmt.Sprintf("capture %d was released with %d chunks, and %d are stored", i+1, c.total, c.have)
		case c.released && c.state == store.Running:
			return fmt.Sprintf("capture %d was released before its task had ended", i+1)
		}
	}
	return ""
}

// way returns the step that leads on from each state on the way to one.
func way(origins []origin, i int) (nth []uint8) {
	for ; origins[i].from >= 0; i = int(origins[i].from) {
		nth = append(nth, origins[i].nth)
	}
	slices.Reverse(nth)
	return nth
}

// trace names the steps to a state.
func trace(origins []origin, i int) (names []string) {
	for ; origins[i].from >= 0; i = int(origins[i].from) {
		names = append(names, origins[i].does.String())
	}
	slices.Reverse(names)
	return names
}

func rules(captures, chunks int) Rules {
	return Rules{Captures: captures, Chunks: chunks, Capture: capture.Life(), Task: store.Life()}
}

// hands are rules under which others lay hands on what there is.
func hands(captures, chunks int) Rules {
	r := rules(captures, chunks)
	r.Hands = true
	return r
}

// together is a model of some million states.
var together = flag.Bool("together", false, "explore also two hosts that measure beside each other: takes minutes")

// The tables that captures and tasks follow hold in every interleaving, and every row
// of them, and every move of the model, is taken in some.
func TestModelHolds(t *testing.T) {
	coverage.Long(t)
	all := []Rules{rules(1, 1), rules(1, 2), hands(1, 2)}
	if !testing.Short() {
		all = append(all, rules(2, 1))
	}
	if coverage.Slow {
		all = append(all, rules(2, 2))
	}
	if *together {
		r := rules(2, 1)
		r.Together = true
		all = append(all, r)
	}
	sum := map[string]int{}
	for _, r := range all {
		got := Explore(r)
		t.Logf("%d captures of %d chunks, together %v, others' hands %v: %d states, %d transitions",
			r.Captures, r.Chunks, r.Together, r.Hands, got.States, got.Steps)
		if got.Violation != "" {
			t.Errorf("%s\n%q", got.Violation, got.Trace)
		}
		if got.States < 1000 {
			t.Errorf("%d states: the model does not move", got.States)
		}
		for row, n := range got.Taken {
			sum[row] += n
		}
	}
	for _, row := range slices.Sorted(maps.Keys(sum)) {
		t.Logf("%12d times %s", sum[row], row)
	}
	for _, row := range untaken(sum, capture.Life(), store.Life()) {
		t.Errorf("never taken: %s. The model needs a way there, or never a proof that there is none", row)
	}
}

// never are rows of the tables that cannot be taken, each with the invariant that says
// so and is looked at in every state (broken).
var never = map[string]string{
	"capture ARMING monitor restarted": "a capture with chunks has begun (monitor/capture: TestALogWithScansSaysThatItRuns), and one without is dropped",
}

// untaken lists the rows, states and moves that an exploration did not come by, and
// those that it did though they are listed as never.
func untaken(sum map[string]int, captures capture.Transitions, tasks store.Transitions) (out []string) {
	var want []string
	for s, m := range captures {
		for on := range m {
			want = append(want, captureRow(s, on))
		}
	}
	for s, m := range tasks {
		for on := range m {
			want = append(want, taskRow(s, on))
		}
	}
	for m := range moves {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(sum)), func(row string) bool {
			return row == m.String() || strings.HasPrefix(row, m.String()+":")
		}) {
			out = append(out, m.String())
		}
	}
	for _, row := range want {
		if (sum[row] > 0) == (never[row] != "") {
			out = append(out, row)
		}
	}
	return out
}

// A row that is added to a table without a way there is reported, and so is a move.
func TestModelTellsWhatIsNotTaken(t *testing.T) {
	sum := Explore(hands(1, 2)).Taken
	if got := untaken(sum, capture.Life(), store.Life()); len(got) > 0 {
		t.Fatalf("not taken: %q", got)
	}
	captures, tasks := capture.Life(), store.Life()
	captures[session.Stopping][capture.LeaseEnded] = session.Incomplete
	tasks[store.Complete][store.Postponed] = store.Running
	delete(sum, "meter or disk fails")
	want := []string{"meter or disk fails", "capture STOPPING lease ended", "task 2 postponed"}
	if got := untaken(sum, captures, tasks); !slices.Equal(got, want) {
		t.Errorf("not taken: %q, want %q", got, want)
	}
}

// The model looks steps up in the tables in force, and not in tables of its own.
func TestModelFollowsTheTablesInForce(t *testing.T) {
	life := capture.Life()
	for s := session.State(0); s <= session.Released+1; s++ {
		for on := capture.Trigger(0); on <= capture.ReleaseDone+1; on++ {
			a, aerr := capture.Life().Next(s, on)
			b, berr := life.Next(s, on)
			if a != b || (aerr == nil) != (berr == nil) {
				t.Errorf("%v, %v: captures go to %v (%v), the table says %v (%v)", s, on, a, aerr, b, berr)
			}
		}
	}
	life[session.Running][capture.StopAsked] = session.Complete
	if to, _ := capture.Life().Next(session.Running, capture.StopAsked); to != session.Stopping {
		t.Error("who changes the copy changes the table in force")
	}
}

// A monitor that answers before it has synced is found.
func TestModelFindsAckBeforeSync(t *testing.T) {
	r := rules(1, 2)
	r.AckBeforeSync = true
	got := Explore(r)
	t.Logf("%s\n%q", got.Violation, got.Trace)
	if !strings.Contains(got.Violation, "called durable") {
		t.Errorf("not found: %q", got.Violation)
	}
}

// Every single change of the tables – a step left out, a step that leads elsewhere, a
// step that there should not be – is caught where the table is ever asked for it.
func TestModelCatchesChangedTables(t *testing.T) {
	base := Explore(hands(1, 1))
	caught, never := 0, 0
	for name, change := range changes() {
		if base.Taken[change.row]+base.Refused[change.row] == 0 {
			never++ // every step is as before
			continue
		}
		r := hands(1, 1)
		change.make(r)
		if Explore(r).Violation == "" {
			t.Errorf("%q is not caught", name)
		}
		caught++
	}
	t.Logf("%d changed tables caught; %d are of steps that nothing ever asks for", caught, never)
	if caught < 150 {
		t.Errorf("only %d changes were tried", caught)
	}
}

// change is one change of a table, in one row.
type change struct {
	row  string
	make func(Rules)
}

func changes() map[string]change {
	all := map[string]change{}
	life := capture.Life()
	for s := session.State(0); s <= session.Released; s++ {
		for on := capture.Created; on <= capture.ReleaseDone; on++ {
			row := captureRow(s, on)
			was, there := life[s][on]
			if there {
				all[row+": left out"] = change{row, func(r Rules) { delete(r.Capture[s], on) }}
			}
			for to := session.Arming; to <= session.Released; to++ {
				if to != was {
					all[fmt.Sprintf("%s: to %v", row, to)] = change{row, func(r Rules) { r.Capture[s][on] = to }}
				}
			}
		}
	}
	tasks := store.Life()
	for s := store.State(0); s <= store.Failed; s++ {
		for on := store.Begun; on <= store.RevisedFailed; on++ {
			row := taskRow(s, on)
			was, there := tasks[s][on]
			if there {
				all[row+": left out"] = change{row, func(r Rules) { delete(r.Task[s], on) }}
			}
			for to := store.Running; to <= store.Failed; to++ {
				if to != was {
					all[fmt.Sprintf("%s: to %d", row, to)] = change{row, func(r Rules) { r.Task[s][on] = to }}
				}
			}
		}
	}
	return all
}

// The page shows the table of tasks as it is in force.
func TestTaskTableIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"–", "running", "complete", "incomplete", "untrimmed", "failed"}
	var want []string
	for s, m := range store.Life() {
		for on, to := range m {
			want = append(want, fmt.Sprintf("| %s | %v | %s |", names[s], on, names[to]))
		}
	}
	for _, row := range want {
		if !slices.Contains(strings.Split(string(page), "\n"), row) {
			t.Errorf("docs/reliability.md lacks %s", row)
		}
	}
}
