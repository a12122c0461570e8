package bench

import (
	"os"
	"regexp"
	"testing"

	"wattmark/monitor/instrument/registry"
)

// The page's example is a bench file that works, and the pages name every kind.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/bench-file.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("no example on the page")
	}
	for _, b := range blocks {
		if _, err := Parse("docs/bench-file.md", b[1]); err != nil {
			t.Error(err)
		}
	}
	instruments, err := os.ReadFile("../../docs/instruments.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range registry.Kinds() {
		if !regexp.MustCompile("(?m)^## " + k.Name + "$").Match(instruments) {
			t.Errorf("docs/instruments.md has no section on %s", k.Name)
		}
	}
}
