// Package chromium finds the browser that tests look at pages with.
package chromium

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
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
