package insttest

import (
	"context"
	"sync"
	"testing"

	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/instrument"
)

// heard is a line that calls then before the device gets what it read in its
// left-th read.
type heard struct {
	*fault.Line
	mu   sync.Mutex
	left int
	then func()
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Line.Read(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left--; h.left == 0 {
		h.then()
	}
	return n, err
}

// after sets what happens at the left-th read from now.
func (h *heard) after(left int, then func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left, h.then = left, then
}

// due tells that the read has not come yet.
func (h *heard) due() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left > 0
}

// Interrupted breaks Open off at each thing in turn that the device hears of it,
// as the end of a program does, and demands that the next Open works.
func Interrupted(t *testing.T, p *Plug, dev instrument.Instrument) {
	t.Helper()
	for at := 1; ; at++ {
		ctx, cancel := context.WithCancel(t.Context())
		p.heard.after(at, cancel)
		err := dev.Open(ctx)
		cancel()
		whole := p.heard.due()
		p.heard.after(0, nil)
		if err == nil {
			_ = dev.Close()
		}
		if whole {
			if err != nil || at == 1 {
				t.Fatalf("Open, with nothing that breaks it off but after %d messages: %v", at-1, err)
			}
			t.Logf("broken off at each of %d messages", at-1)
			return
		}
		if err := dev.Open(t.Context()); err != nil {
			t.Errorf("Open after one that was broken off at message %d: %v", at, err)
			continue
		}
		_ = dev.Close()
	}
}
