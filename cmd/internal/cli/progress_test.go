package cli

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockedBuffer is a bytes.Buffer that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The line appears after two seconds, says what is left at the pace so far, and is removed at the end.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b lockedBuffer
		a := &App{Streams: Streams{Err: &Screen{w: &b, Terminal: true}}}
		p := a.Progress("checking")
		p.Set(10, 100)
		time.Sleep(progressAfter - 1)
		if early := b.String(); early != "" {
			t.Errorf("too early: %q", early)
		}
		time.Sleep(8*time.Second + 1 - progressEvery/2)
		p.Set(25, 100)
		p.Note("task 5")
		time.Sleep(progressEvery)
		p.End()
		text := b.String()
		if !strings.Contains(text, "checking: 10 %, 18s left") || !strings.Contains(text, "checking: 25 %, 30s left, task 5") ||
			!strings.HasSuffix(text, "\r\x1b[K") || strings.Contains(text, "\n") {
			t.Errorf("%q", text)
		}
	})
	for _, a := range []*App{
		{Streams: Streams{Err: &bytes.Buffer{}}},
		{Streams: Streams{Err: &Screen{Terminal: true}}, Quiet: true},
		{Streams: Streams{Err: &Screen{Terminal: true}}, JSON: true},
	} {
		p := a.Progress("checking")
		if p != nil {
			t.Errorf("%+v has a line", a)
		}
		p.Set(1, 2) // does nothing
		p.Note("")
		p.End()
	}
}
