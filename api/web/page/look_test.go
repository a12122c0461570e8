package page_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/wattmark/wattmark/internal/chromium"
	"github.com/wattmark/wattmark/store"
)

// visit goes to a view, anew, and waits for it.
func (b *tab) visit(at, there string) {
	b.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(b.site.url+"/"+at))
	b.until(there)
}

// A link says all: span, cursors, what is shown. Down to a microsecond there is
// something to see, and the samples beside it.
func links(t *testing.T, chrome context.Context) {
	s := filled(t)
	b := open(t, chrome, s, "#/task/1?from=0.2&to=0.6&a=0.25&b=0.5&show=total", 1000)
	b.until(`document.querySelector('#between data') && ` + drawn)
	b.joules(1)
	b.until(`location.hash.includes('show=total') && location.hash.includes('from=0.2&to=0.6&a=0.25&b=0.5')`)
	if pressed := is[string](b, `document.querySelector('button[aria-pressed=true]').textContent`); pressed != "Total" {
		t.Errorf("shown is %q", pressed)
	}
	for _, span := range []string{"from=0.25&to=0.251", "from=0.25&to=0.25001", "from=0.25&to=0.250001"} {
		b.visit("#/task/1?"+span, drawn)
		b.do(chromedp.Focus(chromedp.CSS(".plot")), chromedp.KeyEvent("a"))
		b.until(`/^\d+\.\d+ W/.test(document.querySelector('.cursor-a').parentElement.querySelector('.soft').textContent)`)
	}
	b.shot("microsecond")
	// Another view by its address, and back.
	b.do(chromedp.Navigate(s.url + "/#/compare?ids=1,3"))
	b.until(`document.title.startsWith('compare') && ` + drawn)
	b.do(chromedp.NavigateBack())
	b.until(`document.title.startsWith('gemm · 1') && ` + drawn)
	b.expect = []string{"404", "400"}
	for at, says := range map[string]string{"#/task/99": "no such task", "#/task/x": "is no task", "#/nowhere": "no view", "#/tasks?name=%25%zz": "No task is like that", "#/compare?ids=99,1": "no such task"} {
		b.visit(at, fmt.Sprintf(`document.querySelector('main').innerText.includes(%q)`, says))
	}
}

// Nothing to show, and nobody who answers, are told as such.
func emptyAndGone(t *testing.T, chrome context.Context) {
	b := open(t, chrome, empty(t), "", 800)
	b.until(`document.querySelector('.empty') && document.querySelector('main').innerText.includes('There are no tasks yet.')`)
	b.shot("empty")
	s := filled(t)
	b = open(t, chrome, s, "#/task/1", 800)
	b.expect = []string{"ERR_", "Failed to load"}
	b.until(drawn)
	s.stop()
	b.do(chromedp.Focus(chromedp.CSS(".plot")), chromedp.KeyEvent("+"))
	b.until(`document.querySelector('[role=alert]')?.innerText.includes('does not answer')`)
	b.shot("gone")
}

// Kernels have a row for each stream, colours of their own and energies that add up; a click on a launch reads its
// joules, and N goes to the next of its name.
func kernels(t *testing.T, chrome context.Context) {
	b := open(t, chrome, filled(t), "#/task/1?from=0.1&to=0.9", 1000)
	b.until(`document.querySelectorAll('section[aria-label="Energy by kernel"] tbody tr').length === 5 && ` + drawn + ` && ` + rests)
	b.shot("kernels")
	rows := is[[]string](b, `[...document.querySelectorAll('section[aria-label="Energy by kernel"] tbody tr')].map(r => [...r.children].map(c => c.textContent.trim()).join('|'))`)
	if want := "gemm|1|200.0 ms|40.0 ± 1.2 J|40 %|200.0 W|40.00 J"; rows[0] != want || rows[3] != "(before and after)||300.0 ms|25.00 ± 0.80 J|25 %|83.33 W|" {
		t.Errorf("%q, want %q first", rows, want)
	}
	first := is[string](b, `document.querySelector('section[aria-label="Energy by kernel"] .verdict').textContent`)
	if first != "gemm takes most: 40.0 ± 1.2 J, 40 % of the task. Next is flash<float>, with 20.0 J less." {
		t.Errorf("%q", first)
	}
	b.click(`section[aria-label="Energy by kernel"] th:last-child button`)
	b.until(`document.querySelector('section[aria-label="Energy by kernel"] th[aria-sort=descending]').textContent.includes('A launch')`)
	colours := is[int](b, `new Set([...document.querySelectorAll('section[aria-label="Energy by kernel"] tbody .key')].map(k => k.style.background)).size`)
	if colours != 3 {
		t.Errorf("%d colours for three names", colours)
	}
	// Flash is on the second stream: its middle is at 0.3 s, a quarter of the view.
	x, _, w := b.box()
	y := is[float64](b, `(() => { const r = document.querySelector('.plot').getBoundingClientRect(); return r.bottom - 34 - 12 })()`)
	b.do(chromedp.MouseClickXY(x+w*0.25, y))
	b.until(`document.querySelector('[aria-label="Launches of the marked kernel"] strong')?.textContent === 'flash<float>'`)
	b.until(`document.querySelector('#between data') && location.hash.includes('kernel=') && location.hash.includes('a=0.21')`)
	b.joules(1)
	b.click(`section[aria-label="Energy by kernel"] button[title=axpy]`)
	b.do(chromedp.Focus(chromedp.CSS(".plot")), chromedp.KeyEvent("n"))
	b.until(`location.hash.includes('a=0.5&') && location.hash.includes('kernel=axpy')`)
	b.do(chromedp.KeyEvent("n"))
	b.until(`location.hash.includes('a=0.502')`)
	b.do(chromedp.KeyEvent("p"))
	b.until(`location.hash.includes('a=0.5&')`)
	b.shot("launch")
}

// Tags, notes and the pin are read, changed and searched for.
func labels(t *testing.T, chrome context.Context) {
	s := filled(t)
	b := open(t, chrome, s, "#/task/2", 1000)
	const panel = `section[aria-label="Notes and tags"]`
	b.until(`document.querySelector('` + panel + `') && ` + drawn)
	b.do(chromedp.SendKeys(chromedp.CSS(panel+` input[name=tag]`), "cooler=water\r"))
	b.until(`document.querySelector('` + panel + ` .chip a')?.textContent === 'cooler=water'`)
	b.do(chromedp.SendKeys(chromedp.CSS(panel+` input[name=note]`), "fan at 40 %, door <b>open</b>\r"))
	b.until(`document.querySelector('` + panel + ` .notes li')?.textContent.startsWith('fan at 40 %, door <b>open</b>')`)
	b.click(panel + ` button[aria-pressed=false]`)
	b.until(`document.querySelector('` + panel + ` button[aria-pressed=true]')`)
	b.shot("labels")
	got, err := s.db.Task(t.Context(), 2)
	if err != nil || got.Tags["cooler"] != "water" || len(got.Notes) != 1 || !got.Pinned {
		t.Errorf("%v %v %v, %v", got.Tags, got.Notes, got.Pinned, err)
	}
	b.click(panel + ` .chip a`)
	b.until(`location.hash.includes('tag=cooler=water') || location.hash.includes('tag=cooler%3Dwater')`)
	b.until(`document.querySelectorAll('tbody tr').length === 1 && document.querySelector('tbody').innerText.includes('cooler=water')`)
	b.visit("#/tasks?words=door+40", `document.querySelectorAll('tbody tr').length === 1 && document.querySelector('tr[data-task="2"]')`)
	b.visit("#/tasks?since=2026-03-05", `document.querySelector('.empty')`)
	b.visit("#/task/2", `document.querySelector('`+panel+` .notes button')`)
	b.click(panel + ` .notes button`)
	b.until(`!document.querySelector('` + panel + ` .notes')`)
	b.click(panel + ` .chip button`)
	b.until(`!document.querySelector('` + panel + ` .chip')`)
	b.expect = []string{"400"}
	b.do(chromedp.SendKeys(chromedp.CSS(panel+` input[name=tag]`), "a b=1\r"))
	b.until(`document.querySelector('` + panel + ` [role=alert]')?.textContent.includes('tags')`)
}

// The list shows what happens in the database while it is open.
func follows(t *testing.T, chrome context.Context) {
	s := filled(t)
	b := open(t, chrome, s, "#/tasks?user=ada", 800)
	b.until(`document.querySelectorAll('tbody tr').length === 2`)
	if err := s.db.DeleteTask(context.WithoutCancel(t.Context()), 2); err != nil {
		t.Fatal(err)
	}
	b.until(`document.querySelectorAll('tbody tr').length === 1`)
	b = open(t, chrome, s, "#/task/4", 800)
	b.until(`document.querySelector('.badge.running')`)
	// The watch may begin after the page was shown: what happens before is told by the
	// next change.
	for i, until := 0, time.Now().Add(chromium.Patience); time.Now().Before(until); i++ {
		err := s.db.Finish(context.WithoutCancel(t.Context()), 4, store.Outcome{State: store.Incomplete, Reason: fmt.Sprint("unplugged ", i)})
		if err != nil {
			t.Fatal(err)
		}
		if seen, _ := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`new Promise(done => setTimeout(() => done(Boolean(document.querySelector('.badge.incomplete'))), 50))`, chromedp.EvalAwaitPromise)); seen {
			return
		}
	}
	t.Error("the task's end was not shown")
}

// formats tries arithmetic of the page that needs a browser; units.test.js has the rest.
func formats(t *testing.T, chrome context.Context) {
	b := open(t, chrome, empty(t), "", 800)
	for _, c := range []struct{ module, call, want string }{
		{"lib/router", `link("task", "a/b c", {x: "", y: 1, ids: "1,2"})`, "#/task/a%2Fb%20c?y=1&ids=1,2"},
		{"lib/router", `JSON.stringify([parse("#/task/a%2Fb%20c?y=1").arg, parse("").name, parse("#/x/%zz").arg])`, `["a/b c","tasks","%zz"]`},
		// A view keeps its state in the address, unless that leads elsewhere already.
		{"lib/router", `(() => { const r = new Router(null, [], () => {}); r.at = '#/left'; r.keep('#/tasks?name=zz'); return location.hash.includes('zz') })()`, "false"},
		{"lib/router", `(() => { const r = new Router(null, [], () => {}); r.at = location.hash; r.keep('#/tasks?name=zz'); return location.hash.includes('zz') && r.at === location.hash })()`, "true"},
		// Drawn in a report are the methods of its verdict, and none twice; equal ends do not make readings equal.
		{"views/report", `(() => { const m = (name, ...w) => ({ name, point_t_s: [0, 1, 2], point_w: w });
			return distinct({ verdict: "smi power.draw.average reads low; the nearest, smi power.draw.instant, is off", methods: [m("smi power.draw", 1, 3, 2), m("smi power.draw.average", 1, 2, 2), m("sma", 1, 2, 2), m("smi power.draw.instant", 5, 5, 5)] }).join() })()`, "smi power.draw.average,smi power.draw.instant,smi power.draw"},
		// Of the readings those in W can be drawn.
		{"views/readings", `powerMethods(["witness", "machine.power.psu", "machine.energy.package-0", "gpu.temperature_c", "nvml.energy", "method.counter", "nvml.instant"]).join()`, "nvml.instant,machine.power.psu"},
		{"lib/format", `[serials(" + C2AB"), serials("1 + 2"), serials("")].join("|")`, "C2AB|1 + 2|"},
		{"views/tasks", `[pattern(" gemm "), pattern("a*"), pattern(""), pattern("\\*")].join()`, `*gemm*,a*,,*\**`},
	} {
		got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`import('/assets/js/`+c.module+`.js').then(m => { const {`+exported[c.module]+`} = m; return String(`+c.call+`) })`, chromedp.EvalAwaitPromise))
		if err != nil || got != c.want {
			t.Errorf("%s is %q, want %q (%v)", c.call, got, c.want, err)
		}
	}
}

// exported are the names that the calls above use.
var exported = map[string]string{
	"lib/format": "serials", "lib/router": "link, parse, Router", "views/readings": "powerMethods", "views/report": "distinct",
	"views/tasks": "pattern",
}
