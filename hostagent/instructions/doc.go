// Package instructions measures what single GPU instructions cost, after Arafa
// et al., "Verified instruction-level energy consumption measurement for NVIDIA
// GPUs" (2020): a kernel whose loop has a block of dependent instructions, and
// the same kernel without the block; the difference of their energies, over the
// number of instructions, is the instruction's energy.
//
// The kernels are PTX text that this package writes and the driver compiles, at
// the optimisation level that is asked for. How many instructions a block has is
// taken from the PTX, and can be checked in the machine code with NVIDIA's tools.
package instructions
