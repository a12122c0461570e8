package lists

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMap(t *testing.T) {
	if diff := cmp.Diff([]string{"3", "1", "2"}, Map([]int{3, 1, 2}, strconv.Itoa)); diff != "" {
		t.Error(diff)
	}
	if got := Map([]int{}, strconv.Itoa); got != nil {
		t.Errorf("%#v of an empty list, want nil", got)
	}
}

func TestGroups(t *testing.T) {
	var g Groups[string, int]
	for i, key := range []string{"b", "a", "b"} {
		g.Add(key, i)
	}
	if diff := cmp.Diff(Groups[string, int]{[]string{"b", "a"}, map[string][]int{"b": {0, 2}, "a": {1}}}, g); diff != "" {
		t.Error(diff)
	}
}
