package page

import (
	"bytes"
	"context"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/wattmark/wattmark/internal/chromium"
)

// browser opens a tab that collects complaints and requests.
func browser(t *testing.T) (ctx context.Context, complaints func() []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), chromium.Patience)
	t.Cleanup(cancel)
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium.Path(t)), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.DisableGPU, chromedp.WSURLReadTimeout(chromium.Patience)) // a loaded machine takes longer than chromedp waits by itself
	ctx, cancel = chromedp.NewExecAllocator(ctx, o...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	var mu sync.Mutex
	var list []string
	err := chromedp.Listen(ctx, func(e any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			list = append(list, "exception: "+e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			list = append(list, "console: "+string(e.Type))
		case *log.EventEntryAdded:
			list = append(list, "log: "+e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, "file://") && u != "data:," {
				list = append(list, "request: "+u)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	_, errNet := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	_, errLog := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	if err := errors.Join(errNet, errLog); err != nil {
		t.Fatal(err)
	}
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

// seen is what a look at the page tells.
type seen struct {
	Plots      int    `json:"plots"`
	Drawn      int    `json:"drawn"` // plots of a size, with lines and text within
	Background string `json:"background"`
	Ink        string `json:"ink"`     // of the verdict
	AxisInk    string `json:"axisInk"` // of the plots' text
	Verdict    string `json:"verdict"`
	Overflow   bool   `json:"overflow"` // the page is wider than the window
	Rows       int    `json:"rows"`
}

const look = `(() => {
	const plots = [...document.querySelectorAll('figure svg')];
	const style = e => getComputedStyle(e);
	return {
		plots: plots.length,
		drawn: plots.filter(s => { const b = s.getBoundingClientRect(); return b.width > 200 && b.height > 150 && s.querySelectorAll('path').length > 10 && s.querySelectorAll('text').length > 8 }).length,
		background: style(document.body).backgroundColor,
		ink: style(document.querySelector('.verdict')).color,
		axisInk: style(plots[0].querySelector('text')).fill,
		verdict: document.querySelector('.verdict').innerText,
		overflow: document.documentElement.scrollWidth > document.documentElement.clientWidth,
		rows: document.querySelectorAll('table.methods tbody tr').length,
	} })()`

// visit loads a page into a window of a width and looks at it.
func visit(ctx context.Context, t *testing.T, path string, width int64) seen {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 1000), chromedp.Navigate("file://"+path)); err != nil {
		t.Fatal(err)
	}
	s, err := chromedp.Run(ctx, chromedp.Evaluate[seen](look))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A browser shows the page in both themes: no complaint, no request, all plots
// drawn, and ink that stands out from the ground.
func TestInBrowser(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.html")
	if err := os.WriteFile(path, []byte(written(t, sample(t, "task 7", nasty))), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, complaints := browser(t)
	grounds := map[string]string{}
	for _, theme := range []string{"light", "dark"} {
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
		}); err != nil {
			t.Fatal(err)
		}
		s := visit(ctx, t, path, 1300)
		shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		if err != nil {
			t.Fatal(err)
		}
		if s.Plots != 4 || s.Drawn != 4 || s.Rows != 8 || s.Overflow || !strings.Contains(s.Verdict, "instant reads") {
			t.Errorf("%s: %+v", theme, s)
		}
		if c := contrast(t, s.Ink, s.Background); c < 7 {
			t.Errorf("%s: ink %s on %s has a contrast of %.1f", theme, s.Ink, s.Background, c)
		}
		if c := contrast(t, s.AxisInk, s.Background); c < 7 {
			t.Errorf("%s: axes %s on %s have a contrast of %.1f", theme, s.AxisInk, s.Background, c)
		}
		if img, err := png.Decode(bytes.NewReader(shot)); err != nil || img.Bounds().Dy() < 1500 {
			t.Errorf("%s: a picture of %v, %v", theme, img.Bounds(), err)
		}
		if to := os.Getenv("WATTMARK_SCREENSHOTS"); to != "" {
			if err := os.WriteFile(filepath.Join(to, "validate-"+theme+".png"), shot, 0o600); err != nil {
				t.Error(err)
			}
		}
		grounds[theme] = s.Background
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("both themes have the ground %s", grounds["light"])
	}
	s := visit(ctx, t, path, 390)
	if s.Overflow || s.Drawn != 4 {
		t.Errorf("on a telephone: %+v", s)
	}
	for _, c := range complaints() {
		t.Errorf("the browser complains: %s", c)
	}
}
