package model

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"wattmark/monitor/capture"
	"wattmark/store"
)

func rules(captures, chunks int) Rules {
	return Rules{Captures: captures, Chunks: chunks, Capture: capture.Life(), Task: store.Life()}
}

// hands are rules under which others lay hands on what there is.
func hands(captures, chunks int) Rules {
	r := rules(captures, chunks)
	r.Hands = true
	return r
}

// The tables that captures and tasks follow hold in every interleaving, and every row
// of them, and every move of the model, is taken in some.
func TestModelHolds(t *testing.T) {
	all := []Rules{rules(1, 1), rules(1, 2), hands(1, 2)}
	if !testing.Short() {
		all = append(all, rules(2, 1), rules(2, 2))
	}
	sum := map[string]int{}
	for _, r := range all {
		got := Explore(r)
		t.Logf("%d captures of %d chunks, others' hands %v: %d states, %d transitions", r.Captures, r.Chunks, r.Hands, got.States, got.Steps)
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

// A row that is added to a table without a way there is told, and so is a move.
func TestModelTellsWhatIsNotTaken(t *testing.T) {
	sum := Explore(hands(1, 2)).Taken
	if got := untaken(sum, capture.Life(), store.Life()); len(got) > 0 {
		t.Fatalf("not taken: %q", got)
	}
	captures, tasks := capture.Life(), store.Life()
	captures[capture.Stopping][capture.LeaseEnded] = capture.Incomplete
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
	for s := capture.State(0); s <= capture.Released+1; s++ {
		for on := capture.Trigger(0); on <= capture.ReleaseDone+1; on++ {
			a, aerr := s.Next(on)
			b, berr := life.Next(s, on)
			if a != b || (aerr == nil) != (berr == nil) {
				t.Errorf("%v, %v: captures go to %v (%v), the table says %v (%v)", s, on, a, aerr, b, berr)
			}
		}
	}
	life[capture.Running][capture.StopAsked] = capture.Complete
	if to, _ := capture.Running.Next(capture.StopAsked); to != capture.Stopping {
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
	for s := capture.State(0); s <= capture.Released; s++ {
		for on := capture.Created; on <= capture.ReleaseDone; on++ {
			row := captureRow(s, on)
			was, there := life[s][on]
			if there {
				all[row+": left out"] = change{row, func(r Rules) { delete(r.Capture[s], on) }}
			}
			for to := capture.Arming; to <= capture.Released; to++ {
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
