//go:build cgo

package main

// int wattmark_at_exit(void);
import "C"

import (
	"fmt"
	"os"

	"wattmark/hostagent/cupti"
)

// InitializeInjection is called by libcuda when a program initialises it with
// CUDA_INJECTION64_PATH naming this library: it records the program's kernels into
// the folder that WATTMARK_AUTO names. Whatever fails, the program runs on; the
// log says why there is nothing in it. It returns 1, as libcuda expects.
//
//export InitializeInjection
func InitializeInjection() C.int {
	dir := os.Getenv(cupti.EnvLogs)
	if dir == "" {
		return 1
	}
	onLaunch, err := selection()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wattmark: no kernels are bracketed:", err)
	}
	if err := cupti.Attach(dir, cupti.Options{OnLaunch: onLaunch}); err != nil {
		fmt.Fprintln(os.Stderr, "wattmark: kernels are not recorded:", err)
		return 1
	}
	if C.wattmark_at_exit() != 0 {
		fmt.Fprintln(os.Stderr, "wattmark: the last kernels before the program's end may be missing: atexit failed")
	}
	return 1
}

// wattmark_detach is called at the process's end, by inject.c.
//
//export wattmark_detach
func wattmark_detach() {
	if selected != nil {
		selected.tell()
	}
	if err := cupti.Detach(); err != nil {
		fmt.Fprintln(os.Stderr, "wattmark: kernels may be missing:", err)
	}
}
