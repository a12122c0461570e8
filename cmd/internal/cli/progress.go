package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/wattmark/wattmark/internal/backoff"
)

const (
	progressAfter = 2 * time.Second        // what ends sooner shows nothing
	progressEvery = 250 * time.Millisecond // between two drawings
)

// Progress shows on a terminal's line how far a command is, and the time that is left at the pace so far. It
// appears after two seconds and is removed by End. The methods of nil do nothing. It is safe for concurrent use.
type Progress struct {
	w    io.Writer
	what string
	wide int // columns

	mu       sync.Mutex
	note     string
	done, of int
	begin    time.Time
	drawn    bool

	ended   chan struct{}
	end     sync.Once
	stopped sync.WaitGroup
}

// Progress begins to show the progress of what. It returns nil where standard error is no terminal, and with
// --quiet or --json.
func (a *App) Progress(what string) *Progress {
	s, ok := a.Err.(*Screen)
	if !ok {
		s = NewScreen(a.Err, false, a.ASCII || wantsASCII())
	}
	if !s.Terminal || a.Quiet || a.JSON {
		return nil
	}
	p := &Progress{w: Raw(s), what: what, wide: s.Width(), begin: time.Now(), ended: make(chan struct{})}
	p.stopped.Go(p.draw)
	return p
}

// Set notes that done of the units in all are done, as the callbacks of package store report them. A total that
// is not known is 0.
func (p *Progress) Set(done, of int) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done, p.of = min(done, of), of
	}
}

// Note shows a text behind the figures: the step that runs.
func (p *Progress) Note(text string) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.note = text
	}
}

// End removes the line; later calls do nothing.
func (p *Progress) End() {
	if p == nil {
		return
	}
	p.end.Do(func() {
		close(p.ended)
		p.stopped.Wait()
		if p.drawn {
			fmt.Fprint(p.w, "\r\x1b[K")
		}
	})
}

// draw draws the line until End.
func (p *Progress) draw() {
	for range backoff.Every(p.ended, progressEvery) {
		if time.Since(p.begin) >= progressAfter {
			p.drawn = true
			fmt.Fprint(p.w, "\r\x1b[K"+ansi.Truncate(p.line(), p.wide-1, "~"))
		}
	}
}

// line returns what the line says: with a known total, percent and the time left, else the time taken.
func (p *Progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, taken := p.what, time.Since(p.begin)
	if p.done > 0 {
		share := float64(p.done) / float64(p.of)
		left := time.Duration(float64(taken) * (1 - share) / share)
		text += fmt.Sprintf(": %d %%, %v left", int(100*share), left.Round(time.Second))
	} else {
		text += fmt.Sprintf(": %v", taken.Round(time.Second))
	}
	if p.note != "" {
		text += ", " + p.note
	}
	return text
}
