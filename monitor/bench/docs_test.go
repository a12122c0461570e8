package bench

import (
	"os"
	"path/filepath"
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

// Every bench of docs/benches can be used as it stands.
func TestBenchesOfTheDocumentation(t *testing.T) {
	files, err := filepath.Glob("../../docs/benches/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		b, err := Load(f)
		if err != nil {
			t.Error(err)
			continue
		}
		if name := filepath.Base(f); b.Name+".yaml" != name {
			t.Errorf("%s is called %s", name, b.Name)
		}
	}
}
