//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/wattmark/wattmark/internal/chromium"
)

// tab is a browser's tab on a host's page, and what the browser complains about.
type tab struct {
	*testing.T
	ctx    context.Context
	url    string
	visits int
	mu     sync.Mutex
	list   []string
}

// browser starts the browser of all tabs, each of which has a profile of its own there; only the first call does.
func browser(path string) (context.Context, error) {
	startBrowser.Do(func() {
		o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(filepath.Join(buildDir, "chromium")), chromedp.DisableGPU)
		ctx, stop := chromedp.NewExecAllocator(context.Background(), o...)
		ctx, cancel := chromedp.NewContext(ctx)
		endBrowser = func() { cancel(); stop() }
		running, errBrowser = ctx, chromedp.Do(ctx, chromedp.Navigate("about:blank"))
	})
	return running, errBrowser
}

var (
	startBrowser sync.Once
	running      context.Context
	errBrowser   error
)

// openPage opens the page of a host. When the test is over, every complaint and every
// request to elsewhere fails it.
func openPage(t *testing.T, url string) *tab {
	t.Helper()
	path := chromium.Path(t)
	browsers <- struct{}{}
	t.Cleanup(func() { <-browsers })
	running, err := browser(path)
	if err != nil {
		t.Fatal(err)
	}
	b := &tab{T: t, url: url}
	ctx, close := chromedp.NewContext(running, chromedp.WithNewBrowserContext())
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(ctx, 5*patience) // of a whole visit
	t.Cleanup(func() {
		cancel()
		close()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.list {
			t.Errorf("the browser complains: %s", c)
		}
	})
	if err := chromedp.Listen(b.ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	_, errNet := chromedp.Call(b.ctx, network.Enable, network.EnableParams{})
	_, errLog := chromedp.Call(b.ctx, log.Enable, cdp.Empty{})
	if err := errors.Join(errNet, errLog); err != nil {
		t.Fatal(err)
	}
	b.size(1300)
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
		if u := e.Request.URL; !strings.HasPrefix(u, b.url+"/") && u != "about:blank" && !strings.HasPrefix(u, "data:") {
			b.list = append(b.list, "request: "+u)
		}
	}
}

// do runs steps.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromium.Do(ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// click clicks an element, once it is there.
func (b *tab) click(selector string) {
	b.Helper()
	b.until(chromium.Click(selector))
}

// visit opens a view and waits for it.
func (b *tab) visit(view, there string) {
	b.Helper()
	b.visits++ // another query makes it more than a change of what stands behind #, and leaves it in its process
	b.do(chromedp.Navigate(fmt.Sprintf("%s/?%d%s", b.url, b.visits, view)))
	b.until(there)
}

func (b *tab) size(width int64) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, 900))
}

// says evaluates an expression.
func says[T any](b *tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// text is what an element says.
func (b *tab) text(selector string) string {
	b.Helper()
	return says[string](b, `document.querySelector('`+selector+`')?.innerText ?? ''`)
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.Helper()
	wait := `new Promise(done => { const look = () => { let ok = false; try { ok = ` + expression + ` } catch {} ok ? done(true) : setTimeout(look, 10) }; look() })`
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](wait, chromedp.EvalAwaitPromise)); err != nil {
		b.Fatalf("waiting for %s: %v; the page says:\n%s", expression, err, b.text("body"))
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
