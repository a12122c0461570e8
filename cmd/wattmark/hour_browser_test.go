//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/perf"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/store"
)

// A long capture is drawn at any zoom, from all of it to single samples. What that took
// is told, and not judged: it is the machine's. WATTMARK_HOUR=1 takes an hour at
// 100 kS/s of six channels, which needs 1.6 GB of disk.
func TestLongCaptureInBrowser(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	length := 20 * time.Second
	if os.Getenv("WATTMARK_HOUR") != "" {
		length = time.Hour
	}
	path := filepath.Join(t.TempDir(), "power.db")
	keepLong(t, path, length)
	host := start(t, "host", "--db", path, "--listen", "127.0.0.1:0", "--socket", "none", "--http", "127.0.0.1:0", "--db-free", "0")
	b := openPage(t, host.await(t, `serving JSON over HTTP" address=(http://[0-9.:]+)`)[1])
	var first []float64
	for range 5 {
		b.visit("#/task/1", drawnTimes(1))
		first = append(first, b.drawn()...)
	}
	t.Logf("the first view of %v: %s", length, timesOf(first))
	views := 1
	look := func(from, to float64) {
		b.Helper()
		says[bool](b, fmt.Sprintf(`(location.hash = '#/task/1?from=%.7f&to=%.7f', true)`, from, to))
		views++
		b.until(drawnTimes(views) + ` && !document.querySelector('[aria-busy]')`)
	}
	for span, at := length.Seconds()/4, 0.4*length.Seconds(); span > 1e-6; span /= 4 {
		look(at, at+span)
	}
	t.Logf("zooms: %s", timesOf(b.drawn()[1:]))
	zooms := views
	for range 5 { // all of it again, from parts
		look(0.3*length.Seconds(), 0.5*length.Seconds())
		look(0, length.Seconds())
	}
	t.Logf("all of it and a fifth, in turn: %s", timesOf(b.drawn()[zooms:]))
}

// keepLong stores a task of that length: six channels at 100 kS/s, of the generator's counts.
func keepLong(t *testing.T, path string, length time.Duration) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := store.Open(t.Context(), path)
	must(err)
	defer db.Close()
	const rate = 100e3
	g := perf.NewGenerator(rate, false)
	s, err := g.Setup(g.Inputs())
	must(err)
	id, err := db.BeginTask(t.Context(), store.NewTask{Name: "long", User: "bench", Launched: time.Now()})
	must(err)
	must(db.PutHeader(t.Context(), id, store.Header{Bench: "generator", Setup: s, CalibrationID: s.CalibrationID()}))
	e, err := chunk.NewEncoder(s.Timebase, len(s.Channels), chunk.MaxScans)
	must(err)
	no, left, all := uint64(0), int(length.Seconds()*rate), errors.New("all is stored")
	err = g.Stream(t.Context(), instrument.Sink{Block: func(b *measure.Block) error {
		for at := 0; at < b.Scans() && left > 0; {
			part := measure.Block{FirstScan: b.FirstScan + uint64(at), FirstTick: b.FirstTick + int64(at)}
			for _, c := range b.Counts {
				part.Counts = append(part.Counts, c[at:min(len(c), at+left)])
			}
			took, err := e.Append(&part)
			if err != nil {
				return err
			}
			at, left = at+took, left-took
			if e.Full() || left == 0 {
				if err := db.AppendChunks(t.Context(), id, []*chunk.Chunk{e.Flush(no)}, nil); err != nil {
					return err
				}
				no++
			}
		}
		if left == 0 {
			return all
		}
		return nil
	}})
	if !errors.Is(err, all) {
		t.Fatal(err)
	}
	must(db.Finish(t.Context(), id, store.Outcome{State: store.Incomplete, Reason: "made by a test"}))
}

// drawnTimes is true once so many views are on the screen.
func drawnTimes(n int) string {
	return fmt.Sprintf(`performance.getEntriesByName('wattmark.zoom').length >= %d`, n)
}

// drawn is how long each view of the page took, in ms.
func (b *tab) drawn() []float64 {
	b.Helper()
	return says[[]float64](b, `performance.getEntriesByName('wattmark.zoom').map(e => e.duration)`)
}

func timesOf(list []float64) string {
	s := slices.Sorted(slices.Values(list))
	return fmt.Sprintf("median %.0f ms, %.0f to %.0f, of %d", s[len(s)/2], s[0], s[len(s)-1], len(s))
}
