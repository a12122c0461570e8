package montest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
)

// Firmware is a protocol face.
type Firmware interface {
	Run(context.Context, io.ReadWriteCloser) error
}

// Plug is an emulated device on a pseudo-terminal.
type Plug struct {
	Path string
	Line *fault.Line

	heard *heard
	ended chan struct{}
	end   func()
}

// PlugIn gives a device a line and power until Pull, or the test's end. A test
// on a machine without pseudo-terminals is skipped.
func PlugIn(t *testing.T, f Firmware, faults fault.Faults) *Plug {
	t.Helper()
	port, err := pty.OpenPort()
	if err != nil {
		t.Skip("no ptys here: ", err)
	}
	p := &Plug{Path: port.Path(), Line: fault.New(port, faults), ended: make(chan struct{})}
	p.heard = &heard{Line: p.Line}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p.end = cancel
	go func() { defer close(p.ended); _ = f.Run(ctx, p.heard) }()
	t.Cleanup(p.Pull)
	return p
}

// Pull takes the device's line and power away and waits until it has ended.
func (p *Plug) Pull() {
	p.end()
	<-p.ended
}

// OnPipe puts a device on a net.Pipe, for virtual time: its bytes pass the faults
// and then each of the wraps. It returns the driver's end, and a function that ends the device and waits for that.
func OnPipe(t *testing.T, f Firmware, faults fault.Faults,
	wraps ...func(io.ReadWriteCloser) io.ReadWriteCloser,
) (mine net.Conn, end func()) {
	t.Helper()
	mine, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var line io.ReadWriteCloser = fault.New(theirs, faults)
	for _, wrap := range wraps {
		line = wrap(line)
	}
	go func() { defer close(ended); _ = f.Run(ctx, line) }()
	return mine, func() { cancel(); <-ended }
}

// Answering is the driver's end of a line on which every message gets the same
// answer; none, where that is empty.
func Answering(answer string) (mine net.Conn, end func()) {
	mine, theirs := net.Pipe()
	go func() {
		b := make([]byte, 64)
		for {
			if _, err := theirs.Read(b); err != nil {
				return
			}
			if answer != "" {
				_, _ = io.WriteString(theirs, answer)
			}
		}
	}()
	return mine, func() { _ = theirs.Close() }
}

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
