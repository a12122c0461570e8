// Package testdb makes a small task database whose every sample follows from a
// formula, and serves it on a loopback socket: for the tests of clients.
package testdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
)

// The tasks' samples: 10 000 scans a second for a second, of which scans 4000
// to 4099 were lost. The window is [0.1 s, 0.9 s].
const (
	Scans    = 10000
	GapFrom  = 4000
	GapScans = 100
	From, To = 0.1, 0.9
)

// Setup is a clamp on a 12 V cable and a sensor that reads watts.
func Setup() measure.Setup {
	return measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100},
		Channels: []measure.Channel{
			{Name: "aux.i", Unit: measure.UnitAmpere, Gain: 0.01, UGain: 0.01},
			{Name: "aux.v", Unit: measure.UnitVolt, Gain: 0.005},
			{Name: "slot.p", Unit: measure.UnitWatt, Gain: 0.5, Offset: 1},
		},
		Rails: []measure.Rail{
			{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1},
			{Name: "slot", Role: measure.RolePCIe12V, Wiring: measure.WiringPower, X: 2, Y: -1},
		},
		Missing: []string{"pcie_3v3"},
	}
}

// Counts are the readings of the three channels at a scan: 10.00 to 10.49 A,
// 12 V, and 1 to 10.5 W.
func Counts(scan uint64) [3]measure.Count {
	return [3]measure.Count{measure.Count(1000 + scan%50), 2400, measure.Count(scan % 20)}
}

// Launched is when the first task was launched; the others follow by the hour.
var Launched = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// Fill adds three tasks, 1 to 3: gemm of ada, axpy of ada, gemm of bob. Of task 3 there are
// readings of the GPU's sensor, each tenth of a second.
func Fill(ctx context.Context, db *store.DB) error {
	for i, t := range []struct{ name, user string }{{"gemm", "ada"}, {"axpy", "ada"}, {"gemm", "bob"}} {
		id, err := db.BeginTask(ctx, store.NewTask{
			Name: t.name, User: t.user, Launched: Launched.Add(time.Duration(i) * time.Hour), GPU: "H200",
		})
		if err != nil {
			return err
		}
		if err := fill(ctx, db, id); err != nil {
			return fmt.Errorf("task %d: %w", id, err)
		}
	}
	// Ten watts more each tenth of a second from Launched on, and a temperature.
	readings := []store.Reading{{Method: "gpu.temperature_c", At: Launched.Add(500 * time.Millisecond), Value: 40}}
	for i := range 10 {
		readings = append(readings, store.Reading{
			Method: "nvml.instant", At: Launched.Add(time.Duration(i) * 100 * time.Millisecond),
			Value: float64(100 + 10*i),
		})
	}
	return db.PutReadings(ctx, 3, readings)
}

// fill stores header, chunks, gap and result of one task.
func fill(ctx context.Context, db *store.DB, id store.TaskID) error {
	setup := Setup()
	err := db.PutHeader(ctx, id, store.Header{
		Bench: "lab", Setup: setup, CalibrationID: "c1", Started: Launched,
		Instrument: store.Instrument{Kind: "powersensor3", Model: "PS3"},
	})
	if err != nil {
		return err
	}
	integrator, err := measure.NewIntegrator(&setup, From, To)
	if err != nil {
		return err
	}
	var chunks []*chunk.Chunk
	for _, run := range [][2]uint64{{0, GapFrom}, {GapFrom + GapScans, Scans}} {
		c, err := encode(setup.Timebase, uint64(len(chunks)), run[0], run[1], integrator)
		if err != nil {
			return err
		}
		chunks = append(chunks, c...)
	}
	gap := measure.Event{
		Kind: measure.EventGap, FirstScan: GapFrom, Scans: GapScans, Exact: true, Channel: -1,
		Detail: "cable pulled",
	}
	if err := db.AppendChunks(ctx, id, chunks, []measure.Event{gap}); err != nil {
		return err
	}
	result, err := integrator.Result(measure.Edges{})
	if err != nil {
		return err
	}
	return db.Finish(ctx, id, store.Outcome{
		State: store.Complete, Result: &result, NVML: new(measure.Joule(100)),
		Markers: []marker.Found{
			{Kind: marker.Start, T: 0.05, U: 1e-6, Begin: 0.04, End: From, PSLR: 20},
			{Kind: marker.Stop, T: 0.91, U: 1e-6, Begin: To, End: 0.96, PSLR: 21},
		},
	})
}

// encode makes chunks of scans [from, to), numbered from no on, and integrates them.
func encode(tb measure.Timebase, no, from, to uint64, g *measure.Integrator) (out []*chunk.Chunk, err error) {
	const size = 1024
	for at := from; at < to; at += size {
		b := measure.Block{FirstScan: at, FirstTick: int64(100 * at), Counts: make([][]measure.Count, 3)}
		for scan := at; scan < min(to, at+size); scan++ {
			for c, v := range Counts(scan) {
				b.Counts[c] = append(b.Counts[c], v)
			}
		}
		e, err := chunk.NewEncoder(tb, 3, size)
		if err != nil {
			return nil, err
		}
		if _, err := e.Append(&b); err != nil {
			return nil, err
		}
		out = append(out, e.Flush(no+uint64(len(out))).Clone())
		if err := g.Add(&b); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// template is the filled database as a file, made once: writing SQLite's look-up
// tables takes seconds under the race detector.
var template = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "wattmark-testdb")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "power.db")
	db, err := store.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(Fill(context.Background(), db), db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// Open makes the database dir/power.db with the three tasks.
func Open(ctx context.Context, dir string) (*store.DB, error) {
	content, err := template()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "power.db")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return nil, err
	}
	return store.Open(ctx, path)
}

// Serve makes the database dir/power.db and serves it on a free loopback port
// until stop is called.
func Serve(ctx context.Context, dir string) (address string, stop func(), err error) {
	db, err := Open(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	api.New(ctx, db, api.Options{}).Register(server)
	go func() { _ = server.Serve(l) }()
	return l.Addr().String(), func() {
		server.Stop()
		_ = db.Close()
	}, nil
}

// Record stores launches of task 1 as CUPTI delivers them, of three names on two streams of one device: gemm(int) and
// flash<float> at once from 0.2 to 0.4 s, "axpy" n times of 1 ms from 0.5 s on, every 2 ms, on the first stream; and
// the energy by name: 40, 20 and 10 J of those three, 5 J between them, and the rest before and after.
func Record(ctx context.Context, db *store.DB, n int) error {
	at := func(ms int) int64 { return Launched.Add(time.Duration(ms) * time.Millisecond).UnixNano() }
	l := []store.Launch{{Start: at(200), End: at(400), Stream: 7}, {Start: at(210), End: at(390), Name: 1, Stream: 20}}
	for i := range n {
		l = append(l, store.Launch{Start: at(500 + 2*i), End: at(501 + 2*i), Name: 2, Stream: 7})
	}
	k := uint64(len(l))
	line := func(c store.EnergyClass, name string, launches uint64, busy measure.Seconds, e, u measure.Joule) store.NameEnergy {
		return store.NameEnergy{
			Class: c, Name: name, Launches: launches, Busy: busy, Share: busy, Energy: measure.Estimate{Energy: e, U: u},
		}
	}
	return errors.Join(
		db.PutLaunches(ctx, 1, 0, l),
		db.PutLaunchTables(ctx, 1, store.LaunchTables{
			Processes: []store.LaunchProcess{{PID: 4711, Kernels: k, Reported: k, Whole: true}},
			Names:     []string{"_Z4gemmi", "_Z5flashIfEvT_", "axpy"},
			Devices:   []store.LaunchDevice{{Measured: true}},
		}),
		db.PutRanges(ctx, 1, store.Ranges{
			Ranges: []store.RangeEnergy{
				{Path: "step", Ranges: 2, Launches: k, Busy: 0.48, Estimate: measure.Estimate{Energy: 70, U: 2.1}},
				{Path: "step/forward", Ranges: 1, Launches: 2, Busy: 0.38, Estimate: measure.Estimate{Energy: 60, U: 1.8}},
				{Path: "step/<b>i", Ranges: 1, Launches: uint64(n), Busy: 0.1, Estimate: measure.Estimate{Energy: 10, U: 0.3}},
			},
			Spans: []store.RangeSpan{
				{Thread: 99, From: 0.19, To: 0.41, Launches: 2, Estimate: measure.Estimate{Energy: 60, U: 1.8}},
				{Range: 1, Thread: 99, From: 0.2, To: 0.4, Launches: 2, Estimate: measure.Estimate{Energy: 60, U: 1.8}},
				{Thread: 99, From: 0.49, To: 0.72, Launches: uint64(n), Estimate: measure.Estimate{Energy: 10, U: 0.3}},
				{Range: 2, Thread: 99, From: 0.5, To: 0.7, Launches: uint64(n), Estimate: measure.Estimate{Energy: 10, U: 0.3}},
			},
		}),
		db.PutNameEnergies(ctx, 1, 1, []store.NameEnergy{
			line(store.KernelEnergy, "_Z4gemmi", 1, 0.2, 40, 1.2), line(store.KernelEnergy, "_Z5flashIfEvT_", 1, 0.18,
				20, 0.6),
			line(store.KernelEnergy, "axpy", uint64(n), measure.Seconds(n)*1e-3, 10, 0.3),
			line(store.ActiveIdleEnergy, "", 0, 0.1, 5, 0.2), line(store.IdleEnergy, "", 0, 0.3, 25, 0.8),
		}))
}
