package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"wattmark/hostagent/instructions"
	"wattmark/measure"
)

// markdownKey names a figure of the table in docs/instructions.md.
type markdownKey struct {
	instruction string
	layout      instructions.Layout
	level       int
}

// readSASS reads what wattmark instructions sass --json printed.
func readSASS(name string) (map[markdownKey]instructions.SASS, error) {
	out := map[markdownKey]instructions.SASS{}
	if name == "" {
		return out, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var list []instructions.SASS
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: not what wattmark instructions sass --json prints: %w", name, err)
	}
	for _, s := range list {
		out[markdownKey{instruction: s.Instruction, level: s.Level}] = s
	}
	return out, nil
}

// spreadOf is a figure with its standard deviation over the passes in percent of it.
func spreadOf(e, spread measure.Joule, passes int) string {
	if passes < 2 || e == 0 {
		return joules(e)
	}
	return fmt.Sprintf("%s, %.1f %%", joules(e), 100*math.Abs(float64(spread/e)))
}

// markdownByMethod writes what each method says of one layout: a row an instruction
// and level. One thread has the paper's energies, the whole GPU dynamic ones.
func markdownByMethod(w io.Writer, table []instructions.Estimate, layout instructions.Layout) {
	type key struct {
		instruction string
		level       int
		method      instructions.Method
	}
	at := map[key]instructions.Estimate{}
	for _, e := range table {
		if e.Layout == layout {
			at[key{e.Instruction, e.Level, e.Method}] = e
		}
	}
	head := []string{"instruction", ""}
	for _, m := range instructions.Methods() {
		head = append(head, string(m))
	}
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, i := range instructions.Catalogue() {
		for _, level := range []int{3, 0} {
			row := []string{i.Name, fmt.Sprintf("-O%d", level)}
			for _, m := range instructions.Methods() {
				e, ok := at[key{i.Name, level, m}]
				switch {
				case !ok:
					row = append(row, "–")
				case layout == instructions.OneThread:
					row = append(row, spreadOf(e.Energy, e.Spread, e.Passes))
				default:
					row = append(row, spreadOf(e.Dynamic, e.DynamicSpread, e.Passes))
				}
			}
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		}
	}
}

// markdown writes one method's table for a document: a row an instruction.
func markdown(w io.Writer, table []instructions.Estimate, method instructions.Method, sass map[markdownKey]instructions.SASS) {
	at := map[markdownKey]instructions.Estimate{}
	for _, e := range table {
		if e.Method == method {
			at[markdownKey{e.Instruction, e.Layout, e.Level}] = e
		}
	}
	one, whole := instructions.OneThread, instructions.WholeGPU
	fmt.Fprintln(w, "| instruction | one thread -O3 | cycles | one thread -O0 | cycles | whole GPU -O3, dynamic | whole GPU -O0, dynamic | machine code at -O3 | at -O0 |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|")
	var group instructions.Group
	for _, i := range instructions.Catalogue() {
		if i.Group != group {
			group = i.Group
			fmt.Fprintf(w, "| **%s** | | | | | | | | |\n", group)
		}
		row := []string{i.Name}
		for _, level := range []int{3, 0} {
			e, ok := at[markdownKey{i.Name, one, level}]
			if !ok {
				row = append(row, "–", "–")
				continue
			}
			row = append(row, spreadOf(e.Energy, e.Spread, e.Passes), fmt.Sprintf("%.1f", e.Cycles))
		}
		for _, level := range []int{3, 0} {
			text := "–"
			if e, ok := at[markdownKey{i.Name, whole, level}]; ok {
				text = spreadOf(e.Dynamic, e.DynamicSpread, e.Passes)
			}
			row = append(row, text)
		}
		for _, level := range []int{3, 0} {
			row = append(row, sassText(sass, i.Name, level))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}

// sassText says how many machine instructions one became, and the most frequent.
func sassText(sass map[markdownKey]instructions.SASS, name string, level int) string {
	s, ok := sass[markdownKey{instruction: name, level: level}]
	if !ok || len(s.Opcodes) == 0 {
		return "–"
	}
	op, _, _ := strings.Cut(s.Opcodes[0], "×")
	if s.PerOp > 0.99 && s.PerOp < 1.01 && len(s.Opcodes) == 1 {
		return op
	}
	if len(s.Opcodes) > 1 {
		op += " …"
	}
	return fmt.Sprintf("%.3g: %s", s.PerOp, op)
}
