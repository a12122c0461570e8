package page_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/wattmark/wattmark/internal/chromium"
	"github.com/wattmark/wattmark/internal/coverage"
)

// browser starts a browser; tabs are opened in it.
func browser(t *testing.T) context.Context {
	t.Helper()
	// A loaded machine takes longer to start a browser than chromedp waits by itself.
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium.Path(t)), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.DisableGPU, chromedp.WSURLReadTimeout(chromium.Patience))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), o...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// TestInBrowser tries the page in one browser, from the database up.
func TestInBrowser(t *testing.T) {
	coverage.Long(t)
	chrome := browser(t)
	for _, c := range []struct {
		name string
		try  func(*testing.T, context.Context)
	}{{"links", links}, {"touches", touches}, {"formats", formats}, {"empty and gone", emptyAndGone}, {"follows", follows}, {"kernels", kernels}, {"ranges", ranges}, {"requests", requests}, {"labels", labels}} {
		if testing.Short() && c.name != "links" {
			continue // for races of the server one visit is enough, and a browser is slow beside them
		}
		t.Run(c.name, func(t *testing.T) { c.try(t, chrome) })
	}
}

// tab is one page of a site, and what its browser complains about.
type tab struct {
	*testing.T
	ctx    context.Context
	site   *site
	mu     sync.Mutex
	list   []string
	expect []string // parts of complaints that belong to the test
}

// open opens a tab of a width at a view of a site. When the test is over, every
// complaint and every request to elsewhere fails it.
func open(t *testing.T, browser context.Context, s *site, view string, width int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	b := &tab{T: t, ctx: ctx, site: s}
	t.Cleanup(func() {
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.list {
			if !slices.ContainsFunc(b.expect, func(part string) bool { return strings.Contains(c, part) }) {
				t.Errorf("the browser complains: %s", c)
			}
		}
	})
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	_, errNet := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	_, errLog := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	err := errors.Join(errNet, errLog, chromedp.Do(ctx, chromedp.EmulateViewport(width, 1000), chromedp.Navigate(s.url+"/"+view)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// heard notes complaints and requests.
func (b *tab) heard(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		b.list = append(b.list, "exception: "+text)
	case *runtime.EventConsoleAPICalled:
		b.list = append(b.list, "console: "+string(e.Type))
	case *log.EventEntryAdded:
		b.list = append(b.list, "log: "+e.Entry.Text+" "+e.Entry.URL)
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; !strings.HasPrefix(u, b.site.url+"/") && u != "about:blank" && !strings.HasPrefix(u, "data:") {
			b.list = append(b.list, "request: "+u)
		}
	}
}

// click clicks an element, once it is there.
func (b *tab) click(selector string) {
	b.Helper()
	b.until(chromium.Click(selector))
}

// do runs steps.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, chromium.Patience)
	defer cancel()
	if err := chromium.Do(ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// is evaluates an expression.
func is[T any](b *tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.Helper()
	wait := `new Promise(done => { const look = () => { let ok = false; try { ok = ` + expression + ` } catch {} ok ? done(true) : setTimeout(look, 10) }; look() })`
	ctx, cancel := context.WithTimeout(b.ctx, chromium.Patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](wait, chromedp.EvalAwaitPromise)); err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 1500)`))
		b.Fatalf("waiting for %s: %v; the page says:\n%s", expression, err, text)
	}
}

// shot keeps a picture where WATTMARK_SCREENSHOTS names a folder.
func (b *tab) shot(name string) {
	b.Helper()
	to := os.Getenv("WATTMARK_SCREENSHOTS")
	if to == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(to, name+".png"), png, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// rests tells whether a task's plot is what was last asked for, and the address says it.
const rests = `!document.querySelector('.plot').hasAttribute('aria-busy')`

// drawn tells whether a plot shows something: enough of it is inked.
const drawn = `(() => { const c = document.querySelector('.plot canvas'); if (!c || !document.querySelector('.legend li, .between')) return false;
	const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });
	copy.drawImage(c, 0, 0);
	const d = copy.getImageData(Math.round(c.width * 0.3), 0, Math.round(c.width * 0.6), Math.round(c.height * 0.7)).data;
	let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 150; return n > 200 })()`
