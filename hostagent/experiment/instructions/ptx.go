package instructions

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
)

// Kernel is the layout of a program.
type Kernel struct {
	// Steps is how many steps the loop's body has, a multiple of 5; 5 in Arafa et al.
	Steps int
	// Block is false for the kernel without the block: loop and glue alone.
	Block bool
	// Capability of the GPU, as 90 for 9.0.
	Capability int
}

// Entry is the name of the programs' kernel. Its parameters are
//
//	u64 out    32 bytes a thread: u64 working register at the end, u64 cycles
//	u64 seeds  eight u64: x, five operands, s, and the loop's own selector; x is an
//	           address for memory rows
//	u64 count  how often the loop runs
//
// Thread i works on slot i. The counter has 64 bits: a full second of the
// fastest loop does not wrap it.
const Entry = "wm_instruction"

const (
	operands  = 5
	mostSteps = 4000
)

// OutBytes is the size of each thread's output.
const OutBytes = 32

// PTX writes the program, NUL-terminated as the driver wants it.
func (i Instruction) PTX(k Kernel) ([]byte, error) {
	if k.Steps < operands || k.Steps%operands != 0 || k.Steps > mostSteps {
		return nil, fmt.Errorf("instructions: %d steps: want a multiple of %d, up to %d", k.Steps, operands, mostSteps)
	}
	if k.Capability < i.Least || k.Capability < 50 {
		return nil, fmt.Errorf("instructions: %s needs compute capability %.1f, this GPU has %.1f", i.Name,
			float64(max(i.Least, 50))/10, float64(k.Capability)/10)
	}
	var b strings.Builder
	version := "6.3"
	if i.Least >= 80 || k.Capability >= 89 {
		version = "8.4"
	}
	fmt.Fprintf(&b, ".version %s\n.target sm_%d\n.address_size 64\n\n", version, k.Capability)
	fmt.Fprintf(&b, ".visible .entry %s(.param .u64 p_out, .param .u64 p_seeds, .param .u64 p_count)\n{\n", Entry)
	i.declare(&b)
	i.begin(&b)
	b.WriteString("\tmov.u64 %c0, %clock64;\n")
	b.WriteString("\t.pragma \"nounroll\";\nLOOP:\n")
	for n := range k.Steps {
		if k.Block {
			fmt.Fprintf(&b, "\t%s\n", i.fill(i.Step, n))
		}
		if i.Glue != "" {
			fmt.Fprintf(&b, "\t%s\n", i.fill(i.Glue, n))
		}
	}
	// A loop that did nothing at all would be dropped.
	b.WriteString("\tprmt.b32 %keep, %keep, %keep, %sel;\n")
	b.WriteString("\tsub.u64 %count, %count, 1;\n\tsetp.ne.u64 %p0, %count, 0;\n\t@%p0 bra LOOP;\n")
	i.end(&b)
	b.WriteString("}\n\x00")
	return []byte(b.String()), nil
}

// fill writes a step's text with its registers.
func (i Instruction) fill(text string, n int) string {
	return strings.NewReplacer(
		"{x}", "%x", "{y}", "%y", "{h}", "%h", "{s}", "%s", "{r}", fmt.Sprintf("%%r%d", n%operands),
	).Replace(text)
}

// declare writes the registers. Untyped ones serve all types of their width.
func (i Instruction) declare(b *strings.Builder) {
	fmt.Fprintf(b, "\t.reg .b%d %%x, %%y, %%s, %%r0, %%r1, %%r2, %%r3, %%r4;\n", i.Bits)
	b.WriteString("\t.reg .b16 %h;\n\t.reg .b64 %out, %seeds, %count, %c0, %c1, %slot, %wide;\n")
	b.WriteString("\t.reg .b32 %me, %group, %many, %thread, %keep, %sel;\n\t.reg .pred %p0;\n")
	if i.Group == Tensor {
		b.WriteString("\t.reg .b32 %ma0, %ma1, %ma2, %ma3, %mb0, %mb1, %d1, %d2, %d3;\n")
	}
	if i.Place == InShared {
		b.WriteString("\t.shared .align 8 .b32 own[1024];\n\t.reg .b32 %here;\n")
	}
}

// begin reads operands, and gives each thread's x a value of its own.
func (i Instruction) begin(b *strings.Builder) {
	b.WriteString(`	ld.param.u64 %out, [p_out];
	ld.param.u64 %seeds, [p_seeds];
	ld.param.u64 %count, [p_count];
	cvta.to.global.u64 %out, %out;
	cvta.to.global.u64 %seeds, %seeds;
	mov.u32 %me, %tid.x;
	mov.u32 %group, %ctaid.x;
	mov.u32 %many, %ntid.x;
	mad.lo.u32 %thread, %group, %many, %me;
	mul.wide.u32 %slot, %thread, 32;
	add.u64 %out, %out, %slot;
	ld.global.b32 %sel, [%seeds+56];
	mov.b32 %keep, %me;
`)
	for k, r := range []string{"x", "r0", "r1", "r2", "r3", "r4", "s"} {
		fmt.Fprintf(b, "\tld.global.b%d %%%s, [%%seeds+%d];\n", i.Bits, r, 8*k)
	}
	switch {
	case i.Place == InShared:
		b.WriteString("\tmov.u32 %here, own;\n\tshl.b32 %x, %me, 2;\n\tadd.u32 %x, %x, %here;\n\tst.shared.u32 [%x], " +
			"%x;\n\tbar.sync 0;\n")
	case i.Place != NoMemory:
		b.WriteString("\tcvta.to.global.u64 %x, %x;\n\tadd.u64 %x, %x, %slot;\n")
	case i.Group == Tensor:
		b.WriteString("\tmov.b32 %d1, 0;\n\tmov.b32 %d2, 0;\n\tmov.b32 %d3, 0;\n")
	case i.Bits == 32 && i.Group != Half && i.Group != Bfloat && i.Group != Conversion:
		// The lowest bits differ: sixteen values are enough to let bits toggle.
		b.WriteString("\tand.b32 %thread, %thread, 15;\n\txor.b32 %x, %x, %thread;\n")
	}
	b.WriteString("\tmov.b" + fmt.Sprint(i.Bits) + " %y, %x;\n" + i.Before)
}

// end leaves the result and the cycles.
func (i Instruction) end(b *strings.Builder) {
	b.WriteString("\tmov.u64 %c1, %clock64;\n\tsub.u64 %c1, %c1, %c0;\n")
	switch {
	case i.Group == Tensor:
		b.WriteString("\txor.b32 %x, %x, %d1;\n\txor.b32 %x, %x, %d2;\n\txor.b32 %x, %x, %d3;\n\tcvt.u64.u32 %wide, " +
			"%x;\n")
	case i.Bits == 16:
		b.WriteString("\tcvt.u64.u16 %wide, %x;\n")
	case i.Bits == 32:
		b.WriteString("\tcvt.u64.u32 %wide, %x;\n")
	default:
		b.WriteString("\tmov.b64 %wide, %x;\n")
	}
	b.WriteString("\tst.global.u64 [%out], %wide;\n\tst.global.u64 [%out+8], %c1;\n\tst.global.u32 [%out+16], " +
		"%keep;\n\tret;\n")
}

// chainPTX writes the slots of a memory row, on the GPU: from the host it would
// take longer than the measurement.
//
//go:embed chain.ptx
var chainPTX string

const chainEntry = "wm_chain"

// dramBytes is many times the size of any L2 cache: threads that run ahead by a whole lap
// would leave lines in it for those that follow.
const (
	dramBytes      = 16 << 30
	leastDRAMBytes = 1 << 29
)

// chains makes the slots of a memory row: each holds the address of the next.
func (g *GPU) chains(ctx context.Context, p Place, threads uint64) (_ *cuda.Buffer, err error) {
	if b := g.memories[memoryKey{p, threads}]; b != nil {
		return b, nil
	}
	slots, stride := threads, uint64(0)
	size := slots * SlotBytes
	if p == InDRAM {
		size = dramBytes
	}
	b, err := g.Allocate(size)
	for err != nil && p == InDRAM && size > leastDRAMBytes { // a smaller card
		size /= 2
		b, err = g.Allocate(size)
	}
	if err != nil {
		return nil, err
	}
	if p == InDRAM {
		// The whole front of threads moves on by more than its own length, by an odd
		// number of slots: it comes back only when it has been everywhere.
		slots, stride = size/SlotBytes, max(threads, 100_000)|1
	}
	if err := g.writeChain(ctx, b, slots, stride); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	g.memories[memoryKey{p, threads}] = b
	return b, nil
}

// writeChain links the slots on the GPU: slot i to slot i + stride, modulo slots.
func (g *GPU) writeChain(ctx context.Context, b *cuda.Buffer, slots, stride uint64) error {
	p, err := g.Device.Load([]byte(chainPTX+"\x00"), chainEntry, 4)
	if err != nil {
		return err
	}
	_, err = p.Run(ctx, [3]uint32{1024, 1, 1}, [3]uint32{256, 1, 1}, b.Address(), slots, stride)
	return errors.Join(err, p.Close())
}
