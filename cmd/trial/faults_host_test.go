package trial

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/pyramid"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
)

var errKilled = errors.New("campaign: the host was killed")

// hostSide is one process of the host: its connection and its database. A killed
// one never touches either again.
type hostSide struct {
	w      *world
	client *monitorclient.Client
	db     *store.DB
	ctx    context.Context
	cancel context.CancelCauseFunc
	dead   atomic.Bool
	closed sync.Once
	disk   *hostDisk
}

// newHost starts a process, which faults can strike from here on. It ends where it cannot
// open its database: with nil where a fault is to blame.
func newHost(w *world) (*hostSide, error) {
	client, err := monitorclient.Dial("passthrough:///monitor", monitorclient.Options{
		Pause: 2 * time.Millisecond, Patience: 2 * time.Second, Call: 10 * time.Second,
		Dial: []grpc.DialOption{grpc.WithContextDialer(w.line.dial)},
	})
	if err != nil {
		return nil, err
	}
	h := &hostSide{w: w, client: client, disk: w.disk()}
	h.ctx, h.cancel = context.WithCancelCause(w.ctx)
	w.mu.Lock()
	w.host = h
	w.mu.Unlock()
	h.db, err = store.Open(h.ctx, h.disk.path)
	switch {
	case err == nil && h.ctx.Err() == nil:
		return h, nil
	case err == nil:
		return nil, h.end()
	}
	struck := h.ctx.Err() != nil || w.struck(DatabaseWrite) || w.struck(DatabaseSync) || w.struck(DatabaseFull)
	h.closed.Do(func() { _ = h.client.Close() })
	h.cancel(errKilled)
	if w.ctx.Err() != nil || struck {
		return nil, w.ctx.Err()
	}
	w.fail("the host's database cannot be opened: %v", err)
	return nil, errLost
}

// kill ends the process as kill -9 does, or a power cut.
func (h *hostSide) kill(dmg damage) {
	if h.dead.Swap(true) {
		return
	}
	h.closed.Do(func() { _ = h.client.Close() }) // later calls come from a dead process
	h.disk.crash(dmg)
	h.cancel(errKilled)
}

// end closes all that the process had open.
func (h *hostSide) end() error {
	h.dead.Store(true)
	h.closed.Do(func() { _ = h.client.Close() })
	h.cancel(errKilled)
	return h.db.Close()
}

// alive waits while the process is paused, and fails when it was killed.
func (h *hostSide) alive() error {
	h.w.hostGate.wait(h.ctx)
	if h.dead.Load() {
		return errKilled
	}
	return nil
}

// at reaches a step.
func (h *hostSide) at(s Step) error {
	h.w.at(s)
	return h.alive()
}

// asks is the monitor as the host's process sees it.
type asks struct{ *hostSide }

var _ measurement.Monitor = asks{}

func (a asks) Address() string { return a.client.Address() }

func (a asks) GetBench(ctx context.Context) (session.Bench, error) {
	if err := a.at(StepBench); err != nil {
		return session.Bench{}, err
	}
	return a.client.GetBench(ctx)
}

func (a asks) Captures(ctx context.Context) ([]session.Capture, error) {
	if err := a.alive(); err != nil {
		return nil, err
	}
	return a.client.Captures(ctx)
}

func (a asks) Start(ctx context.Context, r session.Request) (session.Started, error) {
	if err := a.at(StepStart); err != nil {
		return session.Started{}, err
	}
	s, err := a.client.Start(ctx, r)
	return s, errors.Join(err, a.at(StepStarted))
}

func (a asks) KeepLease(ctx context.Context, id string, lease time.Duration) error {
	return errors.Join(a.client.KeepLease(ctx, id, lease), a.alive())
}

func (a asks) Stop(ctx context.Context, id string) (session.Summary, error) {
	if err := a.at(StepStop); err != nil {
		return session.Summary{}, err
	}
	s, err := a.client.Stop(ctx, id)
	if err == nil {
		a.w.stopped(id, s)
		if a.w.broken == ReleaseBeforeStore {
			err = a.client.Release(ctx, id)
		}
	}
	return s, errors.Join(err, a.at(StepStopped))
}

func (a asks) Read(ctx context.Context, o monitorclient.ReadOptions, s monitorclient.Sink) (session.Trailer, error) {
	in := &watched{Sink: s, h: a.hostSide}
	t, err := a.client.Read(ctx, o, in)
	if in.headed {
		a.w.line.sampled(-1)
	}
	if a.w.broken == GiveUp && a.w.struck(Corrupt) {
		err = errors.Join(err, monitorclient.ErrDamaged)
	}
	if err == nil {
		a.w.ended(o.CaptureID, t)
	}
	return t, errors.Join(err, a.at(StepTrailer))
}

func (a asks) Release(ctx context.Context, id string) error {
	if err := a.at(StepRelease); err != nil {
		return err
	}
	a.w.released(id)
	err := a.client.Release(ctx, id)
	return errors.Join(err, a.at(StepReleased))
}

// watched is a stream with the host's steps in it.
type watched struct {
	monitorclient.Sink
	h      *hostSide
	headed bool
}

func (s *watched) Header(h store.Header, first uint64) error {
	if err := s.h.at(StepHeader); err != nil {
		return err
	}
	if !s.headed {
		s.headed = true
		s.h.w.line.sampled(1)
	}
	return s.Sink.Header(h, first)
}

func (s *watched) Chunk(c *chunk.Chunk) error {
	if err := s.h.at(StepChunk); err != nil {
		return err
	}
	return s.Sink.Chunk(c)
}

// stores is the database as the host's process sees it.
type stores struct {
	*store.DB
	h *hostSide
}

var _ measurement.Store = stores{}

func (s stores) BeginTask(ctx context.Context, t store.NewTask) (store.TaskID, error) {
	if err := s.may(); err != nil {
		return 0, err
	}
	id, err := s.DB.BeginTask(ctx, t)
	s.promised(err, id, func(p *promise) { p.capture = t.CaptureID })
	return id, errors.Join(err, s.h.at(StepBegun))
}

func (s stores) PutHeader(ctx context.Context, id store.TaskID, h store.Header) error {
	if err := s.may(); err != nil {
		return err
	}
	return s.DB.PutHeader(ctx, id, h)
}

func (s stores) AppendChunks(ctx context.Context, id store.TaskID, chunks []*chunk.Chunk, events []measure.Event) error {
	if err := s.h.at(StepStoring); err != nil {
		return err
	}
	if err := s.may(); err != nil {
		return err
	}
	err := s.DB.AppendChunks(ctx, id, chunks, events)
	if err == nil && !s.h.dead.Load() {
		s.h.w.stored(id, chunks)
	}
	return errors.Join(err, s.h.at(StepStored))
}

func (s stores) PutKernels(ctx context.Context, id store.TaskID, k []store.Kernel) error {
	if err := s.may(); err != nil {
		return err
	}
	err := s.DB.PutKernels(ctx, id, k)
	s.promised(err, id, func(p *promise) { p.kernels += len(k) })
	return errors.Join(err, s.h.at(StepWorked))
}

func (s stores) PutPlayed(ctx context.Context, id store.TaskID, p []store.Played) error {
	if err := s.may(); err != nil {
		return err
	}
	err := s.DB.PutPlayed(ctx, id, p)
	s.promised(err, id, func(x *promise) { x.edges += len(p) })
	return err
}

func (s stores) Finish(ctx context.Context, id store.TaskID, o store.Outcome) error {
	if err := s.h.at(StepFinish); err != nil {
		return err
	}
	if err := s.may(); err != nil {
		return err
	}
	if s.h.w.broken == KeepLog { // an open reader keeps the log from being emptied
		tx, err := s.SQL().BeginTx(ctx, nil)
		if err == nil {
			err = tx.QueryRowContext(ctx, `SELECT count(*) FROM task`).Scan(new(int))
			defer tx.Rollback()
		}
		if err != nil {
			return err
		}
	}
	err := s.DB.Finish(ctx, id, o)
	if s.h.w.broken == OldPlot && err == nil && o.State != store.Running {
		err = s.halvePlot(ctx, id)
	}
	s.promised(err, id, func(p *promise) { p.ended = o.State })
	return errors.Join(err, s.h.at(StepFinished))
}

// halvePlot makes a bin of a plot as of half of its scans, as where the plot was made before
// the others had come.
func (s stores) halvePlot(ctx context.Context, id store.TaskID) error {
	raw, err := sql.Open("sqlite", s.h.disk.path)
	if err != nil {
		return err
	}
	defer raw.Close()
	var data []byte
	err = raw.QueryRowContext(ctx, `SELECT data FROM pyramid WHERE task_id=? AND level=0 AND page=0`,
		int64(id)).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	page := pyramid.Page{}
	if err = errors.Join(err, page.Parse(data)); err != nil {
		return err
	}
	bin := &page.Series[0][slices.IndexFunc(page.Series[0], func(b pyramid.Bin) bool { return b.N > 1 })]
	bin.N, bin.Sum = bin.N/2, bin.Sum/2
	_, err = raw.ExecContext(ctx, `UPDATE pyramid SET data=? WHERE task_id=? AND level=0 AND page=0`, page.Append(nil),
		int64(id))
	return err
}

// may fails when the process was killed.
func (s stores) may() error { return s.h.alive() }

// promised records acknowledgements of the database to a process that lives: one
// that was killed meanwhile received none.
func (s stores) promised(err error, id store.TaskID, change func(*promise)) {
	if err == nil && !s.h.dead.Load() {
		s.h.w.promised(id, change)
	}
}

// errLost ends a world whose database cannot be opened; the violation is recorded.
var errLost = errors.New("campaign: the host's database is lost")

// hostDisk is the host's disk with its database, as it has been since the host's last
// crash.
type hostDisk struct {
	w       *world
	path    string
	disk    *Disk
	retired atomic.Bool // later writes here are a dead process's
	broken  atomic.Int32
	deaf    atomic.Int32 // syncs that are to fail
}

// watchDatabase begins to watch the database where it lies now. The world forgets it
// at its end.
func (w *world) watchDatabase(path string) error {
	d := &hostDisk{w: w, path: path}
	var err error
	d.disk, err = WatchDisk(path, DiskOptions{
		Write: d.write, Sync: d.sync,
		NoSync: w.broken == CommitBeforeSync,
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.database = d
	w.databases = append(w.databases, d)
	return nil
}

// disk is the host's disk as it is now.
func (w *world) disk() *hostDisk {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.database
}

func (d *hostDisk) write() DiskFault {
	if d.retired.Load() {
		return NoFault
	}
	d.w.at(StepDatabaseWrite)
	d.w.hostGate.wait(context.Background())
	switch {
	case d.retired.Load():
		return NoFault
	case d.w.databaseFull.Load():
		return NoSpace
	case d.broken.Load() > 0:
		d.broken.Add(-1)
		return DeviceError
	}
	return NoFault
}

func (d *hostDisk) sync() DiskFault {
	if d.retired.Load() {
		return NoFault
	}
	d.w.at(StepDatabaseSync)
	d.w.hostGate.wait(context.Background())
	if !d.retired.Load() && d.deaf.Load() > 0 {
		d.deaf.Add(-1)
		return DeviceError
	}
	return NoFault
}

// crash leaves the database as a killed process does, or a power cut, or with a bit of its
// log flipped: from now on it
// lies at another path, and what the old process still does to its own changes nothing.
func (d *hostDisk) crash(dmg damage) {
	d.retired.Store(true)
	w := d.w
	w.mu.Lock()
	next := filepath.Join(w.dir, fmt.Sprintf("power%d.db", len(w.databases)))
	w.mu.Unlock()
	var err error
	w.rngMu.Lock()
	if dmg == torn {
		err = d.disk.Cut(next, w.rng)
	} else {
		err = d.disk.Kill(next)
	}
	if dmg == rotten && flipFile(next+"-wal", w.rng) {
		w.logRotted()
	}
	w.rngMu.Unlock()
	if err = errors.Join(err, w.watchDatabase(next)); err != nil {
		w.fail("%v", err)
	}
}
