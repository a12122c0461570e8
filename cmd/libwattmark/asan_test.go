package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The library and the program that drives it under AddressSanitizer: what Go
// writes into the program's memory, and the C side in between.
func TestUnderAddressSanitizer(t *testing.T) {
	if testing.Short() {
		t.Skip("a second build of the library")
	}
	r := newRig(t)
	dir := t.TempDir()
	drive := append(compile(dir, "drive"), "-g", "-fsanitize=address", "testdata/drive.c", "-L"+dir, "-L"+r.dir, "-lwattmark", "-l:libcuda.so.1", "-lpthread")
	for _, c := range [][]string{
		{"go", "build", "-asan", "-buildmode=c-shared", "-trimpath", "-o", filepath.Join(dir, "libwattmark.so"), "."},
		drive,
	} {
		cmd := exec.CommandContext(t.Context(), c[0], c[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(c, " "), err, out)
		}
	}
	// Leaks are not looked for: Go's runtime keeps threads and memory to the end.
	r.more = []string{"LD_LIBRARY_PATH=" + dir + ":" + r.dir, "ASAN_OPTIONS=detect_leaks=0:abort_on_error=0"}
	const report = "ERROR: AddressSanitizer"
	for _, name := range []string{"plain", "two", "threads", "misuse", "paper", "daemon plain", "daemon two", "daemon misuse", "daemon paper"} {
		r.db = filepath.Join(t.TempDir(), "power.db")
		r.open() // makes it: the instrumented SQLite takes long for that
		r.host = "none"
		name, through := strings.CutPrefix(name, "daemon ")
		if through {
			r.startHost()
		}
		o := finish(t, r.command(filepath.Join(dir, "drive"), name))
		// 9: a machine so slow that a marker was spoilt, which is not the matter here.
		if (o.code != 0 && o.code != 9) || strings.Contains(o.err, report) {
			t.Errorf("%s: exit code %d\n%s", name, o.code, o.err)
		}
	}
	// That it would have told is shown by a result that is too small.
	r.db = filepath.Join(t.TempDir(), "power.db")
	r.open()
	o := finish(t, r.command(filepath.Join(dir, "drive"), "overrun"))
	if !strings.Contains(o.err, report) {
		t.Errorf("a result that is too small went unnoticed: exit code %d\n%s", o.code, o.err)
	}
}
