package page_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"wattmark/store"
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
	for i := range 200 {
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
