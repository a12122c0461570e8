package chunk

import "golang.org/x/sys/cpu"

// vector is true where the processor shifts four words by four widths at a time.
var vector = cpu.X86.HasAVX2

// unpackAVX2 is unpack8; it reads 31·width+8 bytes of src.
//
//go:noescape
func unpackAVX2(dst *[BlockScans]int32, src *byte, base int32, width uint)
