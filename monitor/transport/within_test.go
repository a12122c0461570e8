package transport

import (
	"context"
	"errors"
	"testing"
	"time"
)

// lateCancel is a quiet line whose reader is cancelled just as its time is over.
type lateCancel struct {
	Conn
	cancel func()
}

func (c lateCancel) Read(ctx context.Context, _ []byte) (int, error) {
	<-ctx.Done()
	err := ctx.Err()
	c.cancel()
	return 0, err
}

// A cancel between the end of a look and its return is a cancel, no deadline.
func TestReadWithinAndALateCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, err := ReadWithin(ctx, lateCancel{cancel: cancel}, make([]byte, 1), time.Millisecond)
	if n != 0 || !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := ReadWithin(t.Context(), lateCancel{cancel: func() {}}, make([]byte, 1), time.Millisecond); n != 0 || err != nil {
		t.Errorf("a quiet line: %d, %v", n, err)
	}
	own, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if n, err := ReadWithin(own, lateCancel{cancel: func() {}}, make([]byte, 1), time.Minute); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's own time is over: %d, %v", n, err)
	}
}
