//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/chromium"
)

// pageScripts are what the page's visitors do, in JavaScript.
const pageScripts = "testdata/page"

// pageModules is the folder where make page-tools has put what the scripts need
// (Playwright, axe-core, Lighthouse). It is none of the tree.
func pageModules(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("WATTMARK_PAGE_TOOLS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "wattmark-page-tools")
	}
	want, err := os.ReadFile(filepath.Join(pageScripts, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	// The lock is copied there last, when all is installed.
	have, err := os.ReadFile(filepath.Join(dir, "installed-lock.json"))
	if err == nil && bytes.Equal(have, want) {
		return dir
	}
	const reason = "what the page's tests need is not installed, or of other versions: make page-tools"
	if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

// pageSetup is what a script is told.
type pageSetup struct {
	URL      string   `json:"url"`
	Chromium string   `json:"chromium"`
	Modules  string   `json:"modules"`
	Shots    string   `json:"shots,omitempty"`   // where pictures are kept; empty for none
	Figures  string   `json:"figures,omitempty"` // where measured times are written
	Tasks    int      `json:"tasks"`             // how many there are
	Run      []string `json:"run,omitempty"`     // measures another one
	Views    []view   `json:"views,omitempty"`   // to look at
	Port     int      `json:"port,omitempty"`    // for Lighthouse to reach its browser at
	Dense    []int64  `json:"dense,omitempty"`   // tasks without a hole
	Gaps     []gapIn  `json:"gaps"`              // tasks that lost samples, and when
	Tokens   *tokens  `json:"tokens,omitempty"`  // of a page that asks who is there
	Missing  []string `json:"missing,omitempty"` // paths whose answers are errors, as they should be
}

// tokens are what visitors give: one that is known, and others by what is wrong with them.
type tokens struct {
	Good  string            `json:"good"`
	Wrong map[string]string `json:"wrong"`
}

// view is an address of the page behind its origin, and an expression that is true once it shows.
type view struct {
	Name  string `json:"name"`
	At    string `json:"at"`
	There string `json:"there"`
}

// browsers has room for those that run at once: each takes a processor.
var browsers = make(chan struct{}, 2)

// visitPage runs a script before a page, in a browser of its own.
func visitPage(t *testing.T, script string, setup pageSetup) {
	t.Helper()
	browsers <- struct{}{}
	defer func() { <-browsers }()
	node := tool(t, "node")
	setup.Chromium, setup.Modules, setup.Shots = chromium.Path(t), pageModules(t), os.Getenv("WATTMARK_SCREENSHOTS")
	said, err := json.Marshal(setup)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(pageScripts, script))
	cmd.Env = append(os.Environ(), "WATTMARK_PAGE="+string(said))
	// Playwright ends its browser when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s:\n%s", script, out)
	if err != nil {
		t.Errorf("%s: %v", script, err)
	}
}
