package made

import (
	"context"
	"iter"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/store"
)

// Full is a source with all that a timeline shows.
type Full struct {
	Source
	// Launched are kernels of two streams, of which some overlap.
	Launched []store.Launch
}

// NewFull makes a recorded task of some scans, its window and two markers.
func NewFull(scans int) (*Full, *store.Task) {
	f := &Full{Source: Source{Setup: Setup(false), Scans: scans}}
	t := f.Task()
	t.Markers = []marker.Found{{Kind: marker.Start, T: 0.01, U: 1e-6}, {Kind: marker.Stop, T: 0.09, U: 1e-6}}
	t.Result = &measure.Result{From: 0.02, To: 0.08, Total: measure.Estimate{Energy: 12, U: 0.1}}
	base := Started.Add(30 * time.Millisecond).UnixNano()
	for i := range 10 {
		at := base + int64(i)*1000
		f.Launched = append(f.Launched, store.Launch{Start: at, End: at + 900, Name: i % 2, Stream: 7, Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{32, 1, 1}})
	}
	f.Launched = append(f.Launched, store.Launch{Start: base + 500, End: base + 5000, Name: 1, Stream: 7})
	slices.SortFunc(f.Launched, func(a, b store.Launch) int { return int(a.Start - b.Start) })
	return f, t
}

// Kernels are one.
func (f *Full) Kernels(context.Context, store.TaskID) ([]store.Kernel, error) {
	at := Started.Add(20 * time.Millisecond)
	return []store.Kernel{{Name: "gemm", Start: at, End: at.Add(60 * time.Millisecond)}}, nil
}

// Readings are three by the GPU's own sensor.
func (f *Full) Readings(context.Context, store.TaskID) (out []store.Reading, err error) {
	for i := range 3 {
		out = append(out, store.Reading{Method: "nvml.instant", At: Started.Add(time.Duration(i) * 20 * time.Millisecond), Value: 100 + float64(i)})
	}
	return out, nil
}

// LaunchTables name two kernels of a process on a GPU.
func (f *Full) LaunchTables(context.Context, store.TaskID) (store.LaunchTables, error) {
	return store.LaunchTables{
		Processes: []store.LaunchProcess{{PID: 99}}, Names: []string{"first", "second"}, Devices: []store.LaunchDevice{{Measured: true}},
	}, nil
}

// Launches are those of Launched.
func (f *Full) Launches(context.Context, store.TaskID) iter.Seq2[store.Launch, error] {
	return func(yield func(store.Launch, error) bool) {
		for _, l := range f.Launched {
			if !yield(l, nil) {
				return
			}
		}
	}
}
