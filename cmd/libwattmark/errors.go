//go:build cgo

package main

// #include "wattmark.h"
import "C"

import (
	"errors"

	"github.com/wattmark/wattmark/hostagent/daemon"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// The library's own errors.
var (
	errArgument   = errors.New("wrong argument")
	errHandle     = errors.New("no such measurement")
	errIncomplete = errors.New("the task is not complete")
	errDatabase   = errors.New("task database")
	errState      = errors.New("call out of order")
)

// codes are looked through in order: the cause nearest to the user's hand first.
var codes = []struct {
	err  error
	code C.int
}{
	{errArgument, C.WM_E_ARGUMENT},
	{measure.ErrText, C.WM_E_ARGUMENT},
	{errHandle, C.WM_E_HANDLE},
	{daemon.ErrPlace, C.WM_E_ARGUMENT},
	{daemon.ErrRefused, C.WM_E_ARGUMENT},
	{daemon.ErrUnreachable, C.WM_E_HOST},
	{daemon.ErrLost, C.WM_E_HOST},
	{errState, C.WM_E_STATE},
	{measurement.ErrOrder, C.WM_E_STATE},
	{monitorclient.ErrBusy, C.WM_E_BUSY},
	{monitorclient.ErrUnreachable, C.WM_E_MONITOR},
	{monitorclient.ErrGone, C.WM_E_MONITOR},
	{monitorclient.ErrMismatch, C.WM_E_MONITOR},
	{measurement.ErrBench, C.WM_E_BENCH},
	{measurement.ErrWrongGPU, C.WM_E_BENCH},
	{cuda.ErrNoDriver, C.WM_E_GPU},
	{cuda.ErrNoDevice, C.WM_E_GPU},
	{measurement.ErrSelection, C.WM_E_GPU},
	{cuda.ErrStream, C.WM_E_GPU},
	{cuda.ErrCUDA, C.WM_E_GPU},
	{gpu.ErrMIG, C.WM_E_GPU},
	{daemon.ErrProgram, C.WM_E_GPU},
	{errDatabase, C.WM_E_DATABASE},
	{daemon.ErrDatabase, C.WM_E_DATABASE},
	{store.ErrNotFound, C.WM_E_DATABASE},
	{store.ErrConflict, C.WM_E_DATABASE},
	{store.ErrCorrupt, C.WM_E_DATABASE},
	{store.ErrFull, C.WM_E_DATABASE},
	{store.ErrIO, C.WM_E_DATABASE},
	{store.ErrBusy, C.WM_E_DATABASE},
	{store.ErrReadOnly, C.WM_E_DATABASE},
	{errIncomplete, C.WM_E_INCOMPLETE},
	{measurement.ErrCancelled, C.WM_E_CANCELLED},
}

// codeOf returns the code of the first cause in codes that err wraps, else WM_E_FAILED.
func codeOf(err error) C.int {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return C.WM_E_FAILED
}
