package montest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	scpiface "github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// Python is Debian's own, which sees Debian's packages.
const Python = "/usr/bin/python3"

// Idle is a board without a load.
func Idle(t *testing.T) *board.Board { return loaded(t, 3, time.Second, 0) }

// Busy is a board whose load changes every 7 ms for a minute, with its time.
func Busy(t *testing.T) (*board.Board, func() time.Duration) {
	t.Helper()
	b := loaded(t, 3, 7*time.Millisecond, 8000, load.Compute, load.Sleep, load.Memory, load.ActiveIdle)
	epoch := time.Now()
	return b, func() time.Duration { return time.Since(epoch) }
}

// Workload is a board that changes its load every 137 ms for so long.
func Workload(t *testing.T, d time.Duration) *board.Board {
	t.Helper()
	const step = 137 * time.Millisecond
	return loaded(t, 1, step, int((d+step-1)/step), load.Compute, load.Sleep, load.Memory, load.ActiveIdle, load.Half)
}

// loaded is a board with n changes of load, in turn.
func loaded(t *testing.T, seed uint64, step time.Duration, n int, loads ...load.State) *board.Board {
	t.Helper()
	b, err := board.New(board.Config{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := b.SetLoad(time.Duration(i)*step, loads[i%len(loads)]); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// Instrument is an emulated one.
type Instrument interface {
	NewSession() *scpiface.Session
	Serve(ctx context.Context, l net.Listener, wrap func(net.Conn) io.ReadWriteCloser) error
}

// Exec carries out one message as a client would, and returns its answer.
func Exec(i Instrument, message string) string {
	s := i.NewSession()
	s.Send(message)
	if !strings.Contains(message, "?") {
		return ""
	}
	r, _ := s.Receive()
	return strings.TrimRight(string(r), "\n")
}

// Expect sends messages, each with its contents to give behind it.
func Expect(t *testing.T, i Instrument, pairs ...string) {
	t.Helper()
	for n := 0; n < len(pairs); n += 2 {
		if got := Exec(i, pairs[n]); got != pairs[n+1] {
			t.Errorf("%s gives %.200q, want %q", pairs[n], got, pairs[n+1])
		}
	}
}

// Refused sends messages that must each leave an error in the queue.
func Refused(t *testing.T, i Instrument, messages ...string) {
	t.Helper()
	for _, s := range messages {
		Exec(i, s)
		if e := Exec(i, "SYST:ERR?"); strings.HasPrefix(strings.TrimPrefix(e, "+"), "0,") {
			t.Errorf("%s is taken", s)
		}
	}
}

// Listen serves an instrument until the test ends, and returns its port.
func Listen(t *testing.T, i Instrument) string {
	t.Helper()
	at, _ := Serve(t, "127.0.0.1:0", func(ctx context.Context, l net.Listener) error { return i.Serve(ctx, l, nil) })
	_, port, _ := net.SplitHostPort(at)
	return port
}

// Need skips the test where a program that we did not write is absent, unless
// WATTMARK_REQUIRE_TOOLS=1 reports that it must be there.
func Need(t *testing.T, debian string, probe ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), probe[0], probe[1:]...).CombinedOutput()
	if err == nil {
		return
	}
	reason := fmt.Sprintf("no %s (apt-get install %s): %v\n%s", probe[0], debian, err, out)
	if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// NeedVISA skips the test where there is no PyVISA.
func NeedVISA(t *testing.T) {
	t.Helper()
	Need(t, "python3-pyvisa python3-pyvisa-py python3-serial", Python, "-c", "import pyvisa, pyvisa_py, serial")
}

// Lines splits a program's output.
func Lines(said string) []string { return strings.Split(strings.TrimSpace(said), "\n") }

// Run runs a program and returns its answer.
func Run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

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
