package instructions

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// loopCode is the machine code of a loop, by opcode without modifiers.
type loopCode map[string]int

// SASS is what the steps of a program became in machine code.
type SASS struct {
	Instruction string `json:"instruction"`
	Level       int    `json:"level"`
	// PerOp is how many machine instructions the block added, over those that the
	// PTX says it has.
	PerOp float64 `json:"per_op"`
	// Opcodes that the block added, most frequent first, as IMAD×5.
	Opcodes []string `json:"opcodes"`
	// Calls says that it calls a routine outside of the loop, which is not counted.
	Calls bool `json:"calls"`
}

var (
	sassLine   = regexp.MustCompile(`^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_.]*)\b([^;]*);`)
	sassTarget = regexp.MustCompile(`0x([0-9a-f]+)\s*$`)
)

// sassInstruction is one line of a disassembly.
type sassInstruction struct {
	at, target uint64 // of a branch; at itself for others
	op         string // without modifiers
}

// parseSASS finds the loop in a disassembly of one kernel by cuobjdump: the span
// of the longest branch back.
func parseSASS(text string) (loopCode, error) {
	lines, err := sassLines(text)
	if err != nil {
		return nil, err
	}
	var back sassInstruction
	for _, l := range lines {
		if l.op == "BRA" && l.target < l.at && l.at-l.target > back.at-back.target {
			back = l
		}
	}
	if back.op == "" {
		return nil, fmt.Errorf("instructions: no loop among %d machine instructions", len(lines))
	}
	code := loopCode{}
	for _, l := range lines {
		if l.at >= back.target && l.at <= back.at && l.op != "NOP" {
			code[l.op]++
		}
	}
	return code, nil
}

// sassLines reads the lines that are instructions, and passes over others: a
// header, the encoding in hexadecimals, scheduling remarks.
func sassLines(text string) (out []sassInstruction, err error) {
	kernels := 0
	for s := range strings.Lines(text) {
		if strings.Contains(s, "Function :") {
			if kernels++; kernels > 1 {
				return nil, fmt.Errorf("instructions: a disassembly of %d kernels: want one", kernels)
			}
		}
		m := sassLine.FindStringSubmatch(s)
		if m == nil {
			continue
		}
		l := sassInstruction{op: m[2]}
		if l.at, err = strconv.ParseUint(m[1], 16, 64); err != nil {
			return nil, fmt.Errorf("instructions: %w in %q", err, s)
		}
		l.op, _, _ = strings.Cut(l.op, ".")
		l.target = l.at
		if t := sassTarget.FindStringSubmatch(strings.TrimSpace(m[3])); l.op == "BRA" && t != nil {
			if l.target, err = strconv.ParseUint(t[1], 16, 64); err != nil {
				return nil, fmt.Errorf("instructions: %w in %q", err, s)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// added is what the code with the block has more than the code without it.
func (s *SASS) added(with, without loopCode, ops int) {
	type count struct {
		op string
		n  int
	}
	var counts []count
	sum := 0
	all := maps.Clone(with)
	maps.Copy(all, without)
	for op := range all {
		n := with[op] - without[op]
		sum += n
		s.Calls = s.Calls || (op == "CALL" && n > 0)
		if n != 0 {
			counts = append(counts, count{op, n})
		}
	}
	slices.SortFunc(counts, func(a, b count) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.op, b.op)) })
	for _, c := range counts {
		s.Opcodes = append(s.Opcodes, fmt.Sprintf("%s×%d", c.op, c.n))
	}
	s.PerOp = float64(sum) / float64(ops)
}
