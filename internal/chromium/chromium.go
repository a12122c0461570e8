// Package chromium finds the browser that tests look at pages with.
package chromium

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/chromedp"
)

// Patience bounds what a test waits for the browser: only what hangs reaches it.
const Patience = 5 * time.Minute

// Path returns a program that starts Chromium; each test has one of its own. Without Chromium it skips the test,
// or fails it where WATTMARK_REQUIRE_TOOLS is 1. Chromium raises its own priority where it may, as root does: the
// program takes that right from it, so that measurements in real time beside it have their share of the processors.
func Path(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("chromium-headless-shell") // a third less work: it has no windows
	if err != nil {
		path, err = exec.LookPath("chromium")
	}
	if err != nil {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatalf("%v: apt-get install chromium-headless-shell", err)
		}
		t.Skip(err)
	}
	limit, err := exec.LookPath("setpriv") // util-linux
	if err != nil || os.Geteuid() != 0 {
		return path
	}
	start := filepath.Join(t.TempDir(), "chromium")
	text := fmt.Sprintf("#!/bin/sh\nexec %s --inh-caps=-sys_nice --bounding-set=-sys_nice %s \"$@\"\n", limit, path)
	if err := os.WriteFile(start, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return start
}

// Do runs steps. The page may draw an element anew between the step's search for it and its use, which Chromium
// refuses before it does anything: that step is taken again.
func Do(ctx context.Context, steps ...chromedp.Action[chromedp.Void]) error {
	for _, step := range steps {
		for {
			err := chromedp.Do(ctx, step)
			if e := (*cdproto.Error)(nil); errors.As(err, &e) && strings.Contains(e.Message, "node with given id") && ctx.Err() == nil {
				continue
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// Click returns an expression that clicks an element and is true, once that is there, in view, and covered by nothing.
// Search and click are one turn of the page, which may draw the element anew at any other time.
func Click(selector string) string {
	return fmt.Sprintf(`(e => {
	if (!e || e.disabled) return false;
	e.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
	const r = e.getBoundingClientRect();
	if (!e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2))) return false;
	e.click();
	return true;
})(document.querySelector(%q))`, selector)
}
