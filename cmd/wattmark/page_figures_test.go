//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// The page's times and its memory, of a task with 117 000 launches in three streams and of a live bench, as
// docs/performance.md gives them: WATTMARK_FIGURES=30 watches the heap for 30 minutes. They are the machine's, and
// not judged.
func TestPageFigures(t *testing.T) {
	minutes, err := strconv.Atoi(os.Getenv("WATTMARK_FIGURES"))
	if err != nil {
		t.Skip("WATTMARK_FIGURES=MINUTES takes them")
	}
	r := newRig(t)
	if code := r.run("--benchmark", "memory", "--duration", "3s", "--name", "many").wait(t); code != 0 {
		t.Fatal("exit code", code)
	}
	r.launches(117_000)
	figures := filepath.Join(t.TempDir(), "figures.json")
	url := r.pageOf(r.address)
	begun, ended := make(chan struct{}), make(chan []float64)
	go func() { // steps of the power, for who looks at the live page
		var at []float64
		for i := 0; ; i++ {
			select {
			case <-begun:
				ended <- at
				return
			case <-time.After(700*time.Millisecond + time.Duration(i*37%300)*time.Millisecond):
			}
			now, err := r.live.SetLevel(time.Now(), []measure.Watt{40, 250}[i%2])
			if err != nil {
				t.Error(err)
			}
			at = append(at, float64(now.UnixNano())/1e6)
		}
	}()
	visitPage(t, "figures.mjs", pageSetup{URL: url, Tasks: minutes, Figures: figures})
	close(begun)
	var seen, late []float64
	b, err := os.ReadFile(figures)
	if err != nil || json.Unmarshal(b, &seen) != nil {
		t.Fatal(err)
	}
	at := <-ended
	for _, s := range seen {
		for i := len(at) - 1; i >= 0; i-- {
			if at[i] < s {
				late = append(late, s-at[i])
				break
			}
		}
	}
	slices.Sort(late)
	t.Logf("from a step of the power to the number: %s, p95 %.0f ms", timesOf(late), late[len(late)*95/100])
}

// launches stores launches of ten kernels in three streams, from the first of which to the last the first task's work
// lasts.
func (r *rig) launches(n int) {
	r.t.Helper()
	db := r.stored()
	defer db.Close()
	k, err := db.Kernels(r.t.Context(), 1)
	if err != nil {
		r.t.Fatal(err)
	}
	tables := store.LaunchTables{
		Processes: []store.LaunchProcess{{PID: 1, Kernels: uint64(n), Reported: uint64(n), Whole: true}},
		Devices:   []store.LaunchDevice{{Measured: true}},
	}
	for i := range 10 {
		tables.Names = append(tables.Names, fmt.Sprint("kernel", i))
	}
	each := k[0].End.Sub(k[0].Start) / time.Duration(n/3)
	rows := make([]store.Launch, n)
	for i := range rows {
		at := k[0].Start.Add(time.Duration(i/3)*each + time.Duration(i%3)*each/5).UnixNano()
		rows[i] = store.Launch{Start: at, End: at + int64(each)*4/5, Name: i * 7 % 10, Stream: uint32(i % 3), Correlation: uint32(i + 1)}
	}
	if err := errors.Join(db.PutLaunches(r.t.Context(), 1, 0, rows), db.PutLaunchTables(r.t.Context(), 1, tables)); err != nil {
		r.t.Fatal(err)
	}
}
