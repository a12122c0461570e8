package instructions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lazy"
)

// loopCode is the machine code of a loop, by opcode without modifiers.
type loopCode map[string]int

// SASS is the machine code of a program's steps.
type SASS struct {
	Instruction string `json:"instruction"`
	Level       int    `json:"level"`
	// PerOp is the number of machine instructions that the block added, over the number of
	// instructions in its PTX.
	PerOp float64 `json:"per_op"`
	// Opcodes that the block added, most frequent first, as IMAD×5.
	Opcodes []string `json:"opcodes"`
	// Calls: it calls a routine outside of the loop, which is not counted.
	Calls bool `json:"calls"`
}

var (
	sassLine   = lazy.Regexp(`^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_.]*)\b([^;]*);`)
	sassTarget = lazy.Regexp(`0x([0-9a-f]+)\s*$`)
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
		m := sassLine().FindStringSubmatch(s)
		if m == nil {
			continue
		}
		l := sassInstruction{op: m[2]}
		if l.at, err = strconv.ParseUint(m[1], 16, 64); err != nil {
			return nil, fmt.Errorf("instructions: %w in %q", err, s)
		}
		l.op, _, _ = strings.Cut(l.op, ".")
		l.target = l.at
		if t := sassTarget().FindStringSubmatch(strings.TrimSpace(m[3])); l.op == "BRA" && t != nil {
			if l.target, err = strconv.ParseUint(t[1], 16, 64); err != nil {
				return nil, fmt.Errorf("instructions: %w in %q", err, s)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// added counts the instructions that the code with the block has beyond the code without.
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

// ErrTools: NVIDIA's assembler or disassembler is not here.
var ErrTools = errors.New("CUDA toolkit not found")

// Toolkit is NVIDIA's assembler and disassembler.
type Toolkit struct{ ptxas, cuobjdump string }

// FindToolkit looks in PATH, CUDA_HOME and /usr/local/cuda. It fails with ErrTools.
func FindToolkit() (Toolkit, error) {
	find := func(name string) (string, error) {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
		for _, dir := range []string{os.Getenv("CUDA_HOME"), "/usr/local/cuda"} {
			if p, err := exec.LookPath(filepath.Join(dir, "bin", name)); dir != "" && err == nil {
				return p, nil
			}
		}
		return "", fmt.Errorf("%w: no %s in PATH, CUDA_HOME or /usr/local/cuda", ErrTools, name)
	}
	var t Toolkit
	var err error
	if t.ptxas, err = find("ptxas"); err != nil {
		return t, err
	}
	t.cuobjdump, err = find("cuobjdump")
	return t, err
}

// Inspect assembles a program with and without its block, and counts.
func (t Toolkit) Inspect(ctx context.Context, i Instruction, s Setting, capability int) (SASS, error) {
	out := SASS{Instruction: i.Name, Level: s.Level}
	var code [2]loopCode
	for n, block := range []bool{true, false} {
		source, err := i.PTX(Kernel{Steps: s.Steps, Block: block, Capability: capability})
		if err != nil {
			return out, err
		}
		text, err := t.disassemble(ctx, source, s.Level, capability)
		if err == nil {
			code[n], err = parseSASS(text)
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", i.Name, err)
		}
	}
	out.added(code[0], code[1], s.Steps*i.Ops)
	return out, nil
}

// disassemble compiles PTX text with ptxas in a folder of its own, and returns the machine
// code as cuobjdump prints it.
func (t Toolkit) disassemble(ctx context.Context, source []byte, level, capability int) (string, error) {
	dir, err := os.MkdirTemp("", "wattmark-sass-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	in, out := filepath.Join(dir, "a.ptx"), filepath.Join(dir, "a.cubin")
	if err := os.WriteFile(in, source[:len(source)-1], 0o600); err != nil {
		return "", err
	}
	asm := exec.CommandContext(ctx, t.ptxas, fmt.Sprintf("-arch=sm_%d", capability), fmt.Sprintf("-O%d", level), "-o",
		out, in)
	if said, err := asm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("ptxas: %w: %s", err, said)
	}
	text, err := exec.CommandContext(ctx, t.cuobjdump, "-sass", out).Output()
	if err != nil {
		return "", fmt.Errorf("cuobjdump: %w", err)
	}
	return string(text), nil
}
