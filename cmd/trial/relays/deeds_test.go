package relays

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/wattmark/wattmark/cmd/trial/internal/harness"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// deed is how tasks come into the host's database.
type deed uint8

const (
	importing deed = 1 + iota // from another database
	copying                   // task by task
	fileIn                    // from a file, by the program
)

// What the other database has, and the file.
const (
	tasks, chunks, perChunk = 2, 5, 700
	rows                    = 150_000
)

func (d deed) tasks() int {
	if d == fileIn {
		return 1
	}
	return tasks
}

// scans are those of each task.
func (d deed) scans() uint64 {
	if d == fileIn {
		return rows
	}
	return chunks * perChunk
}

// do lets tasks come in, looks for them with the relay at a moment of it, and then cuts it
// off.
func (p *place) do(e end) error {
	if p.s.deed == fileIn {
		return p.importFile(e)
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	next := ""
	p.strike = func() {
		_ = p.look(time.Second) // it goes on at the next look
		switch e {
		case killed:
			if err := p.disk.Kill(filepath.Join(p.dir, "killed.db")); err != nil {
				p.fail("campaign: %v", err)
			}
			next = filepath.Join(p.dir, "killed.db")
			cancel()
		case cancelled:
			cancel()
		}
	}
	to, err := store.Open(p.ctx, p.path)
	if err != nil {
		return err
	}
	p.left.Store(int32(p.s.At))
	err = p.into(ctx, to)
	p.left.Store(0)
	if err = errors.Join(unless(ctx.Err() != nil, err), to.Close()); err != nil || next == "" {
		return err
	}
	return errors.Join(p.leave(), p.enter(next))
}

func unless(excused bool, err error) error {
	if excused {
		return nil
	}
	return err
}

func (p *place) into(ctx context.Context, to *store.DB) error {
	switch {
	case p.o.Broken == PublishHalf:
		return p.half(ctx, to)
	case p.s.deed == importing:
		_, err := to.Import(ctx, p.other, store.ImportOptions{})
		return err
	}
	for id := range store.TaskID(tasks) {
		if _, err := p.other.CopyTask(ctx, to, id+1, store.CopyOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// half is an import whose tasks have ended, for all who look, before they are whole.
func (p *place) half(ctx context.Context, to *store.DB) error {
	for i := range tasks {
		err := fill(ctx, to, "ada", fmt.Sprint("gemm-", i), uint64(i), func(id store.TaskID) error {
			return to.Finish(ctx, id, store.Outcome{State: store.Incomplete, Reason: "it is being imported"})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// importFile lets the program import a file while the relay looks without rest.
func (p *place) importFile(e end) error {
	path := filepath.Join(p.dir, "trace.csv")
	if err := os.WriteFile(path, trace(), 0o600); err != nil {
		return err
	}
	var said bytes.Buffer
	c := exec.CommandContext(p.ctx, p.o.Program, "import", "csv", path, "--db", p.path)
	c.Stderr, c.Env = &said, append(os.Environ(), "TMPDIR="+p.dir)
	if err := c.Start(); err != nil {
		return err
	}
	if e == killed {
		t := time.AfterFunc(time.Duration(p.rng.IntN(600))*time.Millisecond, func() { _ = c.Process.Kill() })
		defer t.Stop()
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	for {
		_ = p.look(p.o.Patience) // an error now is repeated by the last look
		select {
		case err := <-done:
			if err != nil && e == ends {
				return fmt.Errorf("%w: %s", err, said.String())
			}
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}

var trace = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	b.WriteString("t_s,gpu_power_w\n")
	for i := range rows {
		fmt.Fprintf(&b, "%.5f,%d\n", float64(i)*1e-5, 60+i%97)
	}
	return b.Bytes()
})

// filled is the other database: it is made once.
var filled = sync.OnceValues(func() ([]byte, error) {
	return harness.Database(func(db *store.DB) error {
		for i := range tasks {
			if err := fill(context.Background(), db, "ada", fmt.Sprint("gemm-", i), uint64(i), nil); err != nil {
				return err
			}
		}
		return nil
	})
})

func writeEmpty(path string) error {
	b, err := harness.EmptyDatabase()
	return errors.Join(err, os.WriteFile(path, b, 0o600))
}

func openEmpty(ctx context.Context, path string) (*store.DB, error) {
	if err := writeEmpty(path); err != nil {
		return nil, err
	}
	return store.Open(ctx, path)
}

func openFilled(ctx context.Context, path string) (*store.DB, error) {
	b, err := filled()
	if err = errors.Join(err, os.WriteFile(path, b, 0o600)); err != nil {
		return nil, err
	}
	return store.Open(ctx, path)
}

var launched = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// fill stores a complete task of noise; begun is called before its samples come, if not nil.
func fill(ctx context.Context, db *store.DB, user, name string, seed uint64, begun func(store.TaskID) error) error {
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10},
		Channels: []measure.Channel{
			{Name: "i", Unit: measure.UnitAmpere, Gain: 1e-3, UGain: 1e-3},
			{Name: "v", Unit: measure.UnitVolt, Gain: 1e-3},
		},
		Rails: []measure.Rail{{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}},
	}
	id, err := db.BeginTask(ctx, store.NewTask{
		Name: name, User: user, Launched: launched.Add(time.Duration(seed) * time.Second), Monitor: "lab:7551",
		CaptureID: fmt.Sprint(user, seed), GPU: "H200", GPUUUID: "GPU-1",
	})
	if err == nil && begun != nil {
		err = begun(id)
	}
	if err == nil {
		err = db.PutHeader(ctx, id, store.Header{
			Bench: "desk", Setup: setup, CalibrationID: "c1", Started: launched,
			Instrument: store.Instrument{Kind: "emulated"},
		})
	}
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	e, err := chunk.NewEncoder(setup.Timebase, 2, perChunk)
	for no := 0; no < chunks && err == nil; no++ {
		b := measure.Block{
			FirstScan: uint64(no * perChunk), FirstTick: int64(10 * no * perChunk),
			Counts: make([][]measure.Count, 2),
		}
		for c := range b.Counts {
			for range perChunk {
				b.Counts[c] = append(b.Counts[c], rng.Int32N(1<<14))
			}
		}
		if _, err = e.Append(&b); err == nil {
			err = db.AppendChunks(ctx, id, []*chunk.Chunk{e.Flush(uint64(no))}, nil)
		}
	}
	if err != nil {
		return err
	}
	return db.Finish(ctx, id, store.Outcome{State: store.Complete, Result: &measure.Result{
		Samples: chunks * perChunk, To: 1, Total: measure.Estimate{Energy: 12, U: 1},
		Rails: []measure.RailResult{{Name: "aux_12v", Role: measure.RolePSU}},
	}})
}
