package measurement_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// interrupted is a database whose host is killed after some chunks: nothing
// that comes later is written.
type interrupted struct {
	*store.DB
	mu     sync.Mutex // the members of a group share it
	after  int
	killed bool
}

var errKilled = errors.New("killed")

func (i *interrupted) AppendChunks(ctx context.Context, id store.TaskID, c []*chunk.Chunk, e []measure.Event) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n := min(i.after, len(c)); n < len(c) {
		i.killed, i.after = true, 0
		return errors.Join(i.DB.AppendChunks(ctx, id, c[:n], nil), errKilled)
	}
	i.after -= len(c)
	return i.DB.AppendChunks(ctx, id, c, e)
}

func (i *interrupted) Finish(ctx context.Context, id store.TaskID, o store.Outcome) error {
	i.mu.Lock()
	killed := i.killed
	i.mu.Unlock()
	if killed {
		return errKilled
	}
	return i.DB.Finish(ctx, id, o)
}

// leave makes a measurement whose host dies during the transfer.
func (b *bench) leave(t *testing.T, after int) store.TaskID {
	t.Helper()
	cfg := b.config()
	cfg.DB = &interrupted{DB: b.db, after: after}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(200*time.Millisecond))
	if !errors.Is(err, errKilled) {
		t.Fatalf("got %v", err)
	}
	task := b.task(t, id)
	if task.State != store.Running || task.Chunks > uint64(after) {
		t.Fatalf("state %v with %d chunks", task.State, task.Chunks)
	}
	return id
}

func (b *bench) dial(context.Context, string) (measurement.Monitor, func() error, error) {
	return b.client, func() error { return nil }, nil
}

func TestRecoverFetchesTheRest(t *testing.T) {
	for name, after := range map[string]int{"nothing stored": 0, "some stored": 4} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, b *bench) { recoverFetchesTheRest(t, b, after) })
		})
	}
}

func recoverFetchesTheRest(t *testing.T, b *bench, after int) {
	id := b.leave(t, after)
	done, err := measurement.Recover(t.Context(), b.db, b.dial)
	if err != nil {
		t.Fatal(err)
	}
	task, truth := b.task(t, id), b.truth(t, id)
	if len(done) != 1 || done[0] != id || task.State != store.Complete {
		t.Fatalf("recovered %v; state %v: %s", done, task.State, task.Reason)
	}
	if got := task.Result.Total.Energy; math.Abs(float64(got/truth)-1) > 0.005 {
		t.Errorf("%v, truth %v", got, truth)
	}
	if n := b.captures(t); n != 0 {
		t.Errorf("the monitor still keeps %d captures", n)
	}
	if again, err := measurement.Recover(t.Context(), b.db, b.dial); len(again) != 0 || err != nil {
		t.Errorf("again: %v, %v", again, err)
	}
}

// full is a database whose disk is full after some chunks; outcomes still fit in.
type full struct {
	*store.DB
	after int
}

func (f *full) AppendChunks(ctx context.Context, id store.TaskID, c []*chunk.Chunk, e []measure.Event) error {
	n := min(f.after, len(c))
	f.after -= n
	err := f.DB.AppendChunks(ctx, id, c[:n], nil)
	if n < len(c) {
		err = errors.Join(err, store.ErrFull)
	}
	return err
}

// What a task said of its being open is over once its rest has been fetched, and its
// pyramid is that of its chunks.
func TestRecoverTakesPassingReasonsBack(t *testing.T) {
	inVirtualTime(t, recoverTakesPassingReasonsBack)
}

func recoverTakesPassingReasonsBack(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.DB = &full{b.db, 3}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(200*time.Millisecond))
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("got %v", err)
	}
	if task := b.task(t, id); task.State != store.Running || !strings.Contains(task.Reason, "the transfer stopped: ") {
		t.Fatalf("state %v: %s", task.State, task.Reason)
	}
	if _, err := measurement.Recover(t.Context(), b.db, b.dial); err != nil {
		t.Fatal(err)
	}
	if task := b.task(t, id); task.State != store.Complete || task.Reason != "" {
		t.Errorf("state %v: %q", task.State, task.Reason)
	}
	r, err := b.db.Check(t.Context(), store.CheckOptions{Task: id})
	if err != nil || len(r.Findings) > 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestRecoverSaysWhatIsGone(t *testing.T) { inVirtualTime(t, recoverSaysWhatIsGone) }

func recoverSaysWhatIsGone(t *testing.T, b *bench) {
	id := b.leave(t, 4)
	if err := b.client.Release(t.Context(), b.task(t, id).CaptureID); err != nil {
		t.Fatal(err)
	}
	done, err := measurement.Recover(t.Context(), b.db, b.dial)
	if err != nil {
		t.Fatal(err)
	}
	task := b.task(t, id)
	next, _, err := b.db.NextChunk(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", task.Reason)
	if len(done) != 1 || task.State != store.Incomplete ||
		!strings.Contains(task.Reason, "no longer has capture "+task.CaptureID) || next == 0 {
		t.Errorf("recovered %v; state %v: %s", done, task.State, task.Reason)
	}
}

// All samples had arrived when the host was killed, and then the monitor lost
// the capture: the markers are found here.
func TestRecoverFindsTheMarkersItself(t *testing.T) { inVirtualTime(t, recoverFindsTheMarkersItself) }

func recoverFindsTheMarkersItself(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.DB = &interrupted{DB: b.db, after: math.MaxInt, killed: true}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(200*time.Millisecond))
	if !errors.Is(err, errKilled) {
		t.Fatalf("got %v", err)
	}
	if err := b.client.Release(t.Context(), b.task(t, id).CaptureID); err != nil {
		t.Fatal(err)
	}
	if _, err := measurement.Recover(t.Context(), b.db, b.dial); err != nil {
		t.Fatal(err)
	}
	task, truth := b.task(t, id), b.truth(t, id)
	if task.State != store.Incomplete || len(task.Markers) != 2 || task.Result == nil {
		t.Fatalf("state %v: %s; %d markers", task.State, task.Reason, len(task.Markers))
	}
	if got := task.Result.Total.Energy; math.Abs(float64(got/truth)-1) > 0.005 {
		t.Errorf("%v, truth %v", got, truth)
	}
}

// lying is a monitor whose trailer does not fit its stream.
type lying struct{ *monitorclient.Client }

func (l lying) Read(
	ctx context.Context, o monitorclient.ReadOptions, s monitorclient.Sink,
) (session.Trailer, error) {
	t, err := l.Client.Read(ctx, o, s)
	t.CRC++
	return t, err
}

// misread is a monitor whose trailer was changed on the line, once.
type misread struct {
	*monitorclient.Client
	once sync.Once
}

func (m *misread) Read(
	ctx context.Context, o monitorclient.ReadOptions, s monitorclient.Sink,
) (session.Trailer, error) {
	t, err := m.Client.Read(ctx, o, s)
	m.once.Do(func() { t.CRC++ })
	return t, err
}

// A trailer that was changed on the line is asked for again, and the capture released.
func TestTrailerIsAskedForAgain(t *testing.T) { inVirtualTime(t, trailerIsAskedForAgain) }

func trailerIsAskedForAgain(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.Monitor = &misread{Client: b.client}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(50*time.Millisecond))
	if task := b.task(t, id); err != nil || task.State != store.Complete {
		t.Errorf("got %v, state %v: %s", err, task.State, task.Reason)
	}
	if n := b.captures(t); n != 0 {
		t.Errorf("the monitor still keeps %d captures", n)
	}
}

// What does not match its checksum is kept, marked, and not released: the
// monitor's copy may be the good one.
func TestMismatchKeepsTheCapture(t *testing.T) { inVirtualTime(t, mismatchKeepsTheCapture) }

func mismatchKeepsTheCapture(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.Monitor = lying{b.client}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(50*time.Millisecond))
	task := b.task(t, id)
	if !errors.Is(err, monitorclient.ErrMismatch) || task.State != store.Incomplete ||
		!strings.Contains(task.Reason, "CRC-32C") {
		t.Errorf("got %v, state %v: %s", err, task.State, task.Reason)
	}
	if n := b.captures(t); n != 1 {
		t.Errorf("the monitor keeps %d captures, want the one in doubt", n)
	}
	b.mustBeFree(t)
}

// A monitor that is away may come back with the samples: the task waits.
func TestRecoverWaitsForASilentMonitor(t *testing.T) { inVirtualTime(t, recoverWaitsForASilentMonitor) }

func recoverWaitsForASilentMonitor(t *testing.T, b *bench) {
	id := b.leave(t, 4)
	done, err := measurement.Recover(t.Context(), b.db,
		func(context.Context, string) (measurement.Monitor, func() error, error) {
			return nil, nil, monitorclient.ErrUnreachable
		})
	if len(done) != 0 || !errors.Is(err, monitorclient.ErrUnreachable) || b.task(t, id).State != store.Running {
		t.Errorf("recovered %v: %v", done, err)
	}
}

// A capture that runs may be somebody's measurement in progress: it is left alone.
// A host that died while the work ran loses it with its lease, and leaves no kernels.
func TestRecoverLeavesACaptureThatStillRuns(t *testing.T) {
	inVirtualTime(t, recoverLeavesACaptureThatStillRuns)
}

func recoverLeavesACaptureThatStillRuns(t *testing.T, b *bench) {
	spec := *b.config().Marker
	s, err := b.client.Start(t.Context(), session.Request{Holder: "lab@host", TaskName: "x", Marker: spec})
	if err != nil {
		t.Fatal(err)
	}
	id, err := b.db.BeginTask(t.Context(),
		store.NewTask{
			Name: "x", User: "lab", Launched: time.Now(), Monitor: b.address, CaptureID: s.CaptureID,
			Marker: spec,
		})
	if err != nil {
		t.Fatal(err)
	}
	done, err := measurement.Recover(t.Context(), b.db, b.dial)
	if err != nil || len(done) != 0 || b.task(t, id).State != store.Running {
		t.Fatalf("recovered %v: %v", done, err)
	}
	if bench, err := b.client.GetBench(t.Context()); err != nil || bench.CaptureID != s.CaptureID {
		t.Fatalf("the capture was stopped: %+v, %v", bench, err)
	}
	if _, err := b.client.Stop(t.Context(), s.CaptureID); err != nil { // as its lease's end does
		t.Fatal(err)
	}
	if done, err = measurement.Recover(t.Context(), b.db, b.dial); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	task := b.task(t, id)
	if task.State != store.Incomplete || !strings.Contains(task.Reason, "has not stored when the work ran") {
		t.Errorf("state %v: %s", task.State, task.Reason)
	}
	b.mustBeFree(t)
}

// dying is a monitor whose host dies before it can release the capture.
type dying struct{ *monitorclient.Client }

func (dying) Release(context.Context, string) error { return errKilled }

// A host that died between the outcome and the release leaves a capture of a task
// that has ended: nobody else would drop it.
func TestRecoverReleasesWhatIsStored(t *testing.T) { inVirtualTime(t, recoverReleasesWhatIsStored) }

func recoverReleasesWhatIsStored(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.Monitor = dying{b.client}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(50*time.Millisecond))
	if !errors.Is(err, errKilled) || b.task(t, id).State != store.Complete || b.captures(t) != 1 {
		t.Fatalf("got %v, state %v, %d captures", err, b.task(t, id).State, b.captures(t))
	}
	if done, err := measurement.Recover(t.Context(), b.db, b.dial); err != nil || len(done) != 0 {
		t.Fatal(done, err)
	}
	if n := b.captures(t); n != 0 {
		t.Errorf("the monitor still keeps %d captures", n)
	}
}

// A capture in doubt stays on the monitor, however often is looked.
func TestRecoverKeepsWhatDoesNotMatch(t *testing.T) { inVirtualTime(t, recoverKeepsWhatDoesNotMatch) }

func recoverKeepsWhatDoesNotMatch(t *testing.T, b *bench) {
	id := b.leave(t, 4)
	if err := b.db.Finish(t.Context(), id,
		store.Outcome{State: store.Incomplete, Reason: "given up by hand"}); err != nil {
		t.Fatal(err)
	}
	if _, err := measurement.Recover(t.Context(), b.db, b.dial); err != nil {
		t.Fatal(err)
	}
	if n := b.captures(t); n != 1 {
		t.Errorf("the monitor keeps %d captures, want the one that has more", n)
	}
}

// forgetful is a monitor whose disk lost what it had sent.
type forgetful struct{ *monitorclient.Client }

func (f forgetful) Read(
	ctx context.Context, o monitorclient.ReadOptions, s monitorclient.Sink,
) (session.Trailer, error) {
	o.From += 1000
	return f.Client.Read(ctx, o, s)
}

// A monitor that has less than it has sent can give nothing more: the task ends
// with what arrived.
func TestRecoverFromAMonitorThatLostSamples(t *testing.T) {
	inVirtualTime(t, recoverFromAMonitorThatLostSamples)
}

func recoverFromAMonitorThatLostSamples(t *testing.T, b *bench) {
	id := b.leave(t, 4)
	dial := func(context.Context, string) (measurement.Monitor, func() error, error) {
		return forgetful{b.client}, func() error { return nil }, nil
	}
	done, err := measurement.Recover(t.Context(), b.db, dial)
	task := b.task(t, id)
	if !errors.Is(err, monitorclient.ErrPastEnd) || len(done) != 1 || task.State != store.Incomplete ||
		!strings.Contains(task.Reason, "disk lost samples") {
		t.Errorf("recovered %v: %v; state %v: %s", done, err, task.State, task.Reason)
	}
	if n := b.captures(t); n != 0 {
		t.Errorf("the monitor still keeps %d captures", n)
	}
}

// damaged is a monitor whose disk flipped a bit of the capture.
type damaged struct{ *monitorclient.Client }

func (damaged) Read(context.Context, monitorclient.ReadOptions, monitorclient.Sink) (session.Trailer, error) {
	return session.Trailer{}, monitorclient.ErrDamaged
}

// What cannot be read today cannot be read tomorrow: the task ends, and the capture
// stays for who wants to look at the disk.
func TestRecoverFromADamagedCapture(t *testing.T) { inVirtualTime(t, recoverFromADamagedCapture) }

func recoverFromADamagedCapture(t *testing.T, b *bench) {
	id := b.leave(t, 4)
	dial := func(context.Context, string) (measurement.Monitor, func() error, error) {
		return damaged{b.client}, func() error { return nil }, nil
	}
	done, err := measurement.Recover(t.Context(), b.db, dial)
	task := b.task(t, id)
	if !errors.Is(err, monitorclient.ErrDamaged) || len(done) != 1 || task.State != store.Incomplete ||
		!strings.Contains(task.Reason, "damaged") {
		t.Errorf("recovered %v: %v; state %v: %s", done, err, task.State, task.Reason)
	}
	if n := b.captures(t); n != 1 {
		t.Errorf("the monitor keeps %d captures, want the damaged one", n)
	}
}

// elsewhere is a process of another machine, of which nothing is known here.
const elsewhere = "pid=1 start=1 space=pid:[1] boot=b host=elsewhere.invalid"

// takenOver is a measurement whose bench is taken in the midst of its work, and whose task
// is recovered by a machine that does not know the process which measures.
func (b *bench) takenOver(t *testing.T, cfg measurement.Config, failed error) (store.TaskID, error) {
	t.Helper()
	warned := make(chan string, 1)
	cfg.Warn = func(text string) { warned <- text }
	cfg.Owner = elsewhere
	id, err := measurement.Measure(t.Context(), cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
		k, err := b.memory(100 * time.Millisecond)(ctx)
		if err != nil {
			return k, err
		}
		if _, _, _, err := b.client.End(ctx, "", "root@vm", "a demonstration"); err != nil {
			return k, err
		}
		if said := <-warned; !strings.Contains(said,
			"the work goes on without being measured: taken over by root@vm: a demonstration") {
			t.Errorf("the holder is told %q", said)
		}
		done, err := measurement.Recover(ctx, b.db, b.dial)
		if err != nil || len(done) != 1 {
			t.Errorf("recovered %v: %v", done, err)
		} else if x := b.task(t, done[0]); x.State != store.Incomplete || strings.Contains(x.Reason, "interrupted") ||
			!strings.Contains(x.Reason, "this machine does not know") {
			t.Errorf("recovered: state %v: %s", x.State, x.Reason)
		}
		return k, failed
	})
	b.mustBeFree(t)
	if n := b.captures(t); n != 0 {
		t.Errorf("the monitor still keeps %d captures", n)
	}
	return id, err
}

// What the process that measured says replaces what a recovery said in its place.
func TestRunsOwnEndReplacesThatOfARecovery(t *testing.T) {
	inVirtualTime(t, runsOwnEndReplacesThatOfARecovery)
}

func runsOwnEndReplacesThatOfARecovery(t *testing.T, b *bench) {
	id, err := b.takenOver(t, b.config(), nil)
	x := b.task(t, id)
	if err != nil || x.State != store.Incomplete ||
		!strings.HasPrefix(x.Reason, "the capture ended early: taken over by root@vm: a demonstration; ") ||
		strings.Contains(x.Reason, "does not know") || x.Owner != "" {
		t.Errorf("%v; state %v: %s; owner %q", err, x.State, x.Reason, x.Owner)
	}
	if k, err := b.db.Kernels(t.Context(), id); err != nil || len(k) != 1 {
		t.Errorf("%d kernels: %v", len(k), err)
	}
}

// That the work failed is kept, though a recovery has ended the task before.
func TestFailedWorkIsToldBehindARecovery(t *testing.T) {
	inVirtualTime(t, failedWorkIsToldBehindARecovery)
}

func failedWorkIsToldBehindARecovery(t *testing.T, b *bench) {
	failed := errors.New("out of memory")
	id, err := b.takenOver(t, b.config(), failed)
	if x := b.task(t, id); !errors.Is(err, failed) || x.State != store.Failed ||
		!strings.HasPrefix(x.Reason, "the work failed: out of memory; the capture ended early: taken over") {
		t.Errorf("%v; state %v: %s", err, x.State, x.Reason)
	}
}

// cutOff is a monitor whose stream ends with the line, when the capture is gone.
type cutOff struct {
	*monitorclient.Client
	gone <-chan struct{}
}

func (c cutOff) Read(
	ctx context.Context, o monitorclient.ReadOptions, s monitorclient.Sink,
) (session.Trailer, error) {
	<-c.gone
	return c.Client.Read(ctx, o, s)
}

// A recovery has fetched and released what this process could not: the task has it all.
func TestRunEndsWhatARecoveryFetched(t *testing.T) { inVirtualTime(t, runEndsWhatARecoveryFetched) }

func runEndsWhatARecoveryFetched(t *testing.T, b *bench) {
	gone := make(chan struct{})
	cfg := b.config()
	cfg.Monitor, cfg.Owner = cutOff{b.client, gone}, elsewhere
	failed := errors.New("out of memory")
	id, err := measurement.Measure(t.Context(), cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
		defer close(gone)
		if _, _, _, err := b.client.End(ctx, "", "root@vm", "a demonstration"); err != nil {
			return nil, err
		}
		done, err := measurement.Recover(ctx, b.db, b.dial)
		if err != nil || len(done) != 1 {
			t.Errorf("recovered %v: %v", done, err)
		}
		return nil, failed
	})
	x := b.task(t, id)
	if !errors.Is(err, failed) || x.State != store.Failed || x.Chunks == 0 ||
		!strings.Contains(x.Reason, "out of memory; the samples were fetched by a recovery: the capture ended early: ") || !strings.Contains(x.Reason, "taken over by root@vm") {
		t.Errorf("%v; state %v with %d chunks: %s", err, x.State, x.Chunks, x.Reason)
	}
}

// A task of this very process that it gave up, as where the database failed at its end, is
// nobody's any more.
func TestRecoverFinishesWhatThisProcessGaveUp(t *testing.T) {
	inVirtualTime(t, recoverFinishesWhatThisProcessGaveUp)
}

func recoverFinishesWhatThisProcessGaveUp(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.DB, cfg.Owner = &interrupted{DB: b.db, after: math.MaxInt, killed: true}, store.Owner()
	during := func(ctx context.Context) ([]gpu.Kernel, error) {
		if done, err := measurement.Recover(ctx, b.db, b.dial); err != nil || len(done) != 0 {
			t.Errorf("recovered %v while it is measured: %v", done, err)
		}
		return b.memory(50 * time.Millisecond)(ctx)
	}
	id, err := measurement.Measure(t.Context(), cfg, during)
	if x := b.task(t, id); !errors.Is(err, errKilled) || x.State != store.Running {
		t.Fatalf("got %v, state %v", err, x.State)
	}
	if done, err := measurement.Recover(t.Context(), b.db, b.dial); err != nil || len(done) != 1 ||
		b.task(t, id).State != store.Complete {
		t.Errorf("recovered %v: %v; state %v", done, err, b.task(t, id).State)
	}
}

// rotten is a monitor whose disk damages the second chunk of the stream after it was fetched.
type rotten struct {
	*monitorclient.Client
	no    uint64
	other bool // and another chunk is not what it was
	all   []*chunk.Chunk
}

func (r *rotten) Read(
	ctx context.Context, o monitorclient.ReadOptions, s monitorclient.Sink,
) (session.Trailer, error) {
	if len(r.all) > 0 && o.From == 0 {
		s, r.all = without{s, r.no, r.other}, nil // read once more, it may end earlier than what was followed
	}
	t, err := r.Client.Read(ctx, o, &keep{s, &r.all})
	if err != nil {
		return t, err
	}
	r.no = r.all[1].No
	t.Chunks, t.Scans, t.CRC = 0, 0, 0
	for _, c := range r.all {
		if c.No == r.no {
			continue
		}
		t.Chunks, t.Scans = t.Chunks+1, t.Scans+uint64(c.Scans)
		t.CRC = crc32.Update(t.CRC, crc32.MakeTable(crc32.Castagnoli), binary.LittleEndian.AppendUint32(nil, c.CRC))
	}
	t.Summary.Lost, t.Summary.Gaps = uint64(r.all[1].Scans), 1
	return t, nil
}

type keep struct {
	monitorclient.Sink
	all *[]*chunk.Chunk
}

func (k *keep) Chunk(c *chunk.Chunk) error {
	*k.all = append(*k.all, c.Clone())
	return k.Sink.Chunk(c)
}

type without struct {
	monitorclient.Sink
	no    uint64
	other bool
}

func (w without) Chunk(c *chunk.Chunk) error {
	if c.No == w.no {
		return nil
	}
	if w.other && c.No == w.no+1 {
		c = c.Clone()
		c.CRC++
	}
	return w.Sink.Chunk(c)
}

// A chunk that is here, and that the monitor's disk has damaged since, is not missing: the
// task is complete and the capture released, if all else is the same.
func TestThisSideHasMore(t *testing.T) {
	for _, other := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, b *bench) { thisSideHasMore(t, b, other) })
	}
}

func thisSideHasMore(t *testing.T, b *bench, other bool) {
	cfg := b.config()
	cfg.Monitor = &rotten{Client: b.client, other: other}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(400*time.Millisecond))
	task, kept := b.task(t, id), b.captures(t)
	if !other && (err != nil || task.State != store.Complete || kept != 0) || other &&
		(!errors.Is(err, monitorclient.ErrMismatch) || task.State != store.Incomplete) {
		t.Errorf("another chunk %v: %v, state %v: %s; %d captures are kept", other, err, task.State, task.Reason,
			kept)
	}
}

// unmarked is a monitor whose disk damages the record of the start marker once the capture
// was read: its stream begins with the first chunk from then on.
type unmarked struct {
	*monitorclient.Client
	end    uint64 // one past the last chunk that was read; 0 before
	before uint64 // chunks that were not in the stream
}

func (u *unmarked) Read(
	ctx context.Context, o monitorclient.ReadOptions, s monitorclient.Sink,
) (session.Trailer, error) {
	var was session.Trailer
	if u.end == 0 {
		var err error
		if was, err = u.Client.Read(ctx, o, s); err != nil {
			return was, err
		}
		u.end = was.Summary.EndChunk
		o.From, s = u.end, ignore{}
	}
	now := tallied{Sink: s, from: o.From, end: u.end}
	t, err := u.Client.Read(ctx, monitorclient.ReadOptions{CaptureID: o.CaptureID, Untrimmed: true}, &now)
	t.Chunks, t.Scans, t.CRC = now.n.Chunks, now.n.Scans, now.n.CRC
	if was.Chunks > 0 {
		u.before = t.Chunks - was.Chunks
	}
	return t, err
}

// tallied counts the chunks before end, and passes on those from a number on.
type tallied struct {
	monitorclient.Sink
	from, end uint64
	n         session.Trailer
}

func (c *tallied) Chunk(x *chunk.Chunk) error {
	if x.No >= c.end {
		return nil
	}
	c.n.Chunks, c.n.Scans = c.n.Chunks+1, c.n.Scans+uint64(x.Scans)
	c.n.CRC = crc32.Update(c.n.CRC, crc32.MakeTable(crc32.Castagnoli), binary.LittleEndian.AppendUint32(nil, x.CRC))
	if x.No < c.from {
		return nil
	}
	return c.Sink.Chunk(x)
}

type ignore struct{}

func (ignore) Header(store.Header, uint64) error { return nil }
func (ignore) Chunk(*chunk.Chunk) error          { return nil }
func (ignore) Event(measure.Event) error         { return nil }

// What lay before the start marker while the monitor knew it is not missing here once the
// monitor's disk has lost the marker's record.
func TestTheStartMarkerIsLostLater(t *testing.T) { inVirtualTime(t, theStartMarkerIsLostLater) }

func theStartMarkerIsLostLater(t *testing.T, b *bench) {
	cfg := b.config()
	m := &unmarked{Client: b.client}
	cfg.Monitor = m
	cfg.Lead = time.Second
	id, err := measurement.Measure(t.Context(), cfg, b.memory(400*time.Millisecond))
	task, kept := b.task(t, id), b.captures(t)
	if m.before == 0 || err != nil || task.State != store.Complete || kept != 0 {
		t.Errorf("%d chunks before the marker: %v, state %v: %s; %d captures are kept", m.before, err, task.State,
			task.Reason, kept)
	}
}
