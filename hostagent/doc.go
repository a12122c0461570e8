// Package hostagent is the GPU machine's side of a measurement: it brackets
// work with markers, tells the monitor when to start and stop, reads the
// samples back, and stores them as a task.
//
//	Device (cuda or simulated) ─ markers, benchmarks, PTX
//	PowerSensor (nvml or simulated) ─ sampled beside the truth
//	Monitor client ─ start, stop, read, release over gRPC
//	store ─ the task database
package hostagent
