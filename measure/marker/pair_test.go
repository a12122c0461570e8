package marker

import (
	"testing"

	"wattmark/measure"
)

func TestPair(t *testing.T) {
	at := func(kind Kind, t measure.Seconds) Found {
		return Found{Kind: kind, T: t, Begin: t - 0.1, End: t + 0.3, TagOK: true}
	}
	foreign := func(f Found) Found { f.TagOK = false; return f }
	plain := func(f Found) Found { f.TagOK, f.Fallback = false, true; return f }
	s1, s2, e3, e4 := at(Start, 1), at(Start, 2), at(Stop, 3), at(Stop, 4)
	for _, tc := range []struct {
		name        string
		found       []Found
		start, stop int // index into found; −1: none
	}{
		{"nothing", nil, -1, -1},
		{"both", []Found{s1, e3}, 0, 1},
		{"a retry: all tries", []Found{s1, s2, e3, e4}, 0, 3},
		{"a retry of the whole task: both tries", []Found{s1, at(Stop, 1.5), s2, e3}, 0, 3},
		{"start alone", []Found{s1}, 0, -1},
		{"stop alone", []Found{e3}, -1, 0},
		{"a stop before the start", []Found{at(Stop, 0.5), s1}, 1, -1},
		{"a stop that overlaps the start", []Found{s1, at(Stop, 1.2)}, 0, -1},
		{"a stop before, and one after", []Found{at(Stop, 0.5), s1, e3}, 1, 2},
		{"another task's are passed over", []Found{foreign(s1), s2, e3, foreign(e4)}, 1, 2},
		{"only another task's", []Found{foreign(s1), foreign(e3)}, -1, -1},
		{"the tag beats the plain pattern", []Found{plain(s1), s2, e3, plain(e4)}, 1, 2},
		{"plain where the stop was lost", []Found{s1, plain(e3)}, 0, 1},
		{"plain where the start was lost", []Found{plain(s1), plain(s2), e3}, 0, 2},
		{"nothing but plain", []Found{plain(s1), plain(s2), plain(e3), plain(e4)}, 0, 3},
		{"up-down that was asked for", []Found{{Kind: Start, T: 1, End: 1.3, TagOK: true, Fallback: true}, e3}, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start, stop := Pair(tc.found)
			pick := func(i int) *Found {
				if i < 0 {
					return nil
				}
				return &tc.found[i]
			}
			if start != pick(tc.start) || stop != pick(tc.stop) {
				t.Errorf("got %+v and %+v", start, stop)
			}
		})
	}
}
