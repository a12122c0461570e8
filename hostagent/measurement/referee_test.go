package measurement

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"iter"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// shelf is a database of one task, as much of it as conclude reads.
type shelf struct {
	Store
	task    store.Task
	played  []store.Played
	kernels []store.Kernel
	chunks  []*chunk.Chunk
	found   []marker.Found
}

func (s *shelf) Task(context.Context, store.TaskID) (store.Task, error) { return s.task, nil }

func (s *shelf) Played(context.Context, store.TaskID) ([]store.Played, error) { return s.played, nil }

func (s *shelf) Kernels(context.Context, store.TaskID) ([]store.Kernel, error) { return s.kernels, nil }

func (s *shelf) ReadingsWithin(context.Context, store.TaskID, string, time.Time, time.Time) ([]store.Reading, error) {
	return nil, nil
}

func (s *shelf) Chunks(context.Context, store.TaskID, uint64) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) {
		for _, c := range s.chunks {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// trial is what the product makes of one recording.
type trial struct {
	miss, relU    float64 // error of the energy over U, U over the truth; NaN without a result
	bad           bool    // doubtful or void
	z             []float64
	false, missed int // markers
}

// attempt measures a recording as monitor and host do. Each of the bench's markers has a z: the error of its time over
// its u.
func (c *refereeCase) attempt(seed uint64) (out trial, err error) {
	db, rec, err := c.stored(seed)
	if err != nil {
		return out, err
	}
	t := &db.task
	t.Clipped = db.clippings()
	v, _ := t.Verdict()
	out = trial{miss: math.NaN(), relU: math.NaN(), bad: v.Level >= quality.Doubtful}
	if t.Result != nil {
		e := &t.Result.Total
		out.miss, out.relU = (float64(e.Energy)-rec.Energy)/float64(e.U), float64(e.U)/rec.Energy
	}
	out.markers(rec.Marks, db.found, float64(t.Marker.Chip))
	return out, nil
}

// stored records, and returns the task as it is stored when it has ended.
func (c *refereeCase) stored(seed uint64) (*shelf, *Recording, error) {
	const tick = 1e6
	m := &c.bench.Meter
	setup := measure.Setup{Timebase: measure.Timebase{TickHz: tick, UTickHz: m.UTick, TicksPerScan: tick / m.Rate}}
	if c.window {
		setup.Response.Window = measure.Seconds(m.Average[1])
	}
	spec := marker.ProfileFor(setup, uint32(seed))
	play := func(k marker.Kind) Marker {
		code := spec.CodeStart()
		return Marker{Chips: spec.Chips(k), Chip: float64(spec.Chip), Code: code, Tag: code + spec.CodeLen()}
	}
	if c.bench.Every > 0 {
		code := spec.CodeStart()
		c.bench.Amid = Marker{Chips: spec.Amid().Chips(marker.Start), Chip: float64(spec.Chip), Code: code, Tag: code + spec.CodeLen()}
	}
	rec := c.bench.Record(seed, play(marker.Start), play(marker.Stop))
	wire(&setup, rec)
	db := &shelf{task: store.Task{ID: 1, NewTask: store.NewTask{Marker: spec}}}
	db.task.Setup = setup
	db.host(rec)
	var err error
	if db.found, err = db.capture(rec); err != nil {
		return nil, nil, err
	}
	o, err := conclude(context.Background(), db, 1, &session.Summary{Markers: db.found}, verdict{})
	if err != nil {
		return nil, nil, err
	}
	t := &db.task
	t.State, t.Markers, t.Clock, t.Result = o.State, o.Markers, o.Clock, o.Result
	return db, rec, nil
}

// wire gives a setup the recording's channels and rails.
func wire(setup *measure.Setup, rec *Recording) {
	for _, ch := range rec.Channels {
		unit := measure.UnitVolt
		if ch.Current {
			unit = measure.UnitAmpere
		}
		setup.Channels = append(setup.Channels, measure.Channel{
			Name: ch.Name, Unit: unit, Gain: ch.Gain, Offset: ch.Offset, UGain: ch.UGain, UOffset: ch.UOffset,
			MinCount: measure.Count(ch.Min), MaxCount: measure.Count(ch.Max),
		})
	}
	for i, role := range []measure.Role{measure.RolePSU, measure.RolePCIe12V} {
		setup.Rails = append(setup.Rails, measure.Rail{
			Name: fmt.Sprint("rail", i+1), Role: role, Wiring: measure.WiringClamp, X: 2*i + 1, Y: 2 * i,
		})
	}
}

// host keeps the host's record of a recording.
func (s *shelf) host(rec *Recording) {
	at := func(host float64) time.Time { return time.Unix(0, 0).Add(measure.Seconds(host).Duration()) }
	for _, e := range rec.Edges {
		kind := marker.Start
		if e.Stop {
			kind = marker.Stop
		}
		if e.Amid > 0 {
			kind = marker.Mark
		}
		s.played = append(s.played, store.Played{Kind: kind, Number: e.Amid, Chip: e.Chip, At: at(e.Host)})
	}
	s.kernels = []store.Kernel{{Start: at(rec.From), End: at(rec.To)}}
}

// capture keeps the samples of a recording and finds its markers.
func (s *shelf) capture(rec *Recording) ([]marker.Found, error) {
	t := &s.task
	d, err := marker.NewDetector(t.Marker, &t.Setup)
	if err != nil {
		return nil, err
	}
	enc, err := chunk.NewEncoder(t.Setup.Timebase, len(t.Setup.Channels), chunk.MaxScans)
	if err != nil {
		return nil, err
	}
	flush := func() {
		if c := enc.Flush(t.Chunks); c != nil {
			s.chunks = append(s.chunks, c.Clone())
			t.Chunks++
		}
	}
	end := uint64(0)
	for _, r := range rec.Runs {
		tick := math.Round(float64(r.First) * t.Setup.Timebase.TicksPerScan)
		b := &measure.Block{FirstScan: r.First, FirstTick: int64(tick)}
		b.Counts = r.Counts
		if r.First > end && end > 0 {
			t.Events = append(t.Events, measure.Event{
				Kind: measure.EventGap, FirstScan: end, Scans: r.First - end, Exact: true, Channel: -1,
			})
		}
		end = r.First + uint64(b.Scans())
		if err := d.Push(b); err != nil {
			return nil, err
		}
		for at := 0; at < b.Scans(); {
			rest := b.Slice(t.Setup.Timebase, at, b.Scans())
			n, err := enc.Append(&rest)
			if err != nil {
				return nil, err
			}
			at += n
			if at < b.Scans() {
				flush()
			}
		}
		flush()
	}
	t.Scans = end
	return d.Found(), d.Finish()
}

// clippings counts clipped readings inside the window, in the markers, and elsewhere, as the database does.
func (s *shelf) clippings() (out []quality.Clipping) {
	t := &s.task
	start, stop := marker.Pair(t.Markers)
	within := func(f *marker.Found, at measure.Seconds) bool { return f != nil && at >= f.Begin && at < f.End }
	for c, ch := range t.Setup.Channels {
		n := quality.Clipping{Channel: c}
		for _, k := range s.chunks {
			_ = k.OverRange(ch, c, func(scan uint64) {
				at := t.Setup.Timebase.Seconds(float64(scan) * t.Setup.Timebase.TicksPerScan)
				switch {
				case t.Result != nil && at >= t.Result.From && at < t.Result.To:
					n.Inside++
				case within(start, at) || within(stop, at):
					n.Markers++
				default:
					n.Outside++
				}
			})
		}
		if n.Inside+n.Markers+n.Outside > 0 {
			out = append(out, n)
		}
	}
	return out
}

// markers compares what was found with what was played.
func (r *trial) markers(played []Mark, found []marker.Found, chip float64) {
	hit := make([]bool, len(played))
	for i := range found {
		f, any := &found[i], false
		for k, m := range played {
			if off := float64(f.T) - m.At; m.Stop == (f.Kind == marker.Stop) && math.Abs(off) < 2*chip {
				any, hit[k] = true, true
				if m.Own {
					r.z = append(r.z, off/float64(f.U))
				}
			}
		}
		if !any {
			r.false++
		}
	}
	for k, m := range played {
		if m.Own && !hit[k] {
			r.missed++
		}
	}
}

// TestRefereeSharesNothing: the files of the referee know nothing of this module, neither by an import nor by a name
// of this package.
func TestRefereeSharesNothing(t *testing.T) {
	set := token.NewFileSet()
	known, asked := map[string]bool{}, []*ast.Ident{}
	for _, name := range []string{"bench", "card", "meter"} {
		f, err := parser.ParseFile(set, "referee_"+name+"_test.go", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if strings.Contains(path, ".") {
				t.Errorf("%s imports %s", name, path)
			}
			known[path[strings.LastIndexByte(path, '/')+1:]] = true
		}
		for name := range f.Scope.Objects {
			known[name] = true
		}
		asked = append(asked, f.Unresolved...)
	}
	known["rand"] = true // math/rand/v2
	for _, id := range asked {
		if !known[id.Name] && types.Universe.Lookup(id.Name) == nil {
			t.Errorf("%v: %s is not of the referee", set.Position(id.Pos()), id.Name)
		}
	}
}
