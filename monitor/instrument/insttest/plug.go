package insttest

import (
	"context"
	"io"
	"testing"
	"time"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/pty"
)

// Firmware is a protocol face.
type Firmware interface {
	Run(context.Context, io.ReadWriteCloser) error
}

// Workload is a board that changes its load every 137 ms for so long.
func Workload(t *testing.T, d time.Duration) *board.Board {
	t.Helper()
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	loads := []board.Load{board.Compute, board.Sleep, board.Memory, board.ActiveIdle, board.Half}
	for i := 0; time.Duration(i)*137*time.Millisecond < d; i++ {
		if _, err := b.SetLoad(time.Duration(i)*137*time.Millisecond, loads[i%len(loads)]); err != nil {
			t.Fatal(err)
		}
	}
	return b
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
