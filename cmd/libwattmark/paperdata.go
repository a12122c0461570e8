//go:build cgo

package main

/*
#include "wattmark.h"
#include "power.h"
*/
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/wattmark/wattmark/store"
)

//export wmgo_p_receive
func wmgo_p_receive(handle C.int, rec *C.struct_record, text *C.char, n C.size_t) C.int {
	return ask("P_receiveData", text, n, func() (int, error) { return papers.receive(int(handle), rec) })
}

func (p *paperState) receive(handle int, rec *C.struct_record) (int, error) {
	if p.task == 0 || handle != int(p.task) {
		return 0, fmt.Errorf("%w: %d is not what P_waitData returned last", errHandle, handle)
	}
	ctx := context.Background()
	db, err := store.OpenReadOnly(ctx, p.path)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errDatabase, err)
	}
	defer db.Close()
	n := 0
	err = eachRow(ctx, db, "taskID=?", int64(p.task), func(r *row) error {
		if rec != nil {
			r.put((*C.struct_record)(unsafe.Add(unsafe.Pointer(rec), n*C.sizeof_struct_record)))
		}
		n++
		return nil
	})
	return n, err
}

//export wmgo_p_store
func wmgo_p_store(rec *C.struct_record, text *C.char, n C.size_t) C.int {
	return do("P_storeData", text, n, func() error { return papers.keep(rec) })
}

// keep marks the last measurement as wanted. Its samples are in the
// database since they came, so that a crash loses none.
func (p *paperState) keep(rec *C.struct_record) error {
	switch {
	case rec == nil:
		return fmt.Errorf("%w: no records", errArgument)
	case p.task == 0 || int64(rec.taskID) != int64(p.task):
		return fmt.Errorf("%w: the records are of task %d, not of the last measurement", errArgument, rec.taskID)
	}
	p.stored = true
	return nil
}
