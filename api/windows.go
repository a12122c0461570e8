package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	maxOpen    = 100_000 // windows that are open at once
	storeAfter = time.Second
	storeMany  = 10_000 // ended windows that are stored without waiting
)

// openWindows are the windows that are open, and those that ended and are not stored yet. It is safe for concurrent
// use.
type openWindows struct {
	add func(id store.TaskID, w []serving.Window) error

	mu    sync.Mutex
	last  uint64
	open  map[uint64]openWindow
	ended map[store.TaskID][]serving.Window
	n     int // of ended
	timer *time.Timer
	err   error // of storing, until a call has reported it
}

type openWindow struct {
	task store.TaskID
	serving.Window
}

// end ends a window; store.ErrNotFound where the task has no such one. A window that cannot be stays open.
func (o *openWindows) end(id store.TaskID, number uint64, at int64, counts map[string]float64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, ok := o.open[number]
	if !ok || w.task != id {
		return fmt.Errorf("window %d: %w: it was not begun, or has ended", number, store.ErrNotFound)
	}
	w.End, w.Counts = at, counts
	if err := w.Check(); err != nil {
		return err
	}
	delete(o.open, number)
	o.ended[id] = append(o.ended[id], w.Window)
	o.n++
	switch {
	case o.n == storeMany && o.timer != nil:
		o.timer.Reset(0)
	case o.n == 1:
		o.timer = time.AfterFunc(storeAfter, func() { _ = o.store() })
	}
	err := o.err
	o.err = nil
	return err
}

// store stores all that ended. What cannot be stored is tried again in a second.
func (o *openWindows) store() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = nil
	for id, w := range o.ended {
		if err := o.add(id, w); err != nil {
			slog.Error("windows are not stored; they are tried again", "task", id, "windows", len(w), "error", err)
			o.err = err
			continue
		}
		o.n -= len(w)
		delete(o.ended, id)
	}
	if o.err != nil {
		o.timer.Reset(storeAfter)
	}
	return o.err
}

// BeginWindow begins a window of a task.
func (s *Service) BeginWindow(ctx context.Context, req *pb.BeginWindowRequest) (*pb.BeginWindowResponse, error) {
	id, err := s.windowsOf(ctx, req)
	if err == nil {
		_, err = s.db.TaskResult(ctx, id, 0)
		err = toStatus(fmt.Sprintf("window of task %d", id), err)
	}
	if err != nil {
		return nil, err
	}
	begin := cmp.Or(req.GetAtNs(), time.Now().UnixNano())
	w := serving.Window{ID: req.GetId(), Stage: req.GetStage(), Class: req.GetClass(), Begin: begin, End: math.MaxInt64}
	if err := w.Check(); err != nil {
		return nil, invalid("id", "%v", err)
	}
	o := &s.open
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.open) >= maxOpen {
		return nil, status.Error(codes.ResourceExhausted, "too many windows are open: end them")
	}
	o.last++
	o.open[o.last] = openWindow{id, w}
	return &pb.BeginWindowResponse{Window: o.last}, nil
}

// EndWindow ends a window.
func (s *Service) EndWindow(ctx context.Context, req *pb.EndWindowRequest) (*pb.EndWindowResponse, error) {
	id, err := s.windowsOf(ctx, req)
	if err != nil {
		return nil, err
	}
	err = s.open.end(id, req.GetWindow(), cmp.Or(req.GetAtNs(), time.Now().UnixNano()), req.GetCounts())
	if errors.Is(err, serving.ErrWindow) {
		return nil, invalid("window", "%v", err)
	}
	return &pb.EndWindowResponse{}, toStatus(fmt.Sprintf("window of task %d", id), err)
}

// RecordWindows stores windows that have ended.
func (s *Service) RecordWindows(ctx context.Context, req *pb.RecordWindowsRequest) (*pb.RecordWindowsResponse, error) {
	id, err := s.windowsOf(ctx, req)
	if err != nil {
		return nil, err
	}
	if n := len(req.GetWindows()); n == 0 || n > storeMany {
		return nil, invalid("windows", "%d: want 1 to %d", n, storeMany)
	}
	w := lists.Map(req.GetWindows(), windowOf)
	for i := range w {
		if err := w[i].Check(); err != nil {
			return nil, invalid(fmt.Sprintf("windows[%d]", i), "%v", err)
		}
	}
	doing := fmt.Sprintf("windows of task %d", id)
	if _, err := s.db.TaskResult(ctx, id, 0); err != nil {
		return nil, toStatus(doing, err)
	}
	return &pb.RecordWindowsResponse{}, toStatus(doing, s.works.AddWindows(ctx, id, w))
}

// windowsOf checks that the caller may add windows to a task.
func (s *Service) windowsOf(ctx context.Context, req interface{ GetTaskId() int64 }) (store.TaskID, error) {
	if s.works.AddWindows == nil {
		return 0, errElsewhere
	}
	id, err := s.mine(ctx, req.GetTaskId(), auth.Operator)
	return id, toStatus(fmt.Sprintf("window of task %d", id), err)
}

// ReadWindows returns a task's windows with their energies.
func (s *Service) ReadWindows(ctx context.Context, req *pb.ReadWindowsRequest) (*pb.ReadWindowsResponse, error) {
	id, err := validID(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	n, err := amount{"max_windows", req.GetMaxWindows(), defaultSlices, store.MostSpans}.bounded()
	switch {
	case err != nil:
		return nil, err
	case s.works.Windows == nil:
		return nil, errElsewhere
	}
	if err := s.open.store(); err != nil {
		return nil, toStatus("store windows", err)
	}
	w, result, notes, err := s.works.Windows(ctx, id)
	if err != nil {
		return nil, toStatus(fmt.Sprintf("read the windows of task %d", id), err)
	}
	res := &pb.ReadWindowsResponse{
		Sums: lists.Map(serving.Summarise(w), sumMessage), Notes: lists.Map(notes, wire.Text), Result: uint32(result),
	}
	if len(w) > n {
		res.WindowsLeftOut, w = uint64(len(w)-n), w[:n]
	}
	res.Windows = lists.Map(w, windowMessage)
	return res, nil
}

func windowMessage(w serving.Window) *pb.ServedWindow {
	out := servedMessage(w)
	if w.Share != nil {
		out.Energy = wire.Energy(w.Estimate)
	}
	return out
}
