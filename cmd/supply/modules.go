package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// programs are what is shipped.
var programs = []string{"wattmark/cmd/wattmark", "wattmark/cmd/libwattmark"}

// module is a module that is linked, and under which licences.
type module struct {
	Path, Version string
	Licences      []string // SPDX, sorted
	Files         []string // names of the texts
}

// linked returns the modules that the programs link, by path.
func linked(packages ...string) ([]module, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Module,Standard"}, packages...)...) // #nosec G702 -- packages that the user names, and no shell
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOOS=linux")                                         // both programs, also where there is no compiler
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %s", cmd.Args, err, complaints.Bytes())
	}
	seen := map[string]module{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Standard bool
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
		if _, known := seen[p.Module.Path]; known {
			continue
		}
		m := module{Path: p.Module.Path, Version: p.Module.Version}
		if err := m.read(p.Module.Dir); err != nil {
			return nil, err
		}
		seen[m.Path] = m
	}
	all := make([]module, 0, len(seen))
	for _, m := range seen {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// byHand are licences that their files say in words of their own.
var byHand = map[string]string{
	"github.com/golang/freetype": "FTL", // the reader's choice between it and the GPL; its text is in licenses/ftl.txt
}

// enough is how much of a file must be the text of known licences, in percent.
const enough = 75

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
		if c := licensecheck.Scan(text); c.Percent >= enough || len(c.Match) > 0 && len(text) > 20_000 {
			for _, match := range c.Match {
				if !slices.Contains(m.Licences, match.ID) {
					m.Licences = append(m.Licences, match.ID)
				}
			}
		}
	}
	if id := byHand[m.Path]; id != "" && len(m.Licences) == 0 {
		m.Licences = []string{id}
	}
	slices.Sort(m.Licences)
	return nil
}
