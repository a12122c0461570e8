package auth

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"wattmark/measure"
)

// Audit keeps who did what, a JSON object a line. A nil one keeps nothing.
type Audit struct {
	out  *slog.Logger
	file *reopened
	now  func() time.Time

	mu      sync.Mutex
	second  time.Time
	written int // refusals of strangers in this second
	dropped int

	reads reads
}

// NewAudit keeps it in a log.
func NewAudit(log *slog.Logger) *Audit { return &Audit{out: log.With("audit", true), now: time.Now} }

// OpenAudit keeps it in a file, to whose end lines are added. That it cannot be written
// is told in log.
func OpenAudit(path string, log *slog.Logger) (*Audit, error) {
	f := &reopened{path: path, log: log}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return &Audit{out: slog.New(slog.NewJSONHandler(f, nil)), file: f, now: time.Now}, nil
}

// Reopen opens the file by its name again, after it was moved away.
func (a *Audit) Reopen() error {
	if a == nil || a.file == nil {
		return nil
	}
	return a.file.open()
}

// Close ends it.
func (a *Audit) Close() error {
	if a == nil || a.file == nil {
		return nil
	}
	return a.file.Close()
}

// Entry is one thing that was done, or tried.
type Entry struct {
	Who  Identity // zero for a stranger
	From string   // an address
	What string   // a call's full name, or a request's method and path
	// Code is what it came to, OK or a code's name; Why says why it was refused.
	Code, Why string
	// On names what it was done to: task, capture, bench.
	On []slog.Attr

	leftOut int // reads that were not kept before this one
}

// strangers is how many refusals of people who are not known are kept a second: who
// cannot get in cannot fill the disk either. How many were left out is told.
const strangers = 20

// Keep keeps an entry.
func (a *Audit) Keep(e Entry) {
	if a == nil {
		return
	}
	more := 0
	if e.Who.Name == "" {
		var ok bool
		if more, ok = a.room(); !ok {
			return
		}
	}
	attrs := []slog.Attr{slog.String("from", shown(e.From)), slog.String("what", shown(e.What)), slog.String("code", e.Code)}
	if e.Who.Name != "" {
		attrs = append(attrs, slog.String("who", shown(e.Who.Name)), slog.String("role", e.Who.Role.String()),
			slog.String("by", string(e.Who.By)), slog.String("id", shown(e.Who.ID)))
	}
	if e.Why != "" {
		attrs = append(attrs, slog.String("why", shown(e.Why)))
	}
	if more > 0 {
		attrs = append(attrs, slog.Int("refusals_left_out", more))
	}
	if e.leftOut > 0 {
		attrs = append(attrs, slog.Int("reads_left_out", e.leftOut))
	}
	a.out.LogAttrs(context.Background(), slog.LevelInfo, "audit", append(attrs, e.On...)...)
}

// room reports whether there is room for a stranger, and how many had none.
func (a *Audit) room() (leftOut int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.now(); now.Sub(a.second) >= time.Second {
		a.second, a.written = now, 0
	}
	if a.written == strangers {
		a.dropped++
		return 0, false
	}
	a.written++
	leftOut, a.dropped = a.dropped, 0
	return leftOut, true
}

// maxShown bounds what others say, in bytes.
const maxShown = 256

// shown is a text of others as it may stand in a log: on one line, without what a
// terminal would obey.
func shown(s string) string {
	if len(s) > maxShown {
		s = s[:maxShown] + "…"
	}
	return measure.Printable(s)
}

// reopened is a file that can be opened again by its name.
type reopened struct {
	path string
	log  *slog.Logger
	mu   sync.Mutex
	f    *os.File
}

func (r *reopened) open() error {
	// A pipe that nobody reads is an error here, and not waited for.
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f != nil {
		_ = r.f.Close()
	}
	r.f = f
	return nil
}

// Write adds a line.
func (r *reopened) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.f.Write(b)
	if err != nil {
		r.log.Error("the audit log cannot be written", "error", err, "line", string(b))
	}
	return n, err
}

// Close closes it.
func (r *reopened) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.f.Close()
}
