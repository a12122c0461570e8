//go:build cgo

package main

// #include <stdint.h>
// int wattmark_at_exit(void);
// int wattmark_watch(const uintptr_t functions[4]);
// void wattmark_unwatch(void);
import "C"

import (
	"fmt"
	"os"
	"syscall"

	"github.com/wattmark/wattmark/hostagent/gpu/cupti"
)

// InitializeInjection is called by libcuda when a program initialises it with
// CUDA_INJECTION64_PATH naming this library: it records the program's kernels into
// the folder that WATTMARK_AUTO names. Whatever fails, the program runs on; the
// log holds the reason. It returns 1, as libcuda expects.
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
	if err := cupti.Attach(dir, cupti.Options{OnLaunch: onLaunch, Watch: watch}); err != nil {
		fmt.Fprintln(os.Stderr, "wattmark: kernels are not recorded:", err)
		return 1
	}
	if C.wattmark_at_exit() != 0 {
		fmt.Fprintln(os.Stderr, "wattmark: the last kernels before the program's end may be missing: atexit failed")
	}
	return 1
}

// watched are the targets of guard.c's calls, in its order of them.
var watched = [...]func(){cupti.Yield, cupti.Yield, cupti.Unsubscribe, cupti.Flushed}

func watch(c cupti.Calls) error {
	functions := [len(watched)]C.uintptr_t{
		C.uintptr_t(c.Register), C.uintptr_t(c.Clock), C.uintptr_t(c.Subscribe),
		C.uintptr_t(c.Flush),
	}
	if errno := C.wattmark_watch(&functions[0]); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}

// wattmark_yield is called by guard.c when the program itself calls CUPTI for the
// first time, before that call goes on.
//
//export wattmark_yield
func wattmark_yield(call C.int) { watched[call]() }

// wattmark_detach is called at the process's end, by inject.c.
//
//export wattmark_detach
func wattmark_detach() {
	C.wattmark_unwatch()
	if selected != nil {
		selected.report()
	}
	if err := cupti.Detach(); err != nil {
		fmt.Fprintln(os.Stderr, "wattmark: kernels may be missing:", err)
	}
}
