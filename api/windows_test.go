package api_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/api"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/store"
)

// kept are windows in memory, each of 5 J.
type kept struct {
	mu   sync.Mutex
	w    []serving.Window
	puts int
	err  error
}

func (k *kept) works() api.Works {
	return api.Works{
		AddWindows: func(_ context.Context, _ store.TaskID, w []serving.Window) error {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.err != nil {
				return k.err
			}
			k.w, k.puts = append(k.w, w...), k.puts+1
			return nil
		},
		Windows: func(context.Context, store.TaskID) ([]serving.Window, int, []string, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			for i := range k.w {
				k.w[i].Share = &measure.Share{Estimate: measure.Estimate{Energy: 5, U: 1}}
			}
			return k.w, 2, []string{"a note"}, nil
		},
	}
}

func TestWindows(t *testing.T) {
	l, k := newLab(t), &kept{}
	s := api.New(t.Context(), l.db, api.Options{Works: k.works()})
	ctx := t.Context()
	begin := func(id, stage string) uint64 {
		t.Helper()
		res, err := s.BeginWindow(ctx, &pb.BeginWindowRequest{TaskId: 1, Id: id, Stage: stage, Class: "chat", AtNs: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return res.Window
	}
	end := func(n uint64, at int64, tokens float64) error {
		_, err := s.EndWindow(ctx, &pb.EndWindowRequest{TaskId: 1, Window: n, AtNs: at, Counts: map[string]float64{"tokens": tokens}})
		return err
	}
	a, b := begin("r1", "prefill"), begin("r1", "decode")
	if err := errors.Join(end(b, 3000, 10), end(a, 2000, 40)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err  error
		code codes.Code
		says string
	}{
		"ended twice":   {end(a, 2000, 1), codes.NotFound, "was not begun, or has ended"},
		"backwards":     {end(begin("r2", ""), 999, 1), codes.InvalidArgument, "before it began"},
		"a count below": {end(begin("r2", ""), 2000, -1), codes.InvalidArgument, "tokens"},
	} {
		if status.Code(c.err) != c.code || !strings.Contains(status.Convert(c.err).Message(), c.says) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	for name, req := range map[string]*pb.BeginWindowRequest{
		"no task": {TaskId: 99, Id: "x"}, "a long id": {TaskId: 1, Id: strings.Repeat("x", 300)}, "negative time": {TaskId: 1, AtNs: -1},
	} {
		if _, err := s.BeginWindow(ctx, req); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	res, err := s.ReadWindows(ctx, &pb.ReadWindowsRequest{TaskId: 1, MaxWindows: 1})
	if err != nil || len(res.Windows) != 1 || res.WindowsLeftOut != 1 || len(res.Sums) != 3 || res.Result != 2 || k.puts != 1 {
		t.Fatalf("%v, %v, stored %d times", res, err, k.puts)
	}
	sum := res.Sums[0]
	if sum.Stage != "" || sum.Energy.EnergyJ != 10 || sum.Per[0].Count != 50 || sum.Per[0].Energy.EnergyJ != 0.2 || sum.P50J != 10 {
		t.Errorf("the sum of requests: %v", sum)
	}
	// What cannot be stored is reported, kept, and stored later.
	k.err = errors.New("disk full")
	if err := end(begin("r3", ""), 2000, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadWindows(ctx, &pb.ReadWindowsRequest{TaskId: 1}); err == nil {
		t.Error("a window that was not stored is not reported")
	}
	k.err = nil
	if s.Close(); len(k.w) != 3 {
		t.Errorf("%d windows are stored at the end", len(k.w))
	}
	if _, err := l.stub.ReadWindows(ctx, &pb.ReadWindowsRequest{TaskId: 1}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a service that only reads: %v", err)
	}
}
