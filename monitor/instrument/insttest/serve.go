package insttest

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Serve puts a device on the net: serve gets a listener, and must end when its
// context does. It returns where the device is, for a later Serve of the same, and
// how to pull it; the test's end pulls it as well.
func Serve(t *testing.T, at string, serve func(context.Context, net.Listener) error) (address string, pull func()) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l) }()
	pull = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the device ends with %v", err)
		}
	})
	t.Cleanup(pull)
	return l.Addr().String(), pull
}
