//go:build cgo

package main

/*
#include "wattmark.h"
#include "power.h"
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/store"
)

// paperState is the state of the paper's functions: one measurement at a time.
type paperState struct {
	mu      sync.Mutex
	s       *session // the one in progress
	begun   bool     // its start marker has been played
	ended   bool     // and its stop marker
	stopped bool
	db      *store.DB // dbOpen's; nil for none

	// The last one that P_waitData brought.
	task   store.TaskID
	path   string // of its database
	stored bool
}

var papers paperState

// ask makes a call of the paper and returns its result, or minus an error's code.
func ask(call string, text *C.char, n C.size_t, f func() (int, error)) C.int {
	var out int
	rc := guard(call, text, n, func() (err error) {
		papers.mu.Lock()
		defer papers.mu.Unlock()
		out, err = f()
		return err
	})
	if rc != C.WM_OK {
		return -rc
	}
	return C.int(out)
}

// do makes a call of the paper that has no result.
func do(call string, text *C.char, n C.size_t, f func() error) C.int {
	return ask(call, text, n, func() (int, error) { return 0, f() })
}

//export wmgo_p_start
func wmgo_p_start(text *C.char, n C.size_t) C.int {
	return do("P_startMonitor", text, n, papers.start)
}

func (p *paperState) start() error {
	if p.s != nil {
		return fmt.Errorf("%w: the monitor is started already; P_stopMonitor and P_waitData end that", errState)
	}
	if err := p.drop(); err != nil {
		return err
	}
	q := request{name: cmp.Or(os.Getenv("WATTMARK_TASK"), program()), warmUp: 200 * time.Millisecond}
	if p.db != nil {
		q.database = p.db.Path()
	}
	s, err := open(q)
	if err != nil {
		return err
	}
	p.s, p.begun, p.ended, p.stopped = s, false, false, false
	return nil
}

// drop deletes the last measurement where the program did not want it stored.
func (p *paperState) drop() error {
	id, stored := p.task, p.stored
	p.task = 0
	if id == 0 || stored {
		return nil
	}
	ctx := context.Background()
	db, err := openDatabase(ctx, p.path)
	if err != nil {
		return err
	}
	defer db.Close()
	// One that was pinned meanwhile is wanted after all.
	if err := db.DeleteTask(ctx, id); err != nil && !errors.Is(err, store.ErrNotFound) &&
		!errors.Is(err, store.ErrPinned) {
		return fmt.Errorf("%w: %w", errDatabase, err)
	}
	return nil
}

//export wmgo_p_marker
func wmgo_p_marker(text *C.char, n C.size_t) C.int {
	return do("P_marker", text, n, papers.marker)
}

func (p *paperState) marker() error {
	switch {
	case p.s == nil:
		return fmt.Errorf("%w: call P_startMonitor first", errState)
	case !p.begun:
		p.begun = true
		return p.s.m.Begin()
	case !p.ended:
		p.ended = true
		return p.s.m.End()
	}
	return fmt.Errorf("%w: both markers have been played", errState)
}

//export wmgo_p_stop
func wmgo_p_stop(text *C.char, n C.size_t) C.int {
	return do("P_stopMonitor", text, n, papers.stop)
}

func (p *paperState) stop() error {
	switch {
	case p.s == nil:
		return fmt.Errorf("%w: call P_startMonitor first", errState)
	case p.stopped:
		return fmt.Errorf("%w: the monitor is stopped already", errState)
	case !p.ended:
		s := p.s
		p.s = nil
		return errors.Join(fmt.Errorf(
			"%w: a measurement is between two calls of P_marker; it is given up, and its task is incomplete", errState),
			s.abandon())
	}
	p.stopped = true
	return p.s.m.Stopped()
}

//export wmgo_p_wait
func wmgo_p_wait(text *C.char, n C.size_t) C.int {
	return ask("P_waitData", text, n, func() (int, error) {
		id, err := papers.wait()
		if id != 0 && errors.Is(err, errIncomplete) {
			putText(text, int(n), "P_waitData: "+err.Error()) // a remark: the data can be read
			err = nil
		}
		return id, err
	})
}

func (p *paperState) wait() (int, error) {
	if p.s == nil || !p.stopped {
		return 0, fmt.Errorf("%w: call P_stopMonitor first", errState)
	}
	s, path := p.s, p.s.path
	p.s = nil
	t, err := s.result()
	if t.ID == 0 {
		return 0, err
	}
	p.task, p.path, p.stored = t.ID, path, false
	return int(t.ID), err
}

//export wmgo_p_test
func wmgo_p_test(kind *C.char, ms C.int, text *C.char, n C.size_t) C.int {
	b := gpu.Benchmark(C.GoString(kind))
	return do("P_"+string(b)+"_test", text, n, func() error {
		return papers.test(b, time.Duration(ms)*time.Millisecond)
	})
}

// test runs a benchmark in the measurement's stream, or in the current context
// where nothing is being measured.
func (p *paperState) test(b gpu.Benchmark, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%w: a time of %v", errArgument, d)
	}
	ctx := context.Background()
	if p.s != nil {
		_, err := p.s.dev.RunBenchmark(ctx, b, d)
		return err
	}
	dev, err := findDevice("", nil)
	if err == nil {
		err = dev.Open(ctx)
	}
	if err != nil {
		return err
	}
	_, err = dev.RunBenchmark(ctx, b, d)
	return errors.Join(err, dev.Close())
}

// leave is the program's end: an open measurement is given up, one not stored is
// dropped.
func (p *paperState) leave() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.s != nil {
		err = p.s.abandon()
		p.s = nil
	}
	return errors.Join(err, p.drop())
}
