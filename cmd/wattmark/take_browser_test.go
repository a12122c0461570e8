//go:build linux

package main

import (
	"encoding/csv"
	"encoding/xml"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// Somebody asks whether a change helped, makes a figure of a task, takes its samples, names a stretch of it
// and makes that the window.
func TestTakingAwayInBrowser(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "power.db")
	keepLong(t, path, 2*time.Second)
	makeTasks(t, path, versions(5, 0.9, 0.005)...)
	host := start(t, "host", "--db", path, "--listen", "127.0.0.1:0", "--socket", "none", "--http", "127.0.0.1:0", "--db-free", "0")
	b := openPage(t, host.await(t, `serving JSON over HTTP" address=(http://[0-9.:]+)`)[1])
	b.compares(path)
	b.visit("#/task/1?from=0&to=1&a=0.25&b=0.5", `document.querySelector('#between data') && document.querySelector('#span').textContent === 'Samples between A and B'`)
	b.figures()
	b.samples()
	b.trims(path)
	b.visit("#/totals?by=user", `document.querySelectorAll('tbody tr').length === 2 && document.querySelector('tbody a[href="#/tasks?user=lab"]')`)
	b.comesBack()
}

// compares looks at ten tasks, which fall into two groups by their names.
func (b *tab) compares(path string) {
	b.Helper()
	const panel, said = `section[aria-label=Comparison]`, `.said .verdict`
	b.visit("#/compare?ids=2,3,4,5,6,7,8,9,10,11", `document.querySelector('`+panel+` tbody tr') && document.querySelectorAll('`+panel+` .dot').length === 30`)
	if want, got := comparison(b.T, "v1", "v2", "--db", path).Verdict, b.text(said); got != want {
		b.Errorf("the page says %q, compare %q", got, want)
	}
	if rows := b.text(panel + " tbody"); !strings.Contains(rows, "Energy × time (EDP)") || !strings.Contains(rows, "a run ±") || strings.Count(rows, "< 0.0001") < 2 {
		b.Errorf("rows %q", rows)
	}
	b.do(chromedp.SendKeys(chromedp.CSS(panel+` input[name=work]`), "token=512\r"))
	b.until(`document.querySelector('` + panel + ` tbody').innerText.includes('mJ/token') || document.querySelector('` + panel + ` tbody').innerText.includes('J/token')`)
	b.shot("compare-groups")
	// A task goes into a group of its own, and back by the browser's history.
	says[bool](b, `(() => { const s = document.querySelector('select[aria-label="Group of task 3"]'); s.value = 2; s.dispatchEvent(new Event('change')); return true })()`)
	b.until(`location.hash.includes(';3&') && document.querySelectorAll('` + said + `').length === 2`)
	b.do(chromedp.NavigateBack())
	b.until(`document.querySelectorAll('` + said + `').length === 1`)
}

// figures reads the figure that is saved: it is SVG of its own, with what stands below it.
func (b *tab) figures() {
	b.Helper()
	says[bool](b, `(() => { globalThis.saved = []; const made = URL.createObjectURL; URL.createObjectURL = (f) => { saved.push(f); return made(f) }; HTMLAnchorElement.prototype.click = () => {}; return true })()`)
	b.click(`button[aria-label="Save the figure as SVG"]`)
	b.click(`button[aria-label="Save the figure as PNG"]`)
	b.until(`saved.length === 2 && saved[0].type === 'image/svg+xml' && saved[1].type === 'image/png' && saved[1].size > 20000`)
	svg, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`saved[0].text()`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			b.Fatalf("the figure is no XML: %v", err)
		}
	}
	for _, want := range []string{"Power in W", "Device time", "k = 2", ">A<", ">B<"} {
		if !strings.Contains(svg, want) {
			b.Errorf("no %q in the figure", want)
		}
	}
	if len(svg) > 1<<20 {
		b.Errorf("the figure has %d bytes", len(svg))
	}
}

// samples fetches the files that are offered, which are of what lies between the cursors.
func (b *tab) samples() {
	b.Helper()
	links := says[[]string](b, `[...document.querySelectorAll('.take a')].map(a => a.href)`)
	if len(links) != 3 {
		b.Fatalf("links %q", links)
	}
	for i, begins := range []string{"# wattmark task 1", "PAR1", "\n"} {
		res, err := http.Get(links[i])
		if err != nil {
			b.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || !strings.HasPrefix(string(body), begins) || !strings.Contains(res.Header.Get("Content-Disposition"), "task-1.") {
			b.Errorf("%s: %s %q %v", links[i], res.Status, body[:min(len(body), 40)], err)
		}
		if i > 0 {
			continue
		}
		r := csv.NewReader(strings.NewReader(string(body)))
		r.Comment = '#'
		rows, err := r.ReadAll()
		if err != nil || len(rows) != 25002 { // 100 kS/s, both ends, and the names
			b.Fatalf("%d rows: %v", len(rows), err)
		}
		if last, _ := strconv.ParseFloat(rows[len(rows)-1][1], 64); last != 0.5 {
			b.Errorf("the last row is at %v s", last)
		}
	}
	for query, want := range map[string]int{"format=exe": 400, "format=csv&x=1": 400, "format=csv&from_s=7&to_s=8": 400} {
		if res, err := http.Get(b.url + "/v1/tasks/1/export?" + query); err != nil || res.StatusCode != want {
			b.Errorf("%s: %v %v", query, res.Status, err)
		}
	}
}

// trims keeps a stretch under a name, comes back to it, and sets the window by it.
func (b *tab) trims(path string) {
	b.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(`input[name=stretch]`), "warm-up\r"))
	b.until(`document.querySelector('[aria-label="Named stretches"] tbody button')?.textContent === 'warm-up'`)
	b.visit("#/task/1?from=0&to=1", `document.querySelector('[aria-label="Named stretches"] tbody button')`)
	b.click(`[aria-label="Named stretches"] tbody button`)
	b.until(`location.hash.includes('a=0.25&b=0.5') && document.querySelector('#between data')`)
	b.click(`.actions > button`)
	b.until(`document.querySelector('dialog[open] .primary')`)
	b.click(`dialog[open] .primary`)
	b.until(`document.querySelector('.figures').innerText.includes('250.00 ms') || document.querySelector('.figures').innerText.includes('250.0 ms')`)
	db, err := store.Open(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	got, err := db.Task(b.Context(), 1)
	if err != nil || got.Result == nil || got.Result.From != 0.25 || got.Result.To != 0.5 || len(got.Notes) != 1 || got.Notes[0].Text != "stretch 0.25 s to 0.5 s: warm-up" {
		b.Errorf("%+v %+v %v", got.Result, got.Notes, err)
	}
}

// comesBack leaves the list with picks, and finds them again; a search is a step to go back from.
func (b *tab) comesBack() {
	b.Helper()
	b.visit("#/tasks", `document.querySelectorAll('tr[data-task]').length === 11`)
	b.click(`tr[data-task="5"] input`)
	b.do(chromedp.SendKeys(chromedp.CSS(`input[placeholder^=gemm]`), "v2"))
	b.until(`document.querySelectorAll('tr[data-task]').length === 5 && location.hash.includes('name=v2')`)
	b.do(chromedp.NavigateBack())
	b.until(`document.querySelectorAll('tr[data-task]').length === 11 && document.querySelector('tr[data-task="5"] input').checked`)
	b.click(`tr[data-task="7"] a`)
	b.until(`document.title.includes('7') && !document.querySelector('tr[data-task]')`)
	b.do(chromedp.NavigateBack())
	b.until(`document.querySelector('tr[data-task="5"] input')?.checked && document.querySelector('#compare').disabled`)
}
