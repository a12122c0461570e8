package capture

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure/session"
)

// TestTransitions tries every trigger in every state: those of the table lead
// where it says, all others are refused.
func TestTransitions(t *testing.T) {
	want := map[string]session.State{
		"state(0) created": session.Arming,

		"ARMING first scan": session.Running, "ARMING stop asked": session.Incomplete, "ARMING failed": session.Incomplete,
		"ARMING monitor restarted": session.Incomplete,

		"RUNNING stop asked": session.Stopping, "RUNNING failed": session.Incomplete, "RUNNING lease ended": session.Incomplete,
		"RUNNING monitor restarted": session.Incomplete,

		"STOPPING tail written": session.Complete, "STOPPING failed": session.Incomplete, "STOPPING monitor restarted": session.Incomplete,

		"COMPLETE released": session.Released, "INCOMPLETE released": session.Released,
	}
	defined := 0
	for s := session.State(0); s <= session.Released+1; s++ {
		for tr := Trigger(0); tr <= ReleaseDone+1; tr++ {
			got, err := transitions.Next(s, tr)
			next, ok := want[fmt.Sprintf("%v %v", s, tr)]
			if ok {
				defined++
			}
			switch {
			case ok && (err != nil || got != next):
				t.Errorf("%v, %v: %v, %v; want %v", s, tr, got, err, next)
			case !ok && (!errors.Is(err, ErrTransition) || got != s):
				t.Errorf("%v, %v: %v, %v; want it refused", s, tr, got, err)
			}
		}
	}
	if defined != len(want) {
		t.Errorf("%d of %d transitions were tried", defined, len(want))
	}
}

// TestTransitionsAreDocumented compares the table with the one in docs/protocol.md.
func TestTransitionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(page)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) >= 5 && strings.HasPrefix(strings.TrimSpace(f[1]), "`") {
			documented = append(documented, fmt.Sprintf("%s %s %s", trim3(f[1]), trim3(f[2]), trim3(f[3])))
		}
	}
	have := strings.Join(documented, "\n")
	n := 0
	for s, m := range transitions {
		for tr, next := range m {
			name := s.String()
			if s == 0 {
				name = "–"
			}
			n++
			if row := fmt.Sprintf("%s %v %v", name, tr, next); !strings.Contains(have, row) {
				t.Errorf("docs/protocol.md lacks %q", row)
			}
		}
	}
	if len(documented) != n {
		t.Errorf("docs/protocol.md has %d transitions, the table %d", len(documented), n)
	}
}

func trim3(s string) string { return strings.Trim(s, " `") }
