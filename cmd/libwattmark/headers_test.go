package main_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Both headers stand alone, twice included, in C99 and C++17, and every
// function that they declare is in the library under its own name.
func TestHeaders(t *testing.T) {
	dir := library(t)
	for _, header := range []string{"wattmark.h", "power.h"} {
		source := "#include \"" + header + "\"\n#include \"" + header + "\"\nint main(void) { return 0; }\n"
		for _, lang := range [][]string{{"gcc", "c", "c99"}, {"g++", "c++", "c++17"}} {
			if _, err := exec.LookPath(lang[0]); err != nil {
				skipTool(t, "no "+lang[0])
			}
			c := exec.CommandContext(t.Context(), lang[0], "-x", lang[1], "-std="+lang[2], "-Wall", "-Wextra", "-Werror", "-pedantic", "-I.", "-c", "-o", os.DevNull, "-")
			c.Stdin = strings.NewReader(source)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s as %s: %v\n%s", header, lang[2], err, out)
			}
		}
	}
	// Taking every function's address links only where it is there.
	names := []string{
		"wm_options_init", "wm_begin", "wm_marker", "wm_end", "wm_cancel", "wm_error", "wm_code_text",
		"P_marker", "P_startMonitor", "P_stopMonitor", "P_waitData", "P_receiveData", "P_storeData", "P_half_test", "P_compute_test",
		"P_memory_test", "P_getError", "dbOpen", "dbReadByID", "dbReadByTaskName", "dbGetUser", "dbGetTaskByUser", "dbDeleteByID",
		"dbDeleteByTaskName", "dbDeleteByUser", "dbClose",
	}
	source := "#include \"wattmark.h\"\n#include \"power.h\"\ntypedef void (*F)(void);\nint main() { F all[] = {"
	for _, n := range names {
		source += "(F)" + n + ", "
	}
	source += "}; for (F f : all) if (!f) return 1; return wm_begin(0, 0, 0, 0) == WM_E_ARGUMENT && wm_error()[0] ? 0 : 2; }\n"
	program := filepath.Join(t.TempDir(), "all")
	c := exec.CommandContext(t.Context(), "g++", "-x", "c++", "-std=c++17", "-I.", "-o", program, "-", "-L"+dir, "-lwattmark")
	c.Stdin = strings.NewReader(source)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), program)
	run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The library's name for the loader has the version of its interface: programs that were linked
// stay with it when another one is installed beside.
func TestSoname(t *testing.T) {
	f, err := elf.Open(filepath.Join(library(t), "libwattmark.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if names, err := f.DynString(elf.DT_SONAME); err != nil || len(names) != 1 || names[0] != "libwattmark.so.0" {
		t.Errorf("%v, %v", names, err)
	}
}

// A program that is linked but does not measure opens nothing: no driver, no
// socket, no file.
func TestLinkedButNotMeasuring(t *testing.T) {
	dir := library(t)
	const source = `#include <stdio.h>
#include "wattmark.h"
int main(void) {
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "r");
  volatile int never = 0;
  if (never) wm_cancel(1);
  while (fgets(line, sizeof line, maps)) fputs(line, stdout);
  fclose(maps);
  return 0;
}`
	program := filepath.Join(t.TempDir(), "linked")
	c := exec.CommandContext(t.Context(), "gcc", "-x", "c", "-std=c99", "-I.", "-o", program, "-", "-L"+dir, "-lwattmark")
	c.Stdin = strings.NewReader(source)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), program)
	run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	out, err := run.Output()
	if err != nil || !strings.Contains(string(out), "libwattmark.so") {
		t.Fatalf("%v: %s", err, out)
	}
	for _, lib := range []string{"libcuda", "libnvidia"} {
		if strings.Contains(string(out), lib) {
			t.Errorf("%s is loaded", lib)
		}
	}
}
