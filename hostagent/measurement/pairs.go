package measurement

import (
	"cmp"
	"math"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
	"wattmark/store"
)

// playedMarker is a marker as the host played it.
type playedMarker struct {
	kind  marker.Kind
	first time.Time // of its chip 0
	at    map[int]time.Time
}

// markersOf gathers edges to markers, in the order of their times.
func markersOf(edges []store.Played) (out []playedMarker) {
	type key struct {
		kind   marker.Kind
		number int
	}
	index := map[key]int{}
	for _, e := range edges {
		k := key{e.Kind, e.Number}
		i, ok := index[k]
		if !ok {
			i = len(out)
			index[k], out = i, append(out, playedMarker{kind: e.Kind, first: e.At, at: map[int]time.Time{}})
		}
		out[i].at[e.Chip] = e.At
		if e.Chip == 0 {
			out[i].first = e.At
		}
	}
	slices.SortFunc(out, func(a, b playedMarker) int { return a.first.Compare(b.first) })
	return out
}

// pair is a marker that was played, and where it was found.
type pair struct {
	played *playedMarker
	found  *marker.Found
}

// pairs tells which marker that was found is which that was played. With one of a
// kind there is no question. With more, some may not have been found, and the
// clocks are not yet related: that offset between them counts under which most of
// the markers meet.
func pairs(played []playedMarker, found []marker.Found) []pair {
	if once(played, func(p *playedMarker) marker.Kind { return p.kind }) && once(found, func(f *marker.Found) marker.Kind { return f.Kind }) {
		return byKind(played, found)
	}
	var best []pair
	bestOff := math.Inf(1)
	for i := range found {
		for j := range played {
			if found[i].Kind != played[j].kind {
				continue
			}
			got, off := meet(played, found, played[j].first, found[i].T)
			if len(got) > len(best) || len(got) == len(best) && off < bestOff {
				best, bestOff = got, off
			}
		}
	}
	return best
}

// once reports whether there is at most one of each kind.
func once[T any](list []T, kind func(*T) marker.Kind) bool {
	seen := map[marker.Kind]bool{}
	for i := range list {
		k := kind(&list[i])
		if seen[k] {
			return false
		}
		seen[k] = true
	}
	return true
}

func byKind(played []playedMarker, found []marker.Found) (out []pair) {
	for i := range found {
		for j := range played {
			if found[i].Kind == played[j].kind {
				out = append(out, pair{&played[j], &found[i]})
			}
		}
	}
	return out
}

// meet pairs what lies together when the host's instant is the meter's t, and says
// how far off they are in all. Two clocks of quartz part by less than the rate
// allowed here, and markers lie further apart than a part of their length.
func meet(played []playedMarker, found []marker.Found, host time.Time, t measure.Seconds) (out []pair, off float64) {
	const rate, slack = 1e-3, 0.25
	taken := make([]bool, len(played))
	for i := range found {
		f := &found[i]
		j, d := nearest(played, taken, f, host, t)
		if j >= 0 && d <= slack*float64(f.End-f.Begin)+rate*math.Abs(float64(f.T-t)) {
			taken[j] = true
			out, off = append(out, pair{&played[j], f}), off+d
		}
	}
	return out, off
}

// nearest is the marker of a kind that was played nearest to one that was found.
func nearest(played []playedMarker, taken []bool, f *marker.Found, host time.Time, t measure.Seconds) (best int, distance float64) {
	best, distance = -1, math.Inf(1)
	at := host.Add((f.T - t).Duration())
	after, _ := slices.BinarySearchFunc(played, at, func(p playedMarker, at time.Time) int { return cmp.Compare(p.first.UnixNano(), at.UnixNano()) })
	// Kinds take turns, so the nearest of a kind is one of the next few.
	for j := max(0, after-3); j < min(len(played), after+3); j++ {
		if d := math.Abs(played[j].first.Sub(at).Seconds()); played[j].kind == f.Kind && !taken[j] && d < distance {
			best, distance = j, d
		}
	}
	return best, distance
}

// observations are the chip edges of markers that were played and found. Without
// edges a marker's own time counts, as chip 0.
func observations(list []pair, origin time.Time) []clock.Obs {
	var out []clock.Obs
	for _, p := range list {
		edges := p.found.Edges
		if len(edges) == 0 {
			edges = []marker.Edge{{Chip: 0, T: p.found.T, U: p.found.U}}
		}
		for _, e := range edges {
			if t, ok := p.played.at[e.Chip]; ok && e.U > 0 {
				out = append(out, clock.Obs{Host: measure.SecondsOf(t.Sub(origin)), Meter: e.T, U: e.U})
			}
		}
	}
	return out
}
