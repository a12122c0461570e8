package auth

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// Audit logs callers and their calls, a JSON object a line. A nil one logs nothing.
type Audit struct {
	out  *slog.Logger
	file *reopened
	now  func() time.Time

	mu        sync.Mutex
	strangers budget // refusals of unknown callers
	reads     budget
	seen      map[string]time.Time // recent reads by caller and subject
}

// NewAudit keeps it in a log.
func NewAudit(log *slog.Logger) *Audit { return &Audit{out: log.With("audit", true), now: time.Now} }

// OpenAudit keeps it in a file, to whose end lines are added. A failure to
// write it goes to log.
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
	// Code is the outcome, OK or a code's name; Why is the reason of a refusal.
	Code, Why string
	// On names the objects of the call: task, capture, bench.
	On []slog.Attr

	leftOut int // reads that were not kept before this one
}

// Keep keeps an entry; of strangers strangersASec a second.
func (a *Audit) Keep(ctx context.Context, e Entry) {
	if a == nil {
		return
	}
	attrs := []slog.Attr{
		slog.String("from", shown(e.From)), slog.String("what", shown(e.What)), slog.String("code", e.Code),
	}
	more := 0
	if e.Who.Name != "" {
		attrs = append(attrs, slog.String("who", shown(e.Who.Name)), slog.String("role", e.Who.Role.String()),
			slog.String("by", string(e.Who.By)), slog.String("id", shown(e.Who.ID)))
	} else {
		a.mu.Lock()
		leftOut, ok := a.strangers.take(a.now(), strangersASec)
		a.mu.Unlock()
		if more = leftOut; !ok {
			return
		}
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
	a.out.LogAttrs(ctx, slog.LevelInfo, "audit", append(attrs, e.On...)...)
}

// maxShown bounds the texts of callers, in bytes.
const maxShown = 256

// shown returns a caller's text as it may stand in a log: on one line, without
// control characters.
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

// open opens the file for appending, and closes the one that was open before. The new
// file is made with mode 0600. Writers wait meanwhile.
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

// KeepRead keeps a read: once in ten minutes for the same caller and subject, and at most
// readsASec a second in all; the next entry carries the number left out. The subject is the task,
// capture or bench, whatever part of it is read.
func (a *Audit) KeepRead(ctx context.Context, e Entry) {
	if a == nil {
		return
	}
	var subject strings.Builder
	fmt.Fprintf(&subject, "%q %q %q %s", e.Who.Name, e.Who.ID, e.What, e.Code)
	for _, on := range e.On {
		if on.Key == "bench" || strings.HasSuffix(on.Key, "_id") {
			fmt.Fprintf(&subject, " %s=%q", on.Key, on.Value)
		}
	}
	if a.fresh(subject.String(), &e) {
		a.Keep(ctx, e)
	}
}

// budget bounds the entries of one kind a second, so that they cannot fill the disk. The next
// entry carries the number left out.
type budget struct {
	second          time.Time
	number, leftOut int // in this second; since the last entry
}

// take counts an entry. ok is false above most a second, else leftOut is the number left out
// before it.
func (b *budget) take(now time.Time, most int) (leftOut int, ok bool) {
	if now.Sub(b.second) >= time.Second {
		b.second, b.number = now, 0
	}
	if b.number == most {
		b.leftOut++
		return 0, false
	}
	b.number++
	leftOut, b.leftOut = b.leftOut, 0
	return leftOut, true
}

// A page that is zoomed asks ten times a second for the same task. So the first read
// of a subject by a caller is kept, and then none for a while; and of all no more than a disk
// takes lightly.
const (
	strangersASec = 20
	readAgain     = 10 * time.Minute
	readsASec     = 50
	mostReaders   = 4096 // that are remembered; beyond, all are forgotten, and kept anew
)

// fresh reports whether a read of a subject is to be kept, and notes in it how many had no room before.
func (a *Audit) fresh(subject string, e *Entry) (ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if at, was := a.seen[subject]; was && now.Sub(at) < readAgain {
		return false
	}
	if e.leftOut, ok = a.reads.take(now, readsASec); !ok {
		return false
	}
	if a.seen == nil || len(a.seen) >= mostReaders {
		a.seen = map[string]time.Time{}
	}
	a.seen[subject] = now
	return true
}
