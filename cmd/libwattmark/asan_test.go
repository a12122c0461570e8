//go:build slow

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
	t.Parallel()
	stand := library(t)
	dir := t.TempDir()
	drive := append(compile(dir, "drive"), "-g", "-fsanitize=address", "testdata/drive.c", "-L"+dir, "-L"+stand, "-lwattmark", "-l:libcuda.so.1", "-lpthread")
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
	const report = "ERROR: AddressSanitizer"
	for _, name := range []string{"plain", "two", "threads", "misuse", "paper", "overrun", "daemon plain", "daemon misuse"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			// Leaks are not looked for: Go's runtime keeps threads and memory to the end.
			r.more = []string{"LD_LIBRARY_PATH=" + dir + ":" + r.dir, "ASAN_OPTIONS=detect_leaks=0:abort_on_error=0", "LEASE_MS=60000"}
			r.open() // makes it: the instrumented SQLite takes long for that
			name, through := strings.CutPrefix(name, "daemon ")
			if through {
				r.startHost()
			}
			o := finish(t, r.command(filepath.Join(dir, "drive"), name))
			for range 2 { // three measurements at once are spoilt more often than one: again, until none is
				if name != "threads" || o.code != 9 {
					break
				}
				o = finish(t, r.command(filepath.Join(dir, "drive"), name))
			}
			told := strings.Contains(o.err, report)
			if name == "overrun" { // a result that is too small shows that it would have told
				if !told {
					t.Errorf("a result that is too small went unnoticed: exit code %d\n%s", o.code, o.err)
				}
				return
			}
			// 9: a machine so slow that a marker was spoilt, which is not the matter here.
			if (o.code != 0 && (o.code != 9 || name == "threads")) || told {
				t.Errorf("exit code %d\n%s", o.code, o.err)
			}
		})
	}
}
