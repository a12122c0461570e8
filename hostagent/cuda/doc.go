// Package cuda is a real GPU: markers, benchmarks and PTX kernels through the
// CUDA driver, found at run time; no toolkit and no C compiler.
//
//	Device ──asks──▶ worker (one locked OS thread, owns the context)
//	   │                 │
//	   │                 └─ driver: a table of libcuda's functions
//	   └─ relation: the GPU's %globaltimer ↔ the host's wall clock
package cuda
