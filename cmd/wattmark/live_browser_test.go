//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// pageOf starts a host of the rig's database, with its page, that knows monitors.
func (r *rig) pageOf(monitors ...string) string {
	r.t.Helper()
	args := []string{"host", "--db", r.db, "--listen", "127.0.0.1:0", "--socket", "none", "--http", "127.0.0.1:0"}
	for _, m := range monitors {
		args = append(args, "--monitor", m)
	}
	return start(r.t, args...).await(r.t, `serving JSON over HTTP" address=(http://[0-9.:]+)`)[1]
}

// watching is true once the bench is sampled: there are watts, and a line is drawn.
const watching = `/^\d+\.\d\d W$/.test(document.querySelector('output.now').textContent) && !document.querySelector('output.stale')`

// inked counts the drawn pixels of the plot at its right end, where now is.
const inked = `(() => { const c = document.querySelector('.plot canvas');
	const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });
	copy.drawImage(c, 0, 0);
	const d = copy.getImageData(Math.round(c.width * 0.95), 10, Math.round(c.width * 0.04), Math.round(c.height * 0.7)).data;
	let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 200; return n })()`

// Somebody looks at a bench: free, taken, free again with the way to the task; its
// monitor is killed and comes back. Then the report on the task, and its sensor.
func TestLiveInBrowser(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := openPage(t, r.pageOf(r.address))
	b.visit("#/live", `location.hash.includes('/live/') && `+watching) // the only one is shown at once
	b.until(`document.querySelector('h1 .badge').textContent === 'free' && ` + inked + ` > 20`)
	idle := b.watts()
	b.bench(r)
	if w := says[float64](b, `[...document.querySelectorAll('.rails tbody tr')].reduce((s, r) => s + parseFloat(r.cells[1].textContent), 0)`); w < 5 {
		t.Errorf("the rails show %v W together", w)
	}

	b.arms(2 * idle)
	work, end := r.working("gemm")
	b.triggered(2 * idle)
	b.until(`document.querySelector('h1 .badge').textContent === 'measuring' && document.querySelector('[aria-label=Who] a')`)
	who := b.text("[aria-label=Who]")
	if !regexp.MustCompile(`Held by\s+\S+@\S+\s+since\s+\d{4}-.*\(\d+ s\)\s+Task\s+gemm \(task 1\)`).MatchString(who) || !strings.Contains(who, "nobody") {
		t.Errorf("who: %q", who)
	}
	b.until(`parseFloat(document.querySelector('output.now').textContent) > ` + strconv.FormatFloat(3*idle, 'f', 1, 64))
	if heard := says[string](b, `document.getElementById('announce').textContent`); !strings.Contains(heard, "is held by") {
		t.Errorf("who listens hears %q", heard)
	}
	b.shot("live-held")
	end()
	if code := work.wait(t); code != 0 {
		t.Fatalf("a viewer disturbed the measurement: exit code %d\n%s", code, &work.err)
	}
	b.until(`document.querySelector('h1 .badge').textContent === 'free' && document.querySelector('[aria-label=Who]').innerText.includes('Last') && ` + watching)
	b.click(`[aria-label=Who] a[href="#/task/1"]`)
	b.until(`location.hash.startsWith('#/task/1') && document.querySelector('h1').innerText.includes('gemm')`)
	b.visit("#/tasks", `document.querySelector('tbody a[href="#/task/1"]')`)

	b.records(r)
	b.away(r)
	b.reported(r)
}

// records starts and stops a recording by hand, and follows the link to its task.
func (b *tab) records(r *rig) {
	b.Helper()
	const form = `form[aria-label="Record the bench"]`
	b.visit("#/live/"+r.address, watching)
	b.until(`document.querySelector('` + form + `').checkVisibility()`)
	b.do(chromedp.SendKeys(chromedp.CSS(form+" input"), "idle, door open\r"))
	b.until(`document.querySelector('h1 .badge').textContent === 'measuring' && document.querySelector('` + form + `').nextSibling.textContent.startsWith('Records task')`)
	b.until(`document.querySelector('` + form + ` button').textContent === 'Stop recording' && document.querySelector('[aria-label=Who]').innerText.includes('idle, door open')`)
	b.shot("live-records")
	b.click(form + " button")
	b.until(`document.querySelector('` + form + `').nextSibling.textContent.startsWith('Recorded: task')`)
	b.click(form + " + div a")
	b.until(`document.querySelector('h1').innerText.includes('idle, door open') && document.querySelector('#energy').value > 0 && document.querySelector('.badge.complete')`)
}

// watts are what the page shows now.
func (b *tab) watts() float64 {
	b.Helper()
	return says[float64](b, `parseFloat(document.querySelector('output.now').textContent)`)
}

// bench checks what is told of the bench, and that the picture can be held by a key.
func (b *tab) bench(r *rig) {
	b.Helper()
	about := b.text("[aria-label=Bench]")
	for _, w := range []string{r.address, "PowerSensor3", "20.00 kS/s", "Calibration", "all that was measured was fetched"} {
		if !strings.Contains(about, w) {
			b.Errorf("%q is not told: %q", w, about)
		}
	}
	b.do(chromedp.KeyEvent("p"))
	b.until(`document.querySelector('button[aria-pressed=true].held, button[aria-pressed=true]') && document.body.innerText.includes('Held: go on')`)
	b.do(chromedp.KeyEvent("p"))
	b.until(`!document.body.innerText.includes('Held: go on')`)
	b.click(`button[data-value="30"]`)
	b.until(`location.hash.endsWith('?span=30')`)
	b.click(`button[data-value="60"]`)
}

// away kills the monitor and starts it again, before the eyes of who watches.
func (b *tab) away(r *rig) {
	b.Helper()
	b.visit("#/live/"+r.address, watching)
	r.monitor.kill(r.t)
	b.until(`document.querySelector('h1 .badge').textContent === 'away' && document.querySelector('[role=alert]').innerText.includes('is wattmark monitor running there?')`)
	b.until(`document.querySelector('output.now').textContent === '–'`)
	r.startMonitor(r.address)
	b.until(`document.querySelector('h1 .badge').textContent === 'free' && !document.querySelector('[role=alert]') && ` + watching)
}

// reported looks at the report on the task, and at what is known of its sensor.
func (b *tab) reported(r *rig) {
	b.Helper()
	db, err := store.Open(r.t.Context(), r.db)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	content, err := json.Marshal(sensor.Profile{
		Field: "instant", GPU: "simulated GPU", UUID: "GPU-1", Model: sensor.Boxcar, Period: 0.1, UPeriod: 55e-6, Window: 0.025, UWindow: 0.0005, Gain: 1.01, UGain: 0.002,
		Calibrated: true, Seen: 0.25, USeen: 0.005,
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := db.PutAnalysis(r.t.Context(), store.Analysis{Kind: sensor.Kind, Name: "GPU-1 instant", Made: time.Now(), Maker: "test", Content: content, Tasks: []store.TaskID{1}}); err != nil {
		b.Fatal(err)
	}
	inside(r.t, "validate", "1", "--db", r.db, "--save-as", "first").ok(r.t)
	b.visit("#/reports", `document.querySelector('.saved') && document.querySelector('tbody a[href="#/reports/1"]')`)
	b.click(`tbody a[href="#/reports/1"]`)
	b.until(`document.querySelector('.verdict') && ` + inked + ` > 20`)
	if verdict := b.text(".verdict"); !strings.Contains(verdict, "%") {
		b.Errorf("the verdict is %q", verdict)
	}
	methods := b.text("[aria-label=Methods]")
	for _, w := range []string{"instant", "average", "counter", "within"} {
		if !strings.Contains(methods, w) {
			b.Errorf("%q is not told of the methods: %q", w, methods)
		}
	}
	b.visit("#/sensors", `document.querySelector('.profile')`)
	card := b.text(".profile")
	for _, w := range []string{"25.0 %", "100.000 ± 0.055 ms", "25.00 ± 0.50 ms", "1.0100 ± 0.0020", "task 1"} {
		if !strings.Contains(card, w) {
			b.Errorf("%q is not told of the sensor: %q", w, card)
		}
	}
	b.until(`[...document.querySelectorAll('tbody th')].some(e => e.innerText === 'counter')`)
	b.visit("#/reports/99", `document.querySelector('[role=alert]').innerText.includes('no such task')`)
	b.expect("404")
}

// arms makes the picture stop once the power rises through a level.
func (b *tab) arms(level float64) {
	b.Helper()
	says[bool](b, fmt.Sprintf(`(() => {
		const [mode] = document.querySelectorAll('[aria-label=Trigger] select'), level = document.querySelector('[aria-label=Trigger] input'), change = (e, v) => { e.value = v; e.dispatchEvent(new Event('change')) };
		[...document.querySelectorAll('[aria-label="Time shown"] button')].find(x => x.textContent === '1 s').click();
		change(level, %v); change(mode, 'single');
		return true })()`, level))
	b.until(`document.querySelector('[aria-label=Trigger] [role=status]').textContent === 'Armed'`)
}

// triggered looks at the picture that stopped: a fifth of it is before the rise; cursors read joules in it; the counter goes on.
func (b *tab) triggered(level float64) {
	b.Helper()
	b.until(`document.querySelector('[aria-label=Trigger] [role=status]').textContent.startsWith('Triggered') && [...document.querySelectorAll('button')].some(x => x.textContent === 'Held: go on')`)
	// A busy machine loses some of what is shown, and there are no joules across a hole: between some two cursors there are.
	mean, err := chromedp.Run(b.ctx, chromedp.Evaluate[float64](`(async () => {
		const [x, y] = document.querySelectorAll('.live .cursors input'), put = (e, v) => { e.value = v; e.dispatchEvent(new Event('change')) };
		for (const length of [0.5, 0.2, 0.1]) for (let from = -0.75; from + length < -0.02; from += length) {
			put(x, from); put(y, from + length);
			await new Promise(done => setTimeout(done, 200));
			const joules = Number(document.querySelector('.between .value')?.value);
			if (joules > 0) return joules / length;
		}
		return 0 })()`, chromedp.EvalAwaitPromise))
	if err != nil || mean < level || mean > 20*level {
		b.Errorf("%v W between two cursors, %v; the trigger was at %v W", mean, err, level)
	}
	counted := says[string](b, `document.querySelector('[aria-label="Energy counted"]').textContent`)
	b.until(`document.querySelector('[aria-label="Energy counted"]').textContent !== ` + strconv.Quote(counted))
	says[bool](b, `(document.querySelector('.live details').open = true)`)
	b.until(`document.querySelector('.sketch.spectrum path')`)
	b.shot("live-triggered")
	b.click(`.live button[aria-pressed=true]:not([data-value])`)
	b.until(`![...document.querySelectorAll('button')].some(x => x.textContent === 'Held: go on')`)
}

// expect takes complaints that belong to the test away.
func (b *tab) expect(part string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var rest []string
	for _, c := range b.list {
		if !strings.Contains(c, part) {
			rest = append(rest, c)
		}
	}
	if len(rest) == len(b.list) {
		b.Errorf("nothing says %q", part)
	}
	b.list = rest
}

// Of several benches there is an overview; one that is away does not hide the others.
func TestSeveralBenchesInBrowser(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	b := openPage(t, r.pageOf("127.0.0.1:1", r.address))
	b.visit("#/live", `document.querySelectorAll('.bench').length === 2`)
	b.until(`[...document.querySelectorAll('.bench .badge')].map(e => e.textContent).join() === 'away,free'`)
	b.until(`document.querySelector('.bench:last-child a').pressed = true`)
	work, end := r.working("gemm")
	b.until(`document.querySelectorAll('.bench')[1].innerText.includes('gemm by') && parseFloat(document.querySelectorAll('.bench output')[1].textContent) > 5`)
	end()
	if code := work.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.until(`document.querySelectorAll('.bench .badge')[1].textContent === 'free'`)
	if !says[bool](b, `!!document.querySelector('.bench:last-child a').pressed`) {
		b.Error("the way to the bench was replaced as the bench changed hands: a press of it is lost")
	}
	b.click(`.bench:last-child a`)
	b.until(watching + ` && document.querySelectorAll('.tabs a').length === 3`)
}
