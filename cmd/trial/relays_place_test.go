package trial

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
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/cluster"
	"github.com/wattmark/wattmark/store/relay"
)

// relayPlace is a host with a relay, a node, and a store.
type relayPlace struct {
	o   RelayOptions
	s   RelaySchedule
	dir string
	rng *rand.Rand

	ctx   context.Context
	stop  context.CancelFunc
	runs  sync.WaitGroup // node and store
	errs  chan error
	bus   *relay.Bus
	url   string
	other *store.DB // of which tasks come
	store *store.DB

	mu   sync.Mutex // one look of the relay at a time
	path string     // of the host's database, as it is now
	disk *Disk
	host *store.DB // the relay's
	ship *relay.Shipper

	left       atomic.Int32 // syncs until the fault strikes
	strike     func()
	violations []string
}

func newRelayPlace(ctx context.Context, o RelayOptions, s RelaySchedule, dir string) (p *relayPlace, err error) {
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	p = &relayPlace{o: o, s: s, dir: dir, rng: rand.New(rand.NewPCG(s.Seed, 2)), errs: make(chan error, 2)}
	p.ctx, p.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	n, err := cluster.Start(cluster.Config{
		Name: "n1", Dir: filepath.Join(dir, "node"), Listen: "127.0.0.1:0", Sync: time.Minute,
		Streams: relay.StreamOptions{Replicas: 1, Partitions: 1, Duplicates: time.Minute},
	})
	if err != nil {
		return p, err
	}
	p.runs.Go(func() { p.errs <- n.Run(p.ctx) })
	if err = n.Ready(ctx); err != nil {
		return p, err
	}
	p.url = n.URL()
	if p.bus, err = relay.Dial(ctx, relay.Options{Servers: n.URL(), Name: "campaign"}); err != nil {
		return p, err
	}
	if p.other, err = openFilled(ctx, filepath.Join(dir, "other.db")); err != nil {
		return p, err
	}
	if p.store, err = openEmpty(ctx, filepath.Join(dir, "store.db")); err != nil {
		return p, err
	}
	if err = writeEmpty(filepath.Join(dir, "host.db")); err != nil {
		return p, err
	}
	c := &relay.Consumer{Bus: p.bus, DB: p.store, Name: "store", Retry: 10 * time.Millisecond}
	if o.Broken == KeepTrying {
		c.Retry = time.Hour
	}
	p.runs.Go(func() { p.errs <- c.Run(p.ctx) })
	return p, p.enter(filepath.Join(dir, "host.db"))
}

// enter starts the relay on the host's database where it lies now.
func (p *relayPlace) enter(path string) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path = path; p.s.deed != fileIn { // other processes' files are not watched
		if p.disk, err = WatchDisk(path, DiskOptions{Sync: p.sync}); err != nil {
			return err
		}
	}
	if p.host, err = store.Open(p.ctx, path); err != nil {
		return err
	}
	p.ship = &relay.Shipper{Publisher: &relay.Publisher{DB: p.host, Bus: p.bus, Program: "campaign"}}
	return nil
}

// leave ends the relay.
func (p *relayPlace) leave() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host != nil {
		err = p.host.Close()
	}
	if p.disk != nil {
		p.disk.Forget()
	}
	p.host, p.disk = nil, nil
	return err
}

func (p *relayPlace) close() error {
	err := p.leave()
	p.stop()
	p.runs.Wait()
	for range len(p.errs) {
		err = errors.Join(err, <-p.errs)
	}
	if p.bus != nil {
		p.bus.Close()
	}
	for _, d := range []*store.DB{p.other, p.store} {
		if d != nil {
			err = errors.Join(err, d.Close())
		}
	}
	return err
}

// sync comes before each sync of the host's database.
func (p *relayPlace) sync() DiskFault {
	if p.left.Add(-1) == 0 {
		p.strike()
	}
	return NoFault
}

// look lets the relay publish what it finds, as it does every two seconds. What it cannot
// write while another writes, it writes the next time.
func (p *relayPlace) look(within time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ship == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	return p.ship.All(ctx)
}

func (p *relayPlace) fail(format string, a ...any) {
	p.violations = append(p.violations, fmt.Sprintf(format, a...))
}

// play lives through the schedule, and returns the outcome of the tasks that came in.
func (p *relayPlace) play() (outcome string, err error) {
	if p.s.poison != 0 {
		return p.poisoned()
	}
	if err := p.do(p.s.end); err != nil {
		return "", err
	}
	if p.s.Again {
		if err := p.do(ends); err != nil {
			p.fail("it cannot be done again: %v", err)
		}
	}
	want, err := p.host.Tasks(p.ctx, store.Query{})
	if err != nil {
		return "", err
	}
	if (p.s.Again || p.s.end == ends) && len(want) < p.s.deed.tasks() {
		p.fail("%d of %d tasks have come in", len(want), p.s.deed.tasks())
	}
	if err := p.until("the relay to have nothing left", func() error {
		err := p.look(p.o.Patience)
		left, lerr := p.host.Untagged(p.ctx, relay.TagReplicated, 1)
		if err = errors.Join(err, lerr); err == nil && len(left) > 0 {
			err = fmt.Errorf("task %d is not published", left[0])
		}
		return err
	}); err != nil {
		p.fail("%v", err)
	}
	return p.check(want)
}

// check compares the store with the host: each task there is whole, and all that the host has
// is there, once.
func (p *relayPlace) check(want []store.Row) (outcome string, err error) {
	for i := range want {
		t, err := p.host.Task(p.ctx, want[i].ID)
		if err != nil {
			return "", err
		}
		here := Examine(p.ctx, p.host, &t, nil, p.fail)
		if err := p.until("task "+t.Name, func() error { return p.arrived(&t, here) }); err != nil {
			p.fail("%v", err)
		}
	}
	list, err := p.store.Tasks(p.ctx, store.Query{})
	for i := range list {
		t, terr := p.store.Task(p.ctx, list[i].ID)
		if terr != nil {
			return "", terr
		}
		got := Examine(p.ctx, p.store, &t, nil, p.fail)
		if t.State != store.Complete || got.Scans != p.s.deed.scans() {
			p.fail("the store has task %s of %s in state %d with %d of %d scans, for good: %s", t.Name, t.User, t.State,
				got.Scans, p.s.deed.scans(), t.Reason)
		}
	}
	outcome = relayOutcomes[0]
	if len(list) == 0 {
		outcome = relayOutcomes[1]
	}
	return outcome, err
}

// arrived fails until the store has a task exactly once, with the same samples.
func (p *relayPlace) arrived(t *store.Task, here Samples) error {
	list, err := p.store.Tasks(p.ctx, store.Query{})
	if err != nil {
		return err
	}
	n := 0
	for i := range list {
		x, err := p.store.Task(p.ctx, list[i].ID)
		if err != nil {
			return err
		}
		if relay.IdentityOf(&x) != relay.IdentityOf(t) {
			continue
		}
		if n++; Examine(p.ctx, p.store, &x, nil, func(string, ...any) {}).CRC != here.CRC {
			return fmt.Errorf("it has other samples at the store")
		}
	}
	if n != 1 {
		return fmt.Errorf("the store has it %d times", n)
	}
	return nil
}

// until waits until f is content.
func (p *relayPlace) until(event string, f func() error) error {
	return Await(p.ctx, event, p.o.Patience, f)
}

// deed is how tasks come into the host's database.
type deed uint8

const (
	importing deed = 1 + iota // from another database
	copying                   // task by task
	fileIn                    // from a file, by the program
)

// What the other database has, and the file.
const (
	relayedTasks, relayedChunks, perChunk = 2, 5, 700
	rows                                  = 150_000
)

func (d deed) tasks() int {
	if d == fileIn {
		return 1
	}
	return relayedTasks
}

// scans are those of each task.
func (d deed) scans() uint64 {
	if d == fileIn {
		return rows
	}
	return relayedChunks * perChunk
}

// do lets tasks come in, looks for them with the relay at a moment of it, and then cuts it
// off.
func (p *relayPlace) do(e end) error {
	if p.s.deed == fileIn {
		return p.importFile(e)
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	next := ""
	within := time.Second // of a look that waits for the sync's writer in the end; it goes on at the next look
	if p.o.Broken == PublishHalf {
		within = p.o.Patience // it must come as far as to publish, also on a busy machine
	}
	p.strike = func() {
		_ = p.look(within)
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

func (p *relayPlace) into(ctx context.Context, to *store.DB) error {
	switch {
	case p.o.Broken == PublishHalf:
		return p.half(ctx, to)
	case p.s.deed == importing:
		_, err := to.Import(ctx, p.other, store.ImportOptions{})
		return err
	}
	for id := range store.TaskID(relayedTasks) {
		if _, err := p.other.CopyTask(ctx, to, id+1, store.CopyOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// half is an import whose tasks have ended, for all who look, before they are whole.
func (p *relayPlace) half(ctx context.Context, to *store.DB) error {
	for i := range relayedTasks {
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
func (p *relayPlace) importFile(e end) error {
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
	return Database(func(db *store.DB) error {
		for i := range relayedTasks {
			if err := fill(context.Background(), db, "ada", fmt.Sprint("gemm-", i), uint64(i), nil); err != nil {
				return err
			}
		}
		return nil
	})
})

func writeEmpty(path string) error {
	b, err := EmptyDatabase()
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
	for no := 0; no < relayedChunks && err == nil; no++ {
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
		Samples: relayedChunks * perChunk, To: 1, Total: measure.Estimate{Energy: 12, U: 1},
		Rails: []measure.RailResult{{Name: "aux_12v", Role: measure.RolePSU}},
	}})
}
