package measure

import (
	"slices"
	"testing"
)

// Instruments that are read as one come apart as they were.
func TestJoinedIdentities(t *testing.T) {
	for _, parts := range [][]Identity{
		{{Kind: "pmd", Address: "/dev/a"}},
		{{Kind: "pmd", Address: "/dev/a"}, {Kind: "labjack", Model: "T7", Serial: "47", Address: "tcp:h:502"}},
		{{Kind: "nvml"}, {Kind: "nvml"}, {Kind: "pmd"}},
	} {
		if got := JoinIdentities(parts).Parts(); !slices.Equal(got, parts) {
			t.Errorf("%+v became %+v", parts, got)
		}
	}
	odd := Identity{Kind: "a + b", Serial: "1 + 2 + 3"}
	if got := odd.Parts(); len(got) != 1 || got[0] != odd {
		t.Errorf("%+v", got)
	}
	two := JoinIdentities([]Identity{{Kind: "a", Serial: "x + y"}, {Kind: "b"}})
	if got := two.Parts(); len(got) != 2 || got[0].Serial != "x+y" {
		t.Errorf("%+v", got)
	}
}
