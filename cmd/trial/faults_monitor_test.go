package trial

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/calibration"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/clocktest"
	"github.com/wattmark/wattmark/monitor/spool"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/net/netutil"
)

// monitorSide is the monitor machine: the process that lives there now, and
// those that were killed and are still being cleared away.
type monitorSide struct {
	w     *world
	disk  *disk
	clock *clocktest.Clock

	starts sync.Mutex // one start at a time

	mu    sync.Mutex
	dir   string // of the spool, as the disk is now
	dirs  int
	now   *monitor.Monitor
	stop  context.CancelFunc
	done  chan struct{} // closed when the process has ended
	ghost sync.WaitGroup
	down  bool // for good: the world ends
	// leaving is closed when a process that was asked to stop has ended; nil without.
	leaving chan struct{}
}

// start runs a monitor on the spool as it is. One that is killed while it
// starts never serves.
func (m *monitorSide) start() error {
	m.w.at(StepMonitorStarts)
	m.starts.Lock()
	defer m.starts.Unlock()
	m.mu.Lock()
	leaving := m.leaving
	m.mu.Unlock()
	if leaving != nil {
		<-leaving
	}
	m.mu.Lock()
	if m.stop != nil || m.down {
		m.mu.Unlock()
		return nil
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(m.w.ctx))
	done := make(chan struct{})
	m.stop, m.done = stop, done
	dir := m.dir
	m.mu.Unlock()
	l, mon, err := m.make(dir)
	if err != nil {
		close(done)
		m.mu.Lock()
		defer m.mu.Unlock()
		if ctx.Err() == nil {
			m.stop = nil
		}
		return err
	}
	m.mu.Lock()
	m.now = mon
	m.mu.Unlock()
	m.ghost.Go(func() { m.expire(ctx, mon) })
	m.ghost.Go(func() {
		defer close(done)
		if err := mon.Run(ctx); err != nil {
			m.w.fail("the monitor failed: %v", err)
		}
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil {
		m.w.line.setAddress(l.Addr().String())
	}
	return nil
}

// keep is the time for which an unfetched capture stays: longer than any world lives.
const keep = time.Hour

// expire drops unfetched captures, as the monitor's program does: none, at any time
// of the wall clock.
func (m *monitorSide) expire(ctx context.Context, mon *monitor.Monitor) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		if gone, _ := mon.Expire(keep); len(gone) > 0 {
			m.w.fail("captures %v were dropped as too old within the hour, the clock is off by %v", gone, m.clock.Offset())
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// expireAll sets the wall clock, which drops nothing, and lets the time pass for which
// captures stay, which drops all.
func (m *monitorSide) expireAll(held int) {
	m.mu.Lock()
	mon := m.now
	m.mu.Unlock()
	for _, by := range []time.Duration{-30 * year, 60 * year, -30 * year} {
		m.clock.Step(by)
		if gone, _ := mon.Expire(keep); len(gone) > 0 {
			m.w.fail("captures %v were dropped as too old when the clock was set by %v", gone, by)
		}
	}
	if gone, _ := mon.Expire(0); len(gone) != held {
		m.w.fail("%d captures were dropped for their age, %d were held", len(gone), held)
	}
}

const year = 365 * 24 * time.Hour

func (m *monitorSide) make(dir string) (net.Listener, *monitor.Monitor, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	if m.w.broken == ClearSpool {
		if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
	}
	mon, err := monitor.New(m.config(dir, l))
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, mon, nil
}

func (m *monitorSide) config(dir string, l net.Listener) monitor.Config {
	guard := limits.New(limits.Default())
	listener := guard.Listen(l)
	if m.w.broken == CrowdedOut {
		listener = netutil.LimitListener(l, CrowdSize/2)
	}
	return monitor.Config{
		Bench: monitor.Bench{
			Name: "campaign", Instrument: meter{m.w.card, m.w}, Setup: rails,
			Calibrate: m.w.records().Calibrate,
		},
		Dir: dir, Listeners: []net.Listener{listener}, Version: "campaign",
		Tune: capture.Config{
			Now: m.clock.Now, ChunkScans: 2 * chunk.BlockScans, FlushEvery: 20 * time.Millisecond,
			Reopen:      300 * time.Millisecond,
			OpenTimeout: time.Second, ArmTimeout: 2 * time.Second, StopTail: 2 * time.Millisecond,
			StopGrace: 300 * time.Millisecond,
		},
		ServerOptions: guard.ServerOptions(),
		Spool:         spool.Options{SyncEvery: 10 * time.Millisecond, Buffer: 256 << 10, OpenFile: m.disk.open},
	}
}

// kill ends the monitor as kill -9 or a power cut does: nothing that it does from
// now on reaches the network or the disk.
func (m *monitorSide) kill(d damage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop == nil {
		return
	}
	m.w.line.setAddress("")
	m.w.line.cut(false)
	m.dirs++
	next := filepath.Join(m.w.dir, fmt.Sprintf("spool%d", m.dirs))
	m.w.rngMu.Lock()
	rotted, err := m.disk.image(m.dir, next, d, m.w.rng)
	m.w.rngMu.Unlock()
	m.w.checkPlanted()
	if err = errors.Join(err, m.w.plant(next)); err != nil {
		m.w.fail("campaign: %v", err)
	}
	if rotted {
		m.w.excuse(rotExcuse)
	}
	m.dir = next
	m.stop()
	m.stop = nil
}

// end stops the monitor as SIGTERM does, and waits until it has ended.
func (m *monitorSide) end() {
	m.mu.Lock()
	stop, done := m.stop, m.done
	if m.stop = nil; stop != nil {
		m.leaving = done
	}
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
	if done != nil {
		<-done
	}
}

// retire ends the monitor for good and waits for those that were killed.
func (m *monitorSide) retire() {
	m.mu.Lock()
	m.down = true
	m.mu.Unlock()
	m.end()
	m.ghost.Wait()
}

// records are the bench's: without one its watts are off by a tenth.
func (w *world) records() calibration.Folder {
	return calibration.Folder(filepath.Join(w.dir, "calibration"))
}

// sealed are the files of the records, by name: the same for all worlds.
var sealed = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "wattmark-campaign-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := map[string][]byte{}
	p := meter{}.Inputs().Channels[0]
	good := calib.ScaleOf(p)
	good.Gain = gainW
	was := calib.ScaleOf(p)
	for _, serial := range []string{"1", "another"} {
		r := calib.Record{
			Done: calib.Gain, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), By: "campaign",
			Instrument: calib.Instrument{Kind: "campaign", Serial: serial},
			Channels: []calib.Channel{{
				Name: p.Name, Unit: p.Unit, Scale: &good, Nominal: &was,
				Points: []calib.Point{{Value: 100, U: 0.1, Reading: 90, UReading: 0.01}},
			}},
		}
		path, err := calibration.Folder(dir).Add(&r)
		if err != nil {
			return nil, err
		}
		if out[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return out, nil
})

// mendRecords writes the records as they should be.
func (w *world) mendRecords() {
	files, err := sealed()
	err = errors.Join(err, os.MkdirAll(string(w.records()), 0o755))
	for name, b := range files {
		path := filepath.Join(string(w.records()), name)
		err = errors.Join(err, os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
	}
	if err != nil {
		w.fail("campaign: %v", err)
	}
}

// flipRecord flips a bit of each record: what a capture that begins now makes of it is held
// against the truth at the end.
func (w *world) flipRecord() {
	files, err := sealed()
	w.rngMu.Lock()
	defer w.rngMu.Unlock()
	for name := range files {
		if !flipFile(filepath.Join(string(w.records()), name), w.rng) {
			w.fail("campaign: no calibration record to damage: %v", err)
		}
	}
}

// setup compares the task's scales from counts to watts with the true ones.
func (x *examination) setup() {
	if len(x.t.Setup.Channels) == 0 && x.t.Chunks == 0 {
		return // no header came
	}
	in := meter{}.Inputs()
	in.Channels[0].Gain = gainW
	want, _ := rails(in)
	got := x.t.Setup
	got.Channels = slices.Clone(got.Channels)
	for i := range got.Channels {
		got.Channels[i].Drift = measure.Drift{} // by the task's age
	}
	if s := fmt.Sprint(got.Timebase, got.Channels, got.Rails); s != fmt.Sprint(want.Timebase, want.Channels, want.Rails) {
		x.w.fail("task %d: its watts are made by %s", x.t.ID, s)
	}
}

// damaged flips a bit of a stored calibration, once the host has ended: it must be found,
// and no energy may be computed from it.
func (w *world) damaged() error {
	path := w.disk().path
	before, _, err := w.inspect(path)
	if err != nil {
		return err
	}
	if len(before) > 0 && !w.seen.excuses[logExcuse] {
		w.fail("the check of the database finds %q", before)
	}
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	what, err := w.flipStored(raw)
	if err = errors.Join(err, raw.Close()); err != nil || what == "" {
		return err
	}
	after, refused, err := w.inspect(path)
	if err == nil && !refused && (len(after) <= len(before) || w.broken == BlindCheck) {
		w.fail("%s, and the check finds nothing", what)
	}
	db, oerr := store.Open(w.ctx, path)
	if oerr != nil {
		return err // nothing is computed from it
	}
	tasks, lerr := db.Tasks(w.ctx, store.Query{})
	for i := range tasks {
		w.recompute(db, tasks[i].ID, what)
	}
	return errors.Join(err, lerr, db.Close())
}

// inspect lists the findings of a database's check, or the reason why it cannot be checked.
func (w *world) inspect(path string) (found []string, refused bool, err error) {
	db, err := store.OpenReadOnly(w.ctx, path)
	if err != nil {
		return nil, true, nil
	}
	r, err := db.Check(w.ctx, store.CheckOptions{})
	if err != nil {
		return nil, true, db.Close()
	}
	for _, f := range r.Findings {
		found = append(found, f.What)
	}
	return found, false, db.Close()
}

// recompute asks for a task's energy anew, which must be refused or the same.
func (w *world) recompute(db *store.DB, id store.TaskID, what string) {
	was, err := db.Task(w.ctx, id)
	if err != nil || was.Result == nil {
		return
	}
	if err := measurement.Retrim(w.ctx, db, id, measurement.Window{From: was.Result.From, To: was.Result.To}); err != nil {
		return
	}
	now, err := db.Task(w.ctx, id)
	if err != nil || now.Result == nil || math.Abs(float64(now.Result.Total.Energy-was.Result.Total.Energy)) > 0.01*float64(was.Result.Total.U) {
		w.fail("%s, and task %d is given another energy without a word: %v", what, id, err)
	}
}

// flipStored flips a bit of a value that makes numbers, and says which; nothing where there
// is none.
func (w *world) flipStored(raw *sql.DB) (what string, err error) {
	table := []string{"calibration", "channel", "rail"}[w.rng.IntN(3)]
	var columns []string
	rows, err := raw.QueryContext(w.ctx, `SELECT name FROM pragma_table_info(?) WHERE name NOT IN ('calibration_id','ordinal','since_ns')`, table)
	if err != nil {
		return "", err
	}
	for rows.Next() {
		var c string
		err = errors.Join(err, rows.Scan(&c))
		columns = append(columns, c)
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return "", err
	}
	column := columns[w.rng.IntN(len(columns))]
	var was any
	// The first, whole, and of a task.
	where := ` WHERE calibration_id=(SELECT min(calibration_id) FROM task WHERE result IS NOT NULL)`
	err = raw.QueryRowContext(w.ctx, `SELECT "`+column+`" FROM `+table+where+` LIMIT 1`).Scan(&was) // #nosec G202 -- names of the schema
	is := flipped(was, w.rng)
	if errors.Is(err, sql.ErrNoRows) || is == nil {
		return "", nil
	}
	if err == nil {
		_, err = raw.ExecContext(w.ctx, `UPDATE `+table+` SET "`+column+`"=?`+where, is) // #nosec G202 -- as above
	}
	return fmt.Sprintf("%s.%s was %v and is %v", table, column, was, is), err
}

// flipped is a value with one bit changed; nil of none.
func flipped(v any, rng *rand.Rand) any {
	switch v := v.(type) {
	case float64:
		if v == 0 {
			return math.Float64frombits(1 << rng.IntN(52)) // no other is none
		}
		return math.Float64frombits(math.Float64bits(v) ^ 1<<[]int{24 + rng.IntN(28), 63}[rng.IntN(2)]) // more than rounding
	case int64:
		return v ^ 1<<rng.IntN(3)
	case string:
		if v == "" {
			return "a"
		}
		b := []byte(v)
		b[rng.IntN(len(b))] ^= 1
		return string(b)
	case []byte:
		b := slices.Clone(v)
		flip(b, rng)
		return b
	}
	return nil
}
