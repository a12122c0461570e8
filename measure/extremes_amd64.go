package measure

import "golang.org/x/sys/cpu"

// vector is true where the processor takes eight scans at a time.
var vector = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// swingFMA takes runs of n scans, a multiple of eight and not 0, joins how far they are to
// a distance of each run and adds it to total. Counts must be less than 2³¹ from x0 and y0.
//
//go:noescape
func swingFMA(s *swing, x, y *Count, n, runs int, total *float32, d *distance)

// swingPackedFMA is swingFMA of MaxRuns runs of RunScans counts that are packed by up to
// eight bits, x0 and y0 of them alike; it reads eight bytes for eight counts.
//
//go:noescape
func swingPackedFMA(s *swing, x *byte, xw uint, y *byte, yw uint, total *float32, d *distance)

// boundsAVX joins the least and the greatest of n distances to d: a multiple of eight,
// and not 0.
//
//go:noescape
func boundsAVX(total *float32, n int, d *distance)
