package instructions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

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
