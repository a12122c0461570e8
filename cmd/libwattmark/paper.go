//go:build cgo

package main

/*
#include "wattmark.h"
#include "power.h"
*/
import "C"

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

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
	return do("P_startMonitor", text, n, func() error {
		p := &papers
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
	})
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
	return do("P_marker", text, n, func() error {
		p := &papers
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
	})
}

//export wmgo_p_stop
func wmgo_p_stop(text *C.char, n C.size_t) C.int {
	return do("P_stopMonitor", text, n, func() error {
		p := &papers
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
	})
}

//export wmgo_p_wait
func wmgo_p_wait(text *C.char, n C.size_t) C.int {
	return ask("P_waitData", text, n, func() (int, error) {
		p := &papers
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
		if errors.Is(err, errIncomplete) {
			putText(text, int(n), "P_waitData: "+err.Error()) // a remark: the data can be read
			err = nil
		}
		return int(t.ID), err
	})
}

// wmgo_p_test runs a benchmark in the measurement's stream. Where P_startMonitor has started none
// it runs on the GPU that a measurement of wm_begin names, else on that of the environment, or in
// the current context.
//
//export wmgo_p_test
func wmgo_p_test(kind *C.char, ms C.int, text *C.char, n C.size_t) C.int {
	b := gpu.Benchmark(C.GoString(kind))
	return do("P_"+string(b)+"_test", text, n, func() error {
		d := time.Duration(ms) * time.Millisecond
		if d <= 0 {
			return fmt.Errorf("%w: a time of %v", errArgument, d)
		}
		ctx := context.Background()
		if papers.s != nil {
			_, err := papers.s.dev.RunBenchmark(ctx, b, d)
			return err
		}
		q := request{name: string(b), device: deviceInUse()}
		if err := q.fill(); err != nil {
			return err
		}
		dev, _, err := findDevice(q.device, nil)
		if err != nil {
			return err
		}
		err = dev.Open(ctx)
		if err == nil {
			_, err = dev.RunBenchmark(ctx, b, d)
		}
		return errors.Join(err, dev.Close())
	})
}

// deviceInUse returns the GPU that a measurement in progress was asked for; empty for none.
func deviceInUse() string {
	sessions.Lock()
	defer sessions.Unlock()
	for _, s := range sessions.m {
		if s.device != "" {
			return s.device
		}
	}
	return ""
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

//export wmgo_p_receive
func wmgo_p_receive(handle C.int, rec *C.struct_record, text *C.char, n C.size_t) C.int {
	return ask("P_receiveData", text, n, func() (int, error) {
		p := &papers
		if p.task == 0 || int(handle) != int(p.task) {
			return 0, fmt.Errorf("%w: %d is not what P_waitData returned last", errHandle, handle)
		}
		ctx := context.Background()
		db, err := store.OpenReadOnly(ctx, p.path)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errDatabase, err)
		}
		defer db.Close()
		rows := 0
		err = eachRow(ctx, db, p.task, func(r *row) error {
			if rec != nil {
				r.put((*C.struct_record)(unsafe.Add(unsafe.Pointer(rec), rows*C.sizeof_struct_record)))
			}
			rows++
			return nil
		})
		return rows, err
	})
}

// wmgo_p_store marks the last measurement as wanted. Its samples are in the
// database since they came, so that a crash loses none.
//
//export wmgo_p_store
func wmgo_p_store(rec *C.struct_record, text *C.char, n C.size_t) C.int {
	return do("P_storeData", text, n, func() error {
		p := &papers
		switch {
		case rec == nil:
			return fmt.Errorf("%w: no records", errArgument)
		case p.task == 0 || int64(rec.taskID) != int64(p.task):
			return fmt.Errorf("%w: the records are of task %d, not of the last measurement", errArgument, rec.taskID)
		}
		p.stored = true
		return nil
	})
}

func (r *row) put(to *C.struct_record) {
	to.taskID, to.seqNum = C.int(r.task), C.int(r.seq)
	putText(&to.taskName[0], len(to.taskName), r.name)
	putText(&to.user[0], len(to.user), r.user)
	putText(&to.taskTime[0], len(to.taskTime), r.at)
	to.power = C.double(r.v[0])
	to.current1, to.current2, to.current3 = C.double(r.v[1]), C.double(r.v[2]), C.double(r.v[3])
	to.voltage1, to.voltage2, to.voltage3 = C.double(r.v[4]), C.double(r.v[5]), C.double(r.v[6])
}

// withDB makes a call on the database that dbOpen opened.
func withDB(call string, text *C.char, n C.size_t, f func(ctx context.Context, db *store.DB) (int, error)) C.int {
	return ask(call, text, n, func() (int, error) {
		if papers.db == nil {
			return 0, fmt.Errorf("%w: call dbOpen first", errState)
		}
		out, err := f(context.Background(), papers.db)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errDatabase, err)
		}
		return out, nil
	})
}

//export wmgo_db_open
func wmgo_db_open(name, text *C.char, n C.size_t) C.int {
	return do("dbOpen", text, n, func() error {
		switch {
		case C.GoString(name) == "":
			return fmt.Errorf("%w: no file is named", errArgument)
		case papers.db != nil:
			return fmt.Errorf("%w: %s is open; dbClose first", errState, papers.db.Path())
		}
		ctx := context.Background()
		var err error
		papers.db, err = openDatabase(ctx, C.GoString(name))
		if errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrCannotOpen) {
			if read, only := store.OpenSource(ctx, C.GoString(name)); only == nil {
				papers.db, err = read, nil // deletions then fail: nothing may be written
			}
		}
		return err
	})
}

//export wmgo_db_close
func wmgo_db_close(text *C.char, n C.size_t) C.int {
	return withDB("dbClose", text, n, func(_ context.Context, db *store.DB) (int, error) {
		papers.db = nil
		return 0, db.Close()
	})
}

//export wmgo_db_read
func wmgo_db_read(id C.int, name, text *C.char, n C.size_t) C.int {
	return withDB("dbRead", text, n, func(ctx context.Context, db *store.DB) (int, error) {
		ids := []store.TaskID{store.TaskID(id)}
		var err error
		if name != nil {
			ids, err = tasksNamed(ctx, db, C.GoString(name))
		} else {
			_, err = db.Task(ctx, ids[0])
		}
		if err != nil {
			return 0, err
		}
		out := bufio.NewWriter(os.Stdout)
		count := 0
		_, _ = out.WriteString(columns) // Flush returns the error
		var line []byte
		for i := 0; i < len(ids) && err == nil; i++ {
			err = eachRow(ctx, db, ids[i], func(r *row) error {
				line = r.print(line[:0])
				count++
				_, err := out.Write(line)
				return err
			})
		}
		if err == nil {
			err = out.Flush()
		}
		return count, err
	})
}

//export wmgo_db_users
func wmgo_db_users(text *C.char, n C.size_t) C.int {
	return withDB("dbGetUser", text, n, func(ctx context.Context, db *store.DB) (int, error) {
		users, err := db.Users(ctx)
		for _, u := range users {
			if _, e := fmt.Println(u.User); e != nil {
				return 0, e
			}
		}
		return len(users), err
	})
}

//export wmgo_db_tasks
func wmgo_db_tasks(user, text *C.char, n C.size_t) C.int {
	return withDB("dbGetTaskByUser", text, n, func(ctx context.Context, db *store.DB) (int, error) {
		count := 0
		for before := store.TaskID(0); ; {
			tasks, err := db.Tasks(ctx, store.Query{User: C.GoString(user), Before: before})
			if err != nil || len(tasks) == 0 {
				return count, err
			}
			for _, t := range tasks {
				if _, err := fmt.Printf("%d\t%s\t%s\n", t.ID, t.Name, t.Launched.UTC().Format(time.RFC3339Nano)); err != nil {
					return count, err
				}
				before = t.ID
			}
			count += len(tasks)
		}
	})
}

//export wmgo_db_delete
func wmgo_db_delete(by, id C.int, name, text *C.char, n C.size_t) C.int {
	return withDB("dbDelete", text, n, func(ctx context.Context, db *store.DB) (int, error) {
		var gone store.Deleted // pinned tasks stay
		var err error
		switch by {
		case 0:
			if err = db.DeleteTask(ctx, store.TaskID(id)); err == nil {
				gone.Tasks = 1
			}
		case 1:
			gone, err = db.DeleteByName(ctx, C.GoString(name), store.DeleteOptions{})
		default:
			gone, err = db.DeleteByUser(ctx, C.GoString(name), store.DeleteOptions{})
		}
		return int(gone.Tasks), err
	})
}
