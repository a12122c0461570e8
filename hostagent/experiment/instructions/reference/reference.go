// Package reference has the published figures of others, for comparison with ours.
package reference

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/wattmark/wattmark/hostagent/experiment/instructions"
	"github.com/wattmark/wattmark/measure"
)

// table1 is Table I of Arafa et al., "Verified instruction-level energy
// consumption measurement for NVIDIA GPUs" (2020): microjoules, digit for digit as
// they are printed. note marks irregular cells:
//
//	digits        not four decimals
//	order         PAPI below MTSM, as in 21 of 254 cells only
//	equal         PAPI and MTSM the same, in one cell
//	not measured  the GPU does not have it
//
//go:embed table1.csv
var table1 string

// Cell is a place of Table I: one row on one GPU at one level.
type Cell struct {
	Group instructions.Group
	Row   string
	GPU   string
	Level int
	// PAPI and MTSM are as printed; empty where it was not measured.
	PAPI, MTSM string
	Notes      []string
}

// GPUs are the architectures of Table I, in its order.
func GPUs() []string { return []string{"Maxwell", "Pascal", "Volta", "Turing"} }

// TableI returns all cells, in the order of the table.
var TableI = sync.OnceValue(func() []Cell {
	lines, err := csv.NewReader(strings.NewReader(table1)).ReadAll()
	if err != nil {
		panic(err) // it is embedded, and a test reads it
	}
	out := make([]Cell, 0, len(lines)-1)
	for _, l := range lines[1:] {
		c := Cell{Group: instructions.Group(l[0]), Row: l[1], GPU: l[2], PAPI: l[4], MTSM: l[5]}
		if l[3] == "O3" {
			c.Level = 3
		}
		if l[6] != "" {
			c.Notes = strings.Split(l[6], "; ")
		}
		out = append(out, c)
	}
	return out
})

// Estimates returns Table I's column of a GPU as if we had measured it in one
// pass: every instruction of ours that belongs to a row has that row's energy.
func Estimates(gpu string) ([]instructions.Estimate, error) {
	n := slices.IndexFunc(GPUs(), func(g string) bool { return strings.EqualFold(g, gpu) })
	if n < 0 {
		return nil, fmt.Errorf("table I has no %q: want one of %s", gpu, strings.Join(GPUs(), ", "))
	}
	var out []instructions.Estimate
	for _, i := range instructions.Catalogue() {
		for _, c := range TableI() {
			if c.GPU != GPUs()[n] || c.PAPI == "" || c.Group != i.Group || c.Row != i.Row {
				continue
			}
			e := instructions.Estimate{
				Instruction: i.Name, Passes: 1,
				Setting: instructions.Setting{Layout: instructions.OneThread, Level: c.Level, Steps: 5},
			}
			papi, mtsm := e, e
			papi.Method, papi.Energy = instructions.PAPI, joules(c.PAPI)
			mtsm.Method, mtsm.Energy = instructions.MTSM, joules(c.MTSM)
			out = append(out, papi, mtsm)
		}
	}
	return out, nil
}

// Noted is a cell of Table I as an instruction of ours sees it.
type Noted struct {
	Instruction string
	Level       int
}

// Notes returns the irregular cells of Table I's column of a GPU, for every instruction
// of ours that belongs to a row.
func Notes(gpu string) map[Noted][]string {
	out := map[Noted][]string{}
	for _, c := range TableI() {
		if !strings.EqualFold(c.GPU, gpu) || len(c.Notes) == 0 {
			continue
		}
		for _, i := range instructions.Catalogue() {
			if i.Group == c.Group && i.Row == c.Row {
				out[Noted{i.Name, c.Level}] = c.Notes
			}
		}
	}
	return out
}

// joules reads a figure in microjoules; that it is one, a test has seen.
func joules(s string) measure.Joule {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return measure.Joule(v * 1e-6)
}
