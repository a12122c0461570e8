// Package faults plays schedules of faults against a whole measuring place in
// one process: the real monitor with its spool on disk, gRPC over real sockets,
// the real host agent, the real database in a file. Only the meter, the GPU and
// the faults are made here.
//
// A schedule is drawn from a seed: one to three faults, each at a step of the
// protocol. The meter's samples say which they are, so that whatever the faults
// did, each stored sample can be held against what was sampled. When all faults
// have passed, the invariants are checked: see check.go.
package faults
