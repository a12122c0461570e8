package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"wattmark/hostagent/instructions"
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
			row = append(row, joules(e.Energy), fmt.Sprintf("%.1f", e.Cycles))
		}
		for _, level := range []int{3, 0} {
			text := "–"
			if e, ok := at[markdownKey{i.Name, whole, level}]; ok {
				text = joules(e.Dynamic)
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
