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
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrTools: NVIDIA's assembler or disassembler is not here.
var ErrTools = errors.New("CUDA toolkit not found")

// Machine code of a loop, by opcode without modifiers.
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

// parseSASS finds the loop in a disassembly: the span of the longest branch back.
func parseSASS(text string) (loopCode, error) {
	type line struct {
		at     uint64
		op     string
		target uint64
	}
	var lines []line
	for s := range strings.Lines(text) {
		m := sassLine.FindStringSubmatch(s)
		if m == nil {
			continue
		}
		at, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			continue
		}
		op, _, _ := strings.Cut(m[2], ".")
		l := line{at: at, op: op, target: at}
		if t := sassTarget.FindStringSubmatch(strings.TrimSpace(m[3])); op == "BRA" && t != nil {
			if l.target, err = strconv.ParseUint(t[1], 16, 64); err != nil {
				l.target = at
			}
		}
		lines = append(lines, l)
	}
	var back line
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
	added := 0
	for _, op := range slices.Sorted(maps.Keys(merge(code[0], code[1]))) {
		n := code[0][op] - code[1][op]
		added += n
		out.Calls = out.Calls || (op == "CALL" && n > 0)
		if n != 0 {
			out.Opcodes = append(out.Opcodes, fmt.Sprintf("%s×%d", op, n))
		}
	}
	times := func(s string) int { _, n, _ := strings.Cut(s, "×"); v, _ := strconv.Atoi(n); return v }
	slices.SortStableFunc(out.Opcodes, func(a, b string) int { return cmp.Compare(times(b), times(a)) })
	out.PerOp = float64(added) / float64(s.Steps*i.Ops)
	return out, nil
}

func merge(a, b loopCode) loopCode {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

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
	asm := exec.CommandContext(ctx, t.ptxas, fmt.Sprintf("-arch=sm_%d", capability), fmt.Sprintf("-O%d", level), "-o", out, in)
	if said, err := asm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("ptxas: %w: %s", err, said)
	}
	text, err := exec.CommandContext(ctx, t.cuobjdump, "-sass", out).Output()
	if err != nil {
		return "", fmt.Errorf("cuobjdump: %w", err)
	}
	return string(text), nil
}
