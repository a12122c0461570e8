package api

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
)

// trickle is an upload of a few bytes at a time.
type trickle struct {
	pb.TaskService_StoreTasksServer
	ctx   context.Context
	every time.Duration
	size  int
}

func (s *trickle) Context() context.Context { return s.ctx }

func (s *trickle) Recv() (*pb.StoreTasksRequest, error) {
	select {
	case <-time.After(s.every):
		return &pb.StoreTasksRequest{Data: make([]byte, s.size)}, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// An upload that goes on, but hardly, does not keep its place from others for ever.
func TestTrickleEnds(t *testing.T) {
	for _, c := range []struct {
		size int
		code codes.Code
	}{{1, codes.DeadlineExceeded}, {maxPart, codes.OK}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*storeStall)
			defer cancel()
			s := &trickle{ctx: ctx, every: storeStall / 3, size: c.size}
			_, err := new(Service).receive(ctx, s, filepath.Join(t.TempDir(), transferName))
			if got := status.Code(err); got == codes.DeadlineExceeded != (c.code == codes.DeadlineExceeded) {
				t.Errorf("%d bytes at a time: %v", c.size, err)
			}
			cancel()
			synctest.Wait()
		})
	}
}
