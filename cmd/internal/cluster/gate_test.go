package cluster

import (
	"slices"
	"testing"
)

func TestPartitionsAreRead(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0": {0}, "0,1, 4-6": {0, 1, 4, 5, 6}} {
		if got, err := parsePartitions(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"a", "1-", "3-1", "-1", "0-100000"} {
		if got, err := parsePartitions(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
