package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// may are the licences of what may be linked into a program under Apache-2.0.
var may = []string{
	"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "FTL",
	"OFL-1.1",   // fonts, which are embedded as they are
	"MPL-2.0",   // by file: those files are not changed
	"CC-BY-4.0", // svgo: its author is named in packaging/licences.md
}

// The page says what is linked, and nothing is linked that may not be.
func TestLicences(t *testing.T) {
	modules, err := linked(programs...)
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) < 20 {
		t.Fatalf("only %d modules are seen", len(modules))
	}
	for _, m := range modules {
		if len(m.Licences) == 0 {
			t.Errorf("%s: no licence is recognised in %v", m.Path, m.Files)
		}
		for _, l := range m.Licences {
			if !slices.Contains(may, l) {
				t.Errorf("%s is under %s", m.Path, l)
			}
		}
	}
	var page bytes.Buffer
	if err := writePage(&page, modules); err != nil {
		t.Fatal(err)
	}
	on, err := os.ReadFile("../../packaging/licences.md")
	if err != nil || !bytes.Equal(on, page.Bytes()) {
		t.Errorf("packaging/licences.md is not what is linked (%v): make licences", err)
	}
}

// The bill names every module that is in the program.
func TestBill(t *testing.T) {
	program := filepath.Join(t.TempDir(), "supply")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := run(b, []string{"sbom", program}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two bills of one program differ")
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(&first, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range *bom.Components {
		names = append(names, c.Name)
		if len(*c.Licenses) == 0 || c.Version == "" {
			t.Errorf("%s %s: %v", c.Name, c.Version, c.Licenses)
		}
	}
	for _, want := range []string{"std", "github.com/CycloneDX/cyclonedx-go", "github.com/google/licensecheck"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in %v", want, names)
		}
	}
	if run(&second, []string{"sbom", "supply_test.go"}) == nil || run(&second, nil) == nil {
		t.Error("what is no program has a bill")
	}
}

// Every tool that is fetched has its version written down.
func TestToolsArePinned(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	installs := regexp.MustCompile(`\$\(GO\) install (\S+)`).FindAllStringSubmatch(string(text), -1)
	versions := regexp.MustCompile(`(?m)^[A-Z_]+_VER +:= +v[0-9]+\.[0-9]+\.[0-9]+$`).FindAllString(string(text), -1)
	fetched := 0
	for _, i := range installs {
		if !strings.Contains(i[1], ".") { // our own
			continue
		}
		fetched++
		if !regexp.MustCompile(`@\$\([A-Z]+_VER\)$`).MatchString(i[1]) {
			t.Errorf("%s has no version", i[1])
		}
	}
	if fetched == 0 || fetched != len(versions) {
		t.Errorf("%d tools are fetched, %d versions are written down", fetched, len(versions))
	}
}
