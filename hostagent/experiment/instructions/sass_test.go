package instructions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// In the form that cuobjdump -sass prints: a header, an instruction with its
// encoding behind it, the encoding's second half on a line of its own. Written by
// hand; the encodings say nothing.
const sassWith = `
Fatbin elf code:
================
arch = sm_90
code version = [1,7]
host = linux
compile_size = 64bit

	code for sm_90
		Function : wm_instruction
	.headerflags	@"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                    /* 0x00000a00ff017b82 */
                                                                             /* 0x000fe20000000800 */
        /*0010*/                   S2R R0, SR_TID.X ;                        /* 0x0000000000007919 */
        /*0020*/                   CS2R R4, SR_CLOCKLO ;                     /* 0x0000000000047805 */
        /*0030*/              @!P1 BRA 0x60 ;                                /* 0x0000000000047805 */
        /*0040*/                   IADD3 R0, R0, R2, RZ ;                   /* 0x0000000000047805 */
        /*0050*/                   BRA 0x40 ;                                /* 0x0000000000047805 */
        /*0060*/                   IMAD.IADD R0, R0, 0x1, R2 ;               /* 0x0000000000047805 */
        /*0070*/                   PRMT R0, R0, R7, R0 ;                     /* 0x0000000000047805 */
        /*0080*/                   IMAD.IADD R0, R0, 0x1, R3 ;               /* 0x0000000000047805 */
        /*0090*/                   PRMT R0, R0, R7, R0 ;                     /* 0x0000000000047805 */
        /*00a0*/                   ISETP.NE.U32.AND P0, PT, R8, RZ, PT ;     /* 0x0000000000047805 */
        /*00b0*/              @!UP0 UIADD3 UR4, UR4, 0x1, URZ ;              /* 0x0000000000047805 */
        /*00c0*/              @P2  CALL.REL.NOINC 0x150 ;                    /* 0x0000000000047805 */
        /*00d0*/              @P0  BRA 0x60 ;                                /* 0xfffffffc00f40947 */
        /*00e0*/                   EXIT ;                                    /* 0x000000000000794d */
        /*00f0*/                   BRA 0xf0;                                 /* 0xfffffffc00fc7947 */
        /*0100*/                   NOP;                                      /* 0x0000000000007918 */
		..........
`

const sassWithout = `
		Function : wm_instruction
        /*0060*/                   PRMT R0, R0, R7, R0 ;
        /*0070*/                   PRMT R0, R0, R7, R0 ;
        /*0080*/                   NOP ;
        /*0090*/                   ISETP.NE.U32.AND P0, PT, R8, RZ, PT ;
        /*00a0*/                   IADD3 R8, R8, -0x1, RZ ;
        /*00b0*/              @P0  BRA 0x60 ;
        /*00c0*/                   EXIT ;
`

func TestLoopIsFound(t *testing.T) {
	with, err := parseSASS(sassWith)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(loopCode{"IMAD": 2, "PRMT": 2, "ISETP": 1, "UIADD3": 1, "CALL": 1, "BRA": 1}, with); d != "" {
		t.Error(d)
	}
	without, err := parseSASS(sassWithout)
	if err != nil {
		t.Fatal(err)
	}
	if without["NOP"] != 0 || without["PRMT"] != 2 {
		t.Errorf("got %v", without)
	}
	var s SASS
	s.added(with, without, 2)
	if d := cmp.Diff(SASS{PerOp: 1.5, Calls: true, Opcodes: []string{"IMAD×2", "CALL×1", "UIADD3×1", "IADD3×-1"}},
		s); d != "" {
		t.Error(d)
	}
}

func TestNoLoop(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":     {"", "no loop among 0"},
		"straight on": {"        /*0000*/   EXIT ;\n        /*0010*/   BRA 0x10;\n", "no loop among 2"},
		"two kernels": {sassWith + sassWithout, "2 kernels"},
		"too far":     {"  /*0010*/  BRA 0x10000000000000000 ;", "out of range"},
	} {
		if _, err := parseSASS(tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func FuzzSASS(f *testing.F) {
	f.Add(sassWith)
	f.Add(sassWithout)
	f.Add("  /*ffffffffffffffff*/ BRA 0x0;\n /*0*/ NOP;")
	f.Fuzz(func(t *testing.T, text string) {
		code, err := parseSASS(text)
		if err != nil {
			return
		}
		sum := 0
		for op, n := range code {
			if n < 1 || op == "NOP" || strings.Contains(op, ".") {
				t.Errorf("%q × %d", op, n)
			}
			sum += n
		}
		// Never more than there are lines, and the branch itself is one.
		if sum > strings.Count(text, ";") || code["BRA"] < 1 {
			t.Errorf("%d instructions, %d branches", sum, code["BRA"])
		}
	})
}

// The toolkit is run as it is: stand-ins print what NVIDIA's tools would.
func TestInspect(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("CUDA_HOME", "")
	tool := func(name, script string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("with", sassWith)
	write("without", sassWithout)
	// An assembler that keeps the text, and a disassembler that looks for the block.
	tool("ptxas", `[ "$1" = -arch=sm_90 ] && [ "$2" = -O3 ] && [ "$3" = -o ] && cp "$5" "$4"`)
	tool("cuobjdump", `if grep -q add.s32 "$2"; then cat `+dir+`/with; else cat `+dir+`/without; fi`)
	tools, err := FindToolkit()
	if err != nil {
		t.Fatal(err)
	}
	add, err := Find("add.s32")
	if err != nil {
		t.Fatal(err)
	}
	s, err := tools.Inspect(t.Context(), add[0], Setting{Level: 3, Steps: 5}, 90)
	if err != nil {
		t.Fatal(err)
	}
	if s.Instruction != "add.s32" || s.Level != 3 || s.PerOp != 0.6 || !s.Calls {
		t.Errorf("got %+v", s)
	}
	tool("ptxas", "echo 'ptxas fatal: no such target'; exit 255")
	if _, err := tools.Inspect(t.Context(), add[0], Setting{Level: 3, Steps: 5}, 90); err == nil ||
		!strings.Contains(err.Error(), "no such target") {
		t.Errorf("got %v, want the assembler's words", err)
	}
}
