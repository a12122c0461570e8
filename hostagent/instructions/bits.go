package instructions

import "math/bits"

func popc(x uint32) uint32 { return uint32(bits.OnesCount32(x)) }

func clz(x uint32) uint32 { return uint32(bits.LeadingZeros32(x)) }

// bfind is the place of the highest one, all ones for zero (PTX ISA).
func bfind(x uint32) uint32 { return uint32(bits.Len32(x)) - 1 }
