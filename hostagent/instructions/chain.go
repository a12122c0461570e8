package instructions

import (
	"context"
	_ "embed"
	"errors"

	"wattmark/hostagent/cuda"
)

// chainPTX writes the slots of a memory row, on the GPU: from the host it would
// take longer than the measurement.
//
//go:embed chain.ptx
var chainPTX string

const chainEntry = "wm_chain"

// dramBytes is many times what any L2 cache holds: threads that run ahead by a
// whole lap would leave lines in it for those that follow.
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

func (g *GPU) writeChain(ctx context.Context, b *cuda.Buffer, slots, stride uint64) error {
	p, err := g.Device.Load([]byte(chainPTX+"\x00"), chainEntry, 4)
	if err != nil {
		return err
	}
	_, err = p.Run(ctx, [3]uint32{1024, 1, 1}, [3]uint32{256, 1, 1}, b.Address(), slots, stride)
	return errors.Join(err, p.Close())
}
