package capture

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTransitions tries every trigger in every state: those of the table lead
// where it says, all others are refused.
func TestTransitions(t *testing.T) {
	want := map[string]State{
		"state(0) created": Arming,

		"ARMING first scan": Running, "ARMING stop asked": Incomplete, "ARMING failed": Incomplete,
		"ARMING monitor restarted": Incomplete,

		"RUNNING stop asked": Stopping, "RUNNING failed": Incomplete, "RUNNING lease ended": Incomplete,
		"RUNNING monitor restarted": Incomplete,

		"STOPPING tail written": Complete, "STOPPING failed": Incomplete, "STOPPING monitor restarted": Incomplete,

		"COMPLETE released": Released, "INCOMPLETE released": Released,
	}
	defined := 0
	for s := State(0); s <= Released+1; s++ {
		for tr := Trigger(0); tr <= ReleaseDone+1; tr++ {
			got, err := s.Next(tr)
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
