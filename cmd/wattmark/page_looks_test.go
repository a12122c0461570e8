//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// Names that somebody may give a task.
const (
	nastyName = `<img src=x onerror=alert(1)> "&amp;' gemm`
	longName  = "transformer_block_forward_with_flash_attention_and_everything_else_that_fits_into_one_name_0123456789"
	otherName = "矩阵乘法 ضرب المصفوفات умножение 🔥"
)

// Every view in both themes and on a narrow screen, held against axe-core's rules of
// WCAG 2.2 A and AA and of good practice; and nothing that was typed becomes markup.
func TestLooksInBrowser(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	pageModules(t)
	r := newRig(t)
	url := r.pageOf("127.0.0.1:1", r.address) // the first one is away
	for _, name := range []string{"gemm v1", nastyName} {
		if code := r.run("--benchmark", "memory", "--duration", "300ms", "--name", name, "--user", name).wait(t); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
	at := r.windowOf(2)
	cursors := fmt.Sprintf("a=%.3f&b=%.3f", at.From+0.05, at.To-0.05)
	r.oddTasks()
	report := filepath.Join(t.TempDir(), "report.html")
	inside(t, "validate", "1", "--db", r.db, "--save-as", "first", "--html", report).ok(t)
	const drawn = `document.querySelector('.plot') && !document.querySelector('.plot').hasAttribute('aria-busy')`
	visitPage(t, "looks.mjs", pageSetup{
		URL: url, Tasks: 5, Missing: []string{"/v1/tasks/99"},
		Views: []view{
			{"tasks", "#/tasks", `document.querySelectorAll('tbody tr').length === 5`},
			{"tasks-none", "#/tasks?name=nothing", `document.querySelector('.empty')`},
			{"task", "#/task/2?" + cursors + "&idle=60,1", `document.querySelector('#above') && document.querySelector('#between data') && ` + drawn},
			{"task-panels", "#/task/1", `document.querySelector('.flame button') && document.querySelector('[aria-label="Named stretches"] tbody tr') && ` + drawn},
			{"task-rails", "#/task/1?show=rails", drawn},
			{"task-running", "#/task/3", `document.querySelector('.badge.running')`},
			{"task-incomplete", "#/task/4", `document.querySelector('.badge.incomplete')`},
			{"task-untrimmed", "#/task/5", `document.querySelector('.badge.untrimmed') && ` + drawn},
			{"task-missing", "#/task/99", `document.querySelector('[role=alert]')`},
			{"compare", "#/compare?ids=1,2,3,5&a=0.1&b=0.2", `document.querySelectorAll('tbody data').length >= 4`},
			{"compare-stacked", "#/compare?ids=1,5&show=stacked", `document.querySelectorAll('tbody tr').length === 2`},
			{"compare-groups", "#/compare?ids=1;2&work=token=5", `document.querySelector('[aria-label=Comparison] tbody') && ` + drawn},
			{"totals", "#/totals?by=day", `document.querySelector('tbody tr')`},
			{"compare-none", "#/compare", `document.querySelector('.empty form')`},
			{"benches", "#/live", `[...document.querySelectorAll('.bench .badge')].map(e => e.textContent).join() === 'away,free'`},
			{"live", "#/live/" + r.address, watching},
			{"live-away", "#/live/127.0.0.1:1", `document.querySelector('[role=alert]')`},
			{"sensors", "#/sensors", `document.querySelector('.profile')`},
			{"reports", "#/reports", `document.querySelector('.saved')`},
			{"report", "#/reports/1", `document.querySelector('.verdict')`},
			{"nowhere", "#/nowhere", `document.querySelector('main').innerText.includes('no view')`},
			{"signin", r.signIn() + "/", `document.querySelector('#token')`},
			{"report-html", "file://" + report, `document.querySelector('.verdict')`},
		},
	})
}

// windowOf returns a task's window.
func (r *rig) windowOf(id store.TaskID) measure.Window {
	r.t.Helper()
	db := r.stored()
	defer db.Close()
	t, err := db.Task(r.t.Context(), id)
	if err != nil || t.Result == nil {
		r.t.Fatal(t, err)
	}
	return measure.Window{From: t.Result.From, To: t.Result.To}
}

// oddTasks adds a task that runs, one that is incomplete, one without markers, and a
// sensor's profile.
func (r *rig) oddTasks() {
	r.t.Helper()
	ctx := r.t.Context()
	db, err := store.Open(ctx, r.db)
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	whole, err := db.Task(ctx, 1)
	must(err)
	for _, name := range []string{longName, otherName, "no markers"} {
		id, err := db.BeginTask(ctx, store.NewTask{Name: name, User: name, Launched: time.Now(), GPU: "simulated GPU"})
		must(err)
		switch name {
		case otherName:
			must(db.Finish(ctx, id, store.Outcome{State: store.Incomplete, Reason: strings.Repeat("the meter was unplugged ", 10)}))
		case "no markers":
			must(db.PutHeader(ctx, id, store.Header{Bench: "lab", Setup: whole.Setup, CalibrationID: whole.CalibrationID, Started: time.Now()}))
			for c, err := range db.Chunks(ctx, 1, 0) {
				must(err)
				must(db.AppendChunks(ctx, id, []*chunk.Chunk{c.Clone()}, nil))
			}
			must(db.Finish(ctx, id, store.Outcome{State: store.Untrimmed, Reason: "no markers were found"}))
		}
	}
	w := whole.Result
	third := (w.To - w.From) / 3
	must(db.PutRanges(ctx, 1, store.Ranges{
		Ranges: []store.RangeEnergy{{Path: "step", Ranges: 2, Launches: 3, Busy: third, Estimate: measure.Estimate{Energy: 20, U: 1}}, {Path: "step/" + nastyName, Ranges: 1, Launches: 1, Busy: third, Estimate: measure.Estimate{Energy: 15, U: 1}}},
		Spans:  []store.RangeSpan{{Thread: 9, From: w.From, To: w.From + third, Launches: 2, Estimate: measure.Estimate{Energy: 15, U: 1}}, {Range: 1, Thread: 9, From: w.From, To: w.From + third/2, Launches: 1, Estimate: measure.Estimate{Energy: 10, U: 1}}},
	}))
	_, err = db.AddNote(ctx, 1, time.Now(), fmt.Sprintf("stretch %v s to %v s: warm-up", float64(w.From), float64(w.From+third)))
	must(err)
	content, err := json.Marshal(sensor.Profile{
		Field: "instant", GPU: "simulated GPU", UUID: "GPU-1", Model: sensor.Boxcar, Period: 0.1, UPeriod: 55e-6, Window: 0.025, UWindow: 0.0005, Gain: 1.01, UGain: 0.002,
		Calibrated: true, Seen: 0.25, USeen: 0.005,
	})
	must(err)
	_, err = db.PutAnalysis(ctx, store.Analysis{Kind: sensor.Kind, Name: "GPU-1 instant", Made: time.Now(), Maker: "test", Content: content, Tasks: []store.TaskID{1}})
	must(err)
}

// signIn is a host that asks who one is.
func (r *rig) signIn() string {
	r.t.Helper()
	dir := filepath.Join(r.t.TempDir(), "auth")
	inside(r.t, "auth", "init", "--auth", dir, "--server", "127.0.0.1").ok(r.t)
	db := filepath.Join(r.t.TempDir(), "signin.db")
	host := start(r.t, "host", "--db", db, "--listen", "127.0.0.1:0", "--socket", "none", "--http", "127.0.0.1:0", "--auth", dir)
	return host.await(r.t, `serving JSON over HTTP" address=(https://[0-9.:]+)`)[1]
}
