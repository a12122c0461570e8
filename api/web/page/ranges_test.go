package page_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// Ranges are shown as a flame by joules, as a table, and as nested rows by thread below the plot. A click on one puts
// the cursors at its ends and shows its energy.
func ranges(t *testing.T, chrome context.Context) {
	const panel = `section[aria-label="Energy by range"]`
	b := open(t, chrome, filled(t), "#/task/1?from=0.1&to=0.9", 1000)
	b.until(`document.querySelectorAll('` + panel + ` tbody tr').length === 3 && ` + drawn + ` && ` + rests)
	rows := is[[]string](b, `[...document.querySelectorAll('`+panel+` tbody tr')].map(r => [...r.children].map(c => c.textContent.trim()).join('|'))`)
	for i, want := range []string{"step|2|102|480.0 ms|70.0 ± 2.1 J|100 %|35.00 J", "forward|1|2|380.0 ms|60.0 ± 1.8 J|86 %|60.00 J", "<b>i|1|100|100.0 ms|10.00 ± 0.30 J|14 %|10.00 J"} {
		if rows[i] != want {
			t.Errorf("%q, want %q", rows[i], want)
		}
	}
	// The flame: forward takes six sevenths of the step, below it.
	bars := is[[]string](b, `[...document.querySelectorAll('`+panel+` .flame button')].map(x => [x.textContent, x.style.left, parseFloat(x.style.width).toFixed(1), x.style.top].join(' '))`)
	if fmt.Sprint(bars) != "[step 0% 100.0 0px forward 0% 85.7 24px <b>i 85.7143% 14.3 24px]" {
		t.Errorf("%q", bars)
	}
	b.click(panel + ` tbody button[title="step/<b>i"]`)
	b.until(`location.hash.includes('a=0.5&b=0.7') && document.querySelector('#between data')`)
	b.until(`document.querySelector('` + panel + ` [role=status]').textContent.includes('step/<b>i, thread 99') && document.querySelector('` + panel + ` [role=status]').textContent.includes('10.00 ± 0.30 J of 100 kernels')`)
	b.joules(1)
	// The second row of the first track is forward, 0.2 to 0.4 s of 0.1 to 0.9.
	x, _, w := b.box()
	y := is[float64](b, `(() => { const r = document.querySelector('.plot').getBoundingClientRect(); return r.bottom - 34 - 2 * 20 - 12 - 12 })()`)
	b.do(chromedp.MouseClickXY(x+w*0.25, y))
	b.until(`location.hash.includes('a=0.2&b=0.4')`)
	b.shot("ranges")
	// A task without ranges has no panel, and asks once.
	b.visit("#/task/2", drawn+` && `+rests+` && document.querySelector('`+panel+`').hidden`)
}

// A view that is opened cold takes few requests, however many tasks are compared.
func requests(t *testing.T, chrome context.Context) {
	s := filled(t)
	for view, there := range map[string]string{
		"#/tasks": `document.querySelectorAll('tbody tr').length > 3`, "#/task/1": drawn + ` && ` + rests,
		"#/compare?ids=1,2,3;4,5,6,7": drawn + ` && document.querySelectorAll('section[aria-label=Figures] tbody tr').length > 6`,
	} {
		b := open(t, chrome, s, view, 1000)
		b.until(there)
		n := is[int](b, `performance.getEntriesByType('resource').length + 1`)
		t.Logf("%s: %d requests", view, n)
		if n > 15 {
			t.Errorf("%s: %d requests: %v", view, n, is[[]string](b, `performance.getEntriesByType('resource').map(e => new URL(e.name).pathname)`))
		}
	}
}
