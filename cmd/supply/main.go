// Command supply lists the parts of the programs: the licence of every module
// that is linked, as a page; of a built program a bill of materials in CycloneDX's
// JSON, and the licence texts that go with every copy of it.
//
//	go run ./cmd/supply licences >packaging/licences.md
//	go run ./cmd/supply sbom bin/wattmark [VERSION] >bin/wattmark.cdx.json
//	go run ./cmd/supply texts bin/wattmark >licences.txt
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
	"github.com/wattmark/wattmark/internal/lists"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "supply:", err)
		os.Exit(1)
	}
}

// run writes the page of licences, or a program's bill of materials or licence texts, to out.
func run(out io.Writer, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "licences":
		modules, err := linked(programs...)
		if err != nil {
			return err
		}
		return writePage(out, modules)
	case len(args) == 2 && args[0] == "sbom", len(args) == 3 && args[0] == "sbom":
		return writeBill(out, args[1], strings.Join(args[2:], ""))
	case len(args) == 2 && args[0] == "texts":
		info, err := buildinfo.ReadFile(args[1])
		if err != nil {
			return err
		}
		modules, err := linked(info.Path)
		if err != nil {
			return err
		}
		return writeTexts(out, modules)
	}
	return errors.New("usage: supply licences, supply sbom PROGRAM [VERSION], or supply texts PROGRAM")
}

// programs are the shipped packages.
var programs = []string{"github.com/wattmark/wattmark/cmd/wattmark", "github.com/wattmark/wattmark/cmd/libwattmark"}

// module is a module that is linked, and under which licences.
type module struct {
	Path, Version string
	Licences      []string // SPDX, sorted
	Files         []string // names of the texts
	texts         []string // paths of the texts and notices, also of packages below the module's folder
}

// linked returns the modules that the programs link, by path.
func linked(packages ...string) ([]*module, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,Module,Standard"}, packages...)...) // #nosec G702 -- packages that the user names, and no shell
	// both programs, also where there is no compiler
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOOS=linux")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %s", cmd.Args, err, complaints.Bytes())
	}
	seen := map[string]*module{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Standard bool
			Dir      string
			Module   *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		m := seen[p.Module.Path]
		if m == nil {
			m = &module{Path: p.Module.Path, Version: p.Module.Version}
			if err := m.read(p.Module.Dir); err != nil {
				return nil, err
			}
			seen[m.Path] = m
		}
		if p.Dir != p.Module.Dir {
			m.addTexts(p.Dir)
		}
	}
	byPath := func(a, b *module) int { return strings.Compare(a.Path, b.Path) }
	return slices.SortedFunc(maps.Values(seen), byPath), nil
}

// byHand are licences that their files grant in words of their own.
var byHand = map[string]string{
	"github.com/golang/freetype": "FTL", // the reader's choice between it and the GPL; its text is in licenses/ftl.txt
}

// read finds the licences of a module in its folder.
func (m *module) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w: run go mod download", m.Path, err)
	}
	for _, e := range entries {
		upper := strings.ToUpper(e.Name())
		if e.IsDir() || !strings.HasPrefix(upper, "LICEN") && !strings.HasPrefix(upper, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.Files = append(m.Files, e.Name())
		// Three quarters of a file must be the text of known licences.
		if c := licensecheck.Scan(text); c.Percent >= 75 || len(c.Match) > 0 && len(text) > 20_000 {
			for _, match := range c.Match {
				m.Licences = lists.AddNew(m.Licences, match.ID)
			}
		}
	}
	m.addTexts(dir)
	if id := byHand[m.Path]; id != "" && len(m.Licences) == 0 {
		m.Licences = []string{id}
		m.addTexts(filepath.Join(dir, "licenses"))
	}
	slices.Sort(m.Licences)
	return nil
}

// addTexts notes the licences and notices in a folder, of which a copy of the program has to
// bring the words.
func (m *module) addTexts(dir string) {
	for _, pattern := range []string{"LICEN*", "Licen*", "licen*", "COPYING*", "NOTICE*", "PATENTS*", "ftl.txt"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range names {
			if i, err := os.Stat(name); err == nil && i.Mode().IsRegular() && filepath.Ext(name) != ".go" {
				m.texts = append(m.texts, name)
			}
		}
	}
}

// writeTexts writes the modules' licence texts and notices, by module and path.
func writeTexts(out io.Writer, modules []*module) error {
	b := bytes.NewBufferString("The licences of the modules. Go's own library is under that of golang.org/x/sys.\n")
	for _, m := range modules {
		slices.Sort(m.texts)
		for _, name := range m.texts {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "\n%s\n%s %s, %s\n\n%s\n", strings.Repeat("=", 80), m.Path, m.Version, filepath.Base(name),
				bytes.TrimSpace(text))
		}
	}
	_, err := b.WriteTo(out)
	return err
}

// writeBill writes the bill of materials of a built program: its own build
// information, with the licences of each module, and nothing that changes from
// one run to the next. version, where there is one, is that of the release.
func writeBill(out io.Writer, program, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(program) // #nosec G703 -- a program that the user names
	if err != nil {
		return err
	}
	modules, err := linked(info.Path)
	if err != nil {
		return err
	}
	licences := map[string]*module{}
	for _, m := range modules {
		licences[m.Path] = m
	}
	sum := sha256.Sum256(text)
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: ref(&info.Main), Type: cyclonedx.ComponentTypeApplication, Name: info.Main.Path,
		Version:  cmp.Or(version, info.Main.Version),
		Licenses: licensed([]string{"Apache-2.0"}),
		Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}}
	components := []cyclonedx.Component{{
		BOMRef: "pkg:golang/std@" + info.GoVersion, Type: cyclonedx.ComponentTypeLibrary, Name: "std",
		Version:    info.GoVersion,
		PackageURL: "pkg:golang/std@" + info.GoVersion, Licenses: licensed([]string{"BSD-3-Clause"}),
	}}
	for _, d := range info.Deps {
		d = cmp.Or(d.Replace, d)
		m, known := licences[d.Path]
		if !known {
			return fmt.Errorf("%s links %s, which this working tree does not: build it anew", program, d.Path)
		}
		components = append(components, cyclonedx.Component{
			BOMRef: ref(d), Type: cyclonedx.ComponentTypeLibrary, Name: d.Path, Version: d.Version, PackageURL: ref(d),
			Licenses:   licensed(m.Licences),
			Properties: &[]cyclonedx.Property{{Name: "go:sum", Value: d.Sum}},
		})
	}
	bom.Components = &components
	return cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// ref is a module's package URL.
func ref(m *debug.Module) string { return "pkg:golang/" + m.Path + "@" + m.Version }

func licensed(ids []string) *cyclonedx.Licenses {
	out := make(cyclonedx.Licenses, 0, len(ids))
	for _, id := range ids {
		out = append(out, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	return &out
}

func writePage(out io.Writer, modules []*module) error {
	var b strings.Builder
	b.WriteString(`# Licences of what is linked

Every module that ` + "`wattmark`" + ` and ` + "`libwattmark`" + ` link, with the licences that the texts in its folder are. Made by
` + "`make licences`" + `, which recognises texts and guesses nothing; a test holds this page against the modules, and the licences against those that
may be linked into a program under Apache-2.0. wattmark itself: [LICENSE](../LICENSE). What tests and tools use is not linked and
not listed ([CONTRIBUTING](../CONTRIBUTING.md#dependencies-and-supply-chain)). Go's own library: BSD-3-Clause.

| module | version | licences (SPDX) | texts |
|---|---|---|---|
`)
	for _, m := range modules {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.Path, m.Version, strings.Join(m.Licences, ", "),
			strings.Join(m.Files, ", "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}
