package bench

import (
	"bytes"
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

// The benches to copy are sound, called as their files are, and each is explained: by
// the page beside them or by its own first line.
func TestBenchesToCopy(t *testing.T) {
	const dir = "../../docs/benches"
	files, err := filepath.Glob(dir + "/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v, %v", files, err)
	}
	page, err := os.ReadFile(dir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := b.NewInstrument(registry.Env{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(b.file.Rails) == 0 {
			t.Errorf("%s names no rails", name)
		}
		if b.Name+".yaml" != filepath.Base(name) {
			t.Errorf("%s is called %s", name, b.Name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(page, []byte("`"+filepath.Base(name)+"`")) && !bytes.HasPrefix(text, []byte("#")) {
			t.Errorf("nothing explains %s", filepath.Base(name))
		}
	}
}
