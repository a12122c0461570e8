package exchange

import (
	"fmt"
	"time"

	"wattmark/store"
)

// slices arranges for the kernels: those that were recorded within the program,
// else those that the host knows.
func (b *timelineBuilder) slices() error {
	var fixed []Slice
	if r := b.t.Result; r != nil {
		m := &b.out.Meta
		fixed = append(fixed, Slice{
			Track: b.track("window"), Start: m.HostNanos(r.From), End: m.HostNanos(r.To), Name: "window",
			Args: []Arg{{"energy_j", fmt.Sprintf("%.6g", float64(r.Total.Energy))}, {"u_j", fmt.Sprintf("%.3g", float64(r.Total.U))}},
		})
	}
	kernels, err := b.db.Kernels(b.ctx, b.t.ID)
	if err != nil {
		return err
	}
	l := lanes{b: b, of: map[string][]lane{}}
	for _, k := range kernels {
		if from, to := nanos(k.Start), nanos(k.End); b.inside(from, to) {
			fixed = append(fixed, Slice{Track: l.put("work", from, to), Start: from, End: to, Name: b.readable(k.Name)})
		}
	}
	tables, err := b.db.LaunchTables(b.ctx, b.t.ID)
	if err != nil {
		return err
	}
	if len(tables.Processes) > 0 {
		if err := b.planLanes(&tables); err != nil {
			return err
		}
	}
	b.out.Slices = func(yield func(*Slice, error) bool) {
		for i := range fixed {
			if !yield(&fixed[i], nil) {
				return
			}
		}
		if len(tables.Processes) > 0 {
			b.launches(&tables, yield)
		}
	}
	return nil
}

func nanos(t time.Time) int64 { return t.UnixNano() }

// planLanes walks through the launches once, to know the tracks before the first
// slice is written.
func (b *timelineBuilder) planLanes(tables *store.LaunchTables) error {
	var fault error
	b.launches(tables, func(_ *Slice, err error) bool { fault = err; return err == nil })
	return fault
}

// launches yields the recorded kernels, a track a stream.
func (b *timelineBuilder) launches(tables *store.LaunchTables, yield func(*Slice, error) bool) {
	l := lanes{b: b, of: map[string][]lane{}}
	names := make([]string, len(tables.Names))
	for i, n := range tables.Names {
		names[i] = b.readable(n)
	}
	type key struct {
		device int
		stream uint32
	}
	streams := map[key]string{}
	var s Slice
	for k, err := range b.db.Launches(b.ctx, b.t.ID) {
		if err == nil && (k.Name >= len(names) || k.Device >= len(tables.Devices) || tables.Devices[k.Device].Process >= len(tables.Processes)) {
			err = fmt.Errorf("task %d: a launch of name %d on device %d: %w", b.t.ID, k.Name, k.Device, store.ErrCorrupt)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		if !b.inside(k.Start, k.End) {
			continue
		}
		at := key{k.Device, k.Stream}
		if streams[at] == "" {
			d := tables.Devices[k.Device]
			streams[at] = fmt.Sprintf("GPU %d, stream %d, process %d", d.Ordinal, k.Stream, tables.Processes[d.Process].PID)
		}
		s = Slice{Track: l.put(streams[at], k.Start, k.End), Start: k.Start, End: k.End, Name: names[k.Name], Args: s.Args[:0]}
		s.Args = append(
			s.Args, Arg{"correlation", fmt.Sprint(k.Correlation)}, Arg{"grid", dim(k.Grid)}, Arg{"block", dim(k.Block)})
		if k.Graph != 0 {
			s.Args = append(s.Args, Arg{"graph", fmt.Sprint(k.Graph)})
		}
		if !yield(&s, nil) {
			return
		}
	}
}

func dim(d [3]uint32) string { return fmt.Sprintf("%d,%d,%d", d[0], d[1], d[2]) }

// lanes spreads slices that overlap over several tracks: a viewer nests what
// overlaps on one, and kernels are not within each other.
type lanes struct {
	b  *timelineBuilder
	of map[string][]lane
}

type lane struct {
	track int
	end   int64
}

// put returns the track for a slice of a name's; slices come by their begins.
func (l *lanes) put(name string, from, to int64) int {
	have := l.of[name]
	for i := range have {
		if have[i].end <= from {
			have[i].end = to
			return have[i].track
		}
	}
	full := name
	if len(have) > 0 {
		full = fmt.Sprintf("%s (%d at once)", name, len(have)+1)
	}
	track := l.b.track(full)
	l.of[name] = append(have, lane{track, to})
	return track
}
