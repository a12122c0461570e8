package labjackface

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Serve serves the registers on one listener and the stream on another until ctx
// ends. It returns nil then, and closes both.
func (f *Face) Serve(ctx context.Context, registers, stream net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer f.stopStream()
	stop := context.AfterFunc(ctx, func() { _, _ = registers.Close(), stream.Close() })
	defer stop()
	wg.Go(func() {
		defer cancel()
		_ = accept(stream, func(c net.Conn) { f.attach(c) })
	})
	err := accept(registers, func(c net.Conn) {
		wg.Go(func() {
			end := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer end()
			f.session(ctx, c)
		})
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func accept(l net.Listener, serve func(net.Conn)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("emulated LabJack: %w", err)
		}
		serve(c)
	}
}

// sink is the connection that the stream goes to.
type sink struct{ io.ReadWriteCloser }

// attach takes a connection for the stream; the one before it is dropped.
func (f *Face) attach(c net.Conn) {
	var rw io.ReadWriteCloser = c
	if f.cfg.Wrap != nil {
		rw = f.cfg.Wrap(c)
	}
	f.stopStream()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.target != nil {
		_ = f.target.Close()
	}
	f.target = &sink{rw}
	select {
	case f.arrived <- struct{}{}:
	default:
	}
}

// expect waits for the stream's connection, which a driver may have made a moment
// ago.
func (f *Face) expect(ctx context.Context) {
	t := time.NewTimer(500 * time.Millisecond)
	defer t.Stop()
	for {
		f.mu.Lock()
		there := f.target != nil
		f.mu.Unlock()
		if there {
			return
		}
		select {
		case <-f.arrived:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// stopStream ends a stream that runs, and its connection.
func (f *Face) stopStream() {
	f.mu.Lock()
	cancel, stopped, target := f.cancel, f.stopped, f.target
	f.cancel, f.target = nil, nil
	f.mu.Unlock()
	if cancel == nil {
		if target != nil {
			_ = target.Close()
		}
		return
	}
	cancel()
	_ = target.Close() // which ends a blocked write
	<-stopped
}

var errNoTarget = errors.New("no connection for the stream")

// startStream begins to scan.
func (f *Face) startStream(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.target == nil || f.cancel != nil {
		return errNoTarget
	}
	s, err := f.newScanner()
	if err != nil {
		return err
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.stopped = make(chan struct{})
	target, stopped := f.target, f.stopped
	go func() {
		defer close(stopped)
		_ = s.run(ctx, target)
		_ = target.Close()
	}()
	return nil
}
