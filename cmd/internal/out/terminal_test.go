package out

import (
	"strings"
	"testing"
)

func TestLegendFits(t *testing.T) {
	legend := "     ■ total   ■ pcie_3v3   ■ aux"
	for room := 12; room < 60; room++ {
		text := wrapLegend(legend, 2, room)
		if Widest(text) > max(room, len("  ■ pcie_3v3")-2) || strings.Count(text, "■") != 3 {
			t.Errorf("room %d:\n%s", room, text)
		}
	}
	if wrapLegend(legend, 2, 0) != legend {
		t.Error("a file has room")
	}
	if k := withKey("  MM══MM", "M marker, ═ window", 2, 20); Widest(k) > 20 || !strings.Contains(k, "\n  M marker") {
		t.Errorf("key %q", k)
	}
}
