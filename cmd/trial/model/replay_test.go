package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/store"
)

// inbox takes what a capture's stream brings into the database, some chunks of it.
type inbox struct {
	r      *rig
	chunks int // how many more it takes
}

var errEnough = errors.New("enough")

func (b *inbox) Header(h session.Opening) error {
	if b.r.headed {
		return nil
	}
	b.r.headed = true
	return b.r.db.PutHeader(b.r.ctx, b.r.task, store.Header{
		Bench: h.Bench, Setup: h.Setup,
		CalibrationID: h.CalibrationID, Started: h.Started,
	})
}

func (b *inbox) Chunk(h chunk.Chunk, payload []byte) error {
	if b.chunks--; b.chunks < 0 {
		return errEnough
	}
	c := &chunk.Chunk{No: h.No, FirstScan: h.FirstScan, FirstTick: h.FirstTick, Scans: int(h.Scans), CRC: h.CRC}
	if err := chunk.ParsePayload(c, payload); err != nil {
		return err
	}
	return b.r.db.AppendChunks(b.r.ctx, b.r.task, []*chunk.Chunk{c}, nil)
}

func (b *inbox) Event(measure.Event) error { return nil }

func (b *inbox) Trailer(t session.Trailer) error { b.r.trailer = &t; return nil }

// read fetches what is not stored yet, so many chunks of it at most.
func (r *rig) read(chunks int) error {
	c, err := r.owner.Get(r.id)
	if err != nil {
		return err
	}
	next, _, err := r.db.NextChunk(r.ctx, r.task)
	if err != nil {
		return err
	}
	r.trailer = nil
	err = c.Read(r.ctx, capture.ReadOptions{From: next, Untrimmed: true}, &inbox{r: r, chunks: chunks})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// finish gives the task an outcome.
func (r *rig) finish(on store.Event, once bool) error {
	s := store.Running
	if means, ends := ends[on]; ends {
		s = means
	}
	return r.db.Finish(r.ctx, r.task, store.Outcome{State: s, Reason: "as the model says", Once: once})
}

// does makes the real things take a step of the model. It returns what they said that
// the model did not expect.
func (r *rig) does(s step, before *one) error {
	switch s.does.move {
	case arrives, arrivesTwice:
		return r.message(s.does.w, before)
	case firstScan:
		r.tell(func(to instrument.Sink) (bool, error) { return false, to.Block(block(0, 1)) })
	case chunkWritten:
		from := 1 + scansOf*uint64(before.chunks)
		r.tell(func(to instrument.Sink) (bool, error) { return false, to.Block(block(from, scansOf)) })
	case meterNever, meterFails:
		r.tell(func(instrument.Sink) (bool, error) { return true, errors.New("the meter is broken") })
	case tailWritten:
		r.tell(func(instrument.Sink) (bool, error) { return true, nil })
	case callerGone:
		r.cancel()
	case logSynced:
		<-time.After(syncEvery)
	case leaseEnds:
		c, err := r.owner.Get(r.id)
		if err != nil {
			return err
		}
		<-time.After(time.Until(c.LeaseUntil()) + time.Nanosecond)
	case tooLate:
		return r.late(s.does.late)
	case monitorKilled, powerCut:
		r.crash(s.does.move == powerCut)
	case monitorStarts:
		r.start()
	case otherStops:
		return r.message(askStop, before)
	case otherTakes:
		_, err := r.owner.End(r.ctx, "", "somebody", "wants it")
		return err
	case leftReleased, recoveredReleased:
		return r.owner.Release(r.id)
	default:
		return r.hosts(s, before)
	}
	return nil
}

// hosts are the steps of the host, and of its daemon, that touch database or monitor.
func (r *rig) hosts(s step, before *one) error {
	end := func(on store.Event) error {
		err := r.finish(on, true)
		if errors.Is(err, store.ErrEnded) != (before.state != store.Running) {
			return fmt.Errorf("a task in state %d, %v: %w", before.state, on, err)
		}
		return nil
	}
	switch s.does.move {
	case chunkStored:
		return r.read(1)
	case trailerRead:
		err := r.read(9)
		if err == nil && (r.trailer == nil || (r.trailer.Summary.State == session.Complete) != (before.life == session.Complete)) {
			err = fmt.Errorf("the trailer is %+v", r.trailer)
		}
		return err
	case captureGone:
		if _, err := r.owner.Get(r.id); !errors.Is(err, capture.ErrUnknown) {
			return fmt.Errorf("the capture is there: %w", err)
		}
		return end(store.EndedIncomplete)
	case pastTheEnd:
		if err := r.read(9); !errors.Is(err, capture.ErrPastEnd) {
			return fmt.Errorf("not past the end: %w", err)
		}
		return end(store.EndedIncomplete)
	case patienceEnds:
		return end(store.Postponed)
	case outcomeStored, recoveredStored:
		return end(s.does.on)
	case revised:
		return r.finish(s.does.on, false)
	}
	return nil // it is the host's own
}

// message delivers one.
func (r *rig) message(w message, before *one) error {
	switch {
	case w == askStart:
		ctx, cancel := context.WithCancel(r.ctx)
		r.cancel = cancel
		go r.owner.Start(ctx, session.Request{
			Holder: "model@host", Marker: spec,
			Lease: lease,
		}) //nolint:errcheck // the next step looks
		synctest.Wait()
		for _, c := range r.owner.List() {
			r.id = c.ID
		}
	case w == saidStarted && before.session == starting:
		var err error
		r.task, err = r.db.BeginTask(r.ctx, store.NewTask{Name: "model", User: "model", CaptureID: r.id, Marker: spec})
		return err
	case w == askStop:
		if c, err := r.owner.Get(r.id); err == nil {
			go c.Stop(r.ctx) //nolint:errcheck // the next step looks
		}
	case w == askRelease:
		if err := r.owner.Release(r.id); (err != nil) != (before.life != 0 && !before.life.Ended()) {
			return fmt.Errorf("released while %v: %w", before.life, err)
		}
	}
	return nil
}

// late lets a trigger come that the capture is past. Timers that went off cannot be
// made to from here.
func (r *rig) late(t capture.Trigger) error {
	if t != capture.Failed {
		return nil
	}
	_, err := r.owner.End(r.ctx, r.id, "somebody", "wants it")
	return err
}

// differs names the first difference between the real things and the model; empty for none.
func (r *rig) differs(p *place) string {
	synctest.Wait()
	want := &p.all[0]
	if p.up {
		var life session.State
		var chunks uint64
		if c, err := r.owner.Get(r.id); err == nil {
			sum := c.Summary()
			life, chunks = sum.State, sum.Scans/scansOf
		}
		if held := r.owner.Bench(r.ctx).Holder != ""; held != (p.bench != 0) {
			return fmt.Sprintf("the bench is held: %v", held)
		}
		if life != want.life || chunks != uint64(want.chunks) {
			return fmt.Sprintf("the capture is %v with %d chunks, the model says %v with %d", life, chunks, want.life,
				want.chunks)
		}
	}
	if r.task == 0 {
		if want.state != 0 {
			return "there is no task"
		}
		return ""
	}
	task, err := r.db.Task(r.ctx, r.task)
	if err != nil {
		return err.Error()
	}
	if task.State != want.state || task.Scans/scansOf != uint64(want.have) {
		return fmt.Sprintf("the task is %d with %d chunks, the model says %d with %d", task.State, task.Scans/scansOf,
			want.state, want.have)
	}
	return ""
}

// kind is a kind of step: the action, and the states of capture and task.
type kind struct {
	does  action
	life  session.State
	state store.State
}

// ways are ways through the model, by the kind of their last step: one of all that
// there are of the kind, drawn by chance.
func ways(r Rules, rng *rand.Rand) map[kind][]uint8 {
	all, seen := map[kind][]uint8{}, map[kind]int{}
	m := &machine{r: r}
	m.explore(func(way func() []uint8, from *place, s *step) {
		k := kind{s.does, from.all[0].life, from.all[0].state}
		if seen[k]++; rng.IntN(seen[k]) == 0 {
			all[k] = way()
		}
	})
	return all
}

// replay goes a way through the model, and some steps by chance from its end, and has
// the real things take each step. It returns where they differ.
func replay(t *testing.T, db *store.DB, r Rules, way []uint8, rng *rand.Rand) (steps int, err error) {
	m := &machine{r: r}
	real := newRig(t, db)
	defer func() { real.kill() }()
	p := place{up: true}
	var names []string
	for at := range len(way) + 4 {
		all := m.next(p)
		nth := rng.IntN(len(all))
		if at < len(way) {
			nth = int(way[at])
		}
		s := all[nth]
		names = append(names, s.does.String())
		before := p.all[0]
		if err := real.does(s, &before); err != nil {
			return 0, fmt.Errorf("%w\n%q", err, names)
		}
		if why := real.differs(&s.to); why != "" {
			return 0, fmt.Errorf("%s\n%q", why, names)
		}
		p = s.to
		if forget(&p); p.all[0] == (one{session: done}) {
			break // and it is not told any more what became of the task
		}
	}
	return len(names), nil
}

// replayed has the real things go many ways: to a step of every kind, in every state of
// capture and task; in a short test some. It returns the first difference.
func replayed(t *testing.T, r Rules) error {
	db, err := store.Open(t.Context(), filepath.Join(folder(t), "power.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rng := rand.New(rand.NewPCG(1, 3))
	all := ways(r, rng)
	kinds := slices.SortedFunc(maps.Keys(all), func(a,
		b kind,
	) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	if testing.Short() {
		kinds = kinds[:80]
	}
	steps := 0
	for _, k := range kinds {
		synctest.Test(t, func(t *testing.T) {
			var n int
			n, err = replay(t, db, r, all[k], rng)
			steps += n
		})
		if err != nil {
			return err
		}
	}
	t.Logf("%d ways, each to another kind of step; %d steps", len(kinds), steps)
	return nil
}

// What a step does is in the model by hand. Here the real monitor's captures with
// their spool, and the real database, take each step too, and come to the same state.
func TestRealThingsDoAsTheModel(t *testing.T) {
	coverage.Long(t)
	if err := replayed(t, hands(1, 2)); err != nil {
		t.Error(err)
	}
}

// A model of a monitor that does not sync before it answers differs from the real one.
func TestRealThingsDoNotAsABrokenModel(t *testing.T) {
	r := hands(1, 2)
	r.AckBeforeSync = true
	err := replayed(t, r)
	t.Log(err)
	if err == nil {
		t.Error("the difference was not seen")
	}
}
