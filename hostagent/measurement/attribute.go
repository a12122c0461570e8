package measurement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/measure/attribute"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// ErrNoShares: the energy of a task cannot be shared among its kernels.
var ErrNoShares = errors.New("no energy by kernel")

// LaunchStore is what sharing a task's energy asks of the task database.
// *store.DB is one.
type LaunchStore interface {
	Task(ctx context.Context, id store.TaskID) (store.Task, error)
	Chunks(ctx context.Context, id store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error]
	Launches(ctx context.Context, id store.TaskID) iter.Seq2[store.Launch, error]
	LaunchTables(ctx context.Context, id store.TaskID) (store.LaunchTables, error)
	PutNameEnergies(ctx context.Context, id store.TaskID, result int, e []store.NameEnergy) error
}

// Attribute shares the energy of a task's result in use among the kernels that
// were recorded in its program, and stores it by name: the largest first, then
// active idle, then idle. Only kernels on the GPU that was measured count.
// Without a window, a clock fit or recorded kernels it is ErrNoShares. Where only storing
// fails, the shares are returned beside the error (store.ErrReadOnly of a database that
// may only be read).
func Attribute(ctx context.Context, db LaunchStore, id store.TaskID) ([]store.NameEnergy, error) {
	t, err := db.Task(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("attribute: %w", err)
	}
	tables, err := db.LaunchTables(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("attribute: %w", err)
	}
	if err := shareable(&t, &tables); err != nil {
		return nil, fmt.Errorf("task %d: %w: %w", id, ErrNoShares, err)
	}
	s := &sharing{ctx: ctx, db: db, task: &t, tables: &tables}
	r, err := s.run()
	if err != nil {
		return nil, fmt.Errorf("attribute: task %d: %w", id, err)
	}
	out := s.lines(r)
	if err := db.PutNameEnergies(ctx, id, t.ResultNumber, out); err != nil {
		return out, fmt.Errorf("attribute: %w", err)
	}
	return out, nil
}

func shareable(t *store.Task, tables *store.LaunchTables) error {
	switch {
	case len(tables.Processes) == 0:
		return errors.New("its program was not recorded (run --auto)")
	case t.Result == nil || t.ResultNumber == 0:
		return errors.New("it has no window")
	case t.Clock == nil:
		return errors.New("the kernels' times cannot be carried to the meter's clock: no marker was found by its code")
	}
	return nil
}

// sharing is one Attribute.
type sharing struct {
	ctx     context.Context
	db      LaunchStore
	task    *store.Task
	tables  *store.LaunchTables
	engines []*attribute.Engine
	groups  [][]int // the rails that an engine sees
}

// run pushes the stored scans through one engine for each group of rails that are
// read at one instant.
func (s *sharing) run() (attribute.Result, error) {
	t := s.task
	if err := s.open(); err != nil {
		return attribute.Result{}, err
	}
	defer func() {
		for _, e := range s.engines {
			e.Close()
		}
	}()
	stream, err := measure.NewPowerStream(&t.Setup, s.push)
	if err != nil {
		return attribute.Result{}, err
	}
	tb := t.Setup.Timebase
	late := measure.Seconds(1) // more than any edge looks ahead
	for b, err := range chunk.DecodeAll(s.db.Chunks(s.ctx, t.ID, 0), &t.Setup) {
		if err == nil {
			err = stream.Add(b)
		}
		if err != nil {
			return attribute.Result{}, err
		}
		if n := b.Scans(); n > 0 && tb.Seconds(b.TickAt(tb, 0)) > t.Result.To+late {
			break
		}
	}
	if err := stream.Close(); err != nil {
		return attribute.Result{}, err
	}
	var parts []attribute.Result
	for _, e := range s.engines {
		r, err := e.Result()
		if err != nil {
			return attribute.Result{}, err
		}
		parts = append(parts, r)
	}
	return attribute.Merge(parts...), nil
}

// open makes the engines.
func (s *sharing) open() error {
	t := s.task
	bySkew := map[measure.Seconds]int{}
	for r, rail := range t.Setup.Rails {
		skew := t.Setup.Channels[rail.X].Skew
		g, ok := bySkew[skew]
		if !ok {
			e, err := attribute.New(attribute.Config{
				Window: measure.Window{From: t.Result.From, To: t.Result.To}, Clock: *t.Clock, Delay: skew,
				Resolution: resolution(&t.Setup), Spill: spill(&t.Setup),
			}, s.kernels())
			if err != nil {
				return err
			}
			g = len(s.engines)
			bySkew[skew], s.engines, s.groups = g, append(s.engines, e), append(s.groups, nil)
		}
		s.groups[g] = append(s.groups[g], r)
	}
	return nil
}

// resolution is the span that an instrument cannot look into.
func resolution(s *measure.Setup) measure.Seconds {
	r, tb := s.Response, s.Timebase
	return max(tb.Seconds(tb.TicksPerScan), r.Update, r.Window, 2*r.Tau)
}

// spill is how long a step of power leaks over an edge on the average: the
// trapezoid rule's ramp, cut at the edge, a sixth of its length; an average half of
// its own; a first-order lag all of it.
func spill(s *measure.Setup) measure.Seconds {
	r, tb := s.Response, s.Timebase
	return max(tb.Seconds(tb.TicksPerScan), r.Update)/6 + r.Window/2 + r.Tau
}

// push hands a run of scans to the engines.
func (s *sharing) push(p *measure.Powers) error {
	tb := s.task.Setup.Timebase
	for g, e := range s.engines {
		for i := range p.Scans() {
			var w measure.Watt
			for _, r := range s.groups[g] {
				w += p.Rails[r].P[i]
			}
			if err := e.Add(float64(tb.Seconds(p.Tick(i))), float64(w)); err != nil {
				return err
			}
		}
	}
	return nil
}

// kernels are the launches on the GPU that was measured.
func (s *sharing) kernels() iter.Seq2[attribute.Kernel, error] {
	return func(yield func(attribute.Kernel, error) bool) {
		for l, err := range s.db.Launches(s.ctx, s.task.ID) {
			if err == nil && (l.Device >= len(s.tables.Devices) || l.Name >= len(s.tables.Names)) {
				err = fmt.Errorf("a launch of name %d on device %d: %w", l.Name, l.Device, store.ErrCorrupt)
			}
			if err == nil && !s.tables.Devices[l.Device].Measured {
				continue
			}
			k := attribute.Kernel{
				Name: l.Name, Start: HostSeconds(*s.task.Clock, time.Unix(0, l.Start)), End: HostSeconds(*s.task.Clock, time.Unix(0, l.End)),
			}
			if !yield(k, err) || err != nil {
				return
			}
		}
	}
}

// lines are the result as it is stored.
func (s *sharing) lines(r attribute.Result) (out []store.NameEnergy) {
	line := func(class store.EnergyClass, name string, u *attribute.Use) store.NameEnergy {
		return store.NameEnergy{
			Class: class, Name: name, Launches: u.Launches, Short: u.Short, Busy: u.Busy, Share: u.Share,
			Energy: measure.Estimate{Energy: u.Energy, U: 2 * s.uncertainty(u)},
		}
	}
	for i := range r.Kernels {
		if u := &r.Kernels[i]; u.Launches > 0 {
			out = append(out, line(store.KernelEnergy, s.tables.Names[i], u))
		}
	}
	slices.SortStableFunc(out, func(a, b store.NameEnergy) int { return cmp.Compare(b.Energy.Energy, a.Energy.Energy) })
	return append(out, line(store.ActiveIdleEnergy, "", &r.ActiveIdle), line(store.IdleEnergy, "", &r.Idle))
}

// uncertainty is the standard uncertainty of one line: the edges' and the
// sampling's own, and its part of the window's budget. A gain's part is as the
// energy, an offset's as the time; the larger of the two is taken for both. What
// averages out goes by the root of it. The window's own ends are in the edges.
func (s *sharing) uncertainty(u *attribute.Use) measure.Joule {
	r := s.task.Result
	part := float64(u.Share) / float64(r.To-r.From)
	if e := float64(r.Total.Energy); e > 0 {
		part = max(part, float64(u.Energy)/e)
	}
	part = min(part, 1)
	v := float64(u.UEdges)*float64(u.UEdges) + float64(u.USampling)*float64(u.USampling)
	for _, c := range r.Budget {
		k := part
		switch {
		case c.Source == "window edges" || c.Source == "window sampling":
			k = 0
		case c.Source == "gaps":
			k = 1 // they may all lie here
		case !c.Systematic:
			k = math.Sqrt(part)
		}
		if u.Share == 0 {
			k = 0
		}
		v += k * k * float64(c.U) * float64(c.U)
	}
	return measure.Joule(math.Sqrt(v))
}
