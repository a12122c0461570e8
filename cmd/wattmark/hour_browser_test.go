//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/perf"
	"github.com/wattmark/wattmark/store"
)

// A long capture is drawn at any zoom, from all of it to single samples. What that took
// is told, and not judged: it is the machine's. WATTMARK_HOUR=1 takes an hour at
// 100 kS/s of six channels, which needs 1.6 GB of disk.
func TestLongCaptureInBrowser(t *testing.T) {
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

// keepLong makes a task of that length.
func keepLong(t *testing.T, path string, length time.Duration) {
	t.Helper()
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	m := perf.MadeCapture{G: perf.NewGenerator(perf.LongRateHz, false), Rate: perf.LongRateHz, Scans: uint64(length.Seconds() * float64(perf.LongRateHz))}
	if _, _, err := m.Store(t.Context(), db, "long"); err != nil {
		t.Fatal(err)
	}
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
