package auth

import (
	"fmt"
	"strings"
	"time"
)

// A page that is zoomed asks ten times a second for the same task. So of who reads what
// the first time is kept, and then none for a while; and of all no more than a disk
// takes lightly.
const (
	readAgain   = 10 * time.Minute
	readsASec   = 50
	mostReaders = 4096 // that are remembered; beyond, all are forgotten, and kept anew
)

// reads is what was read lately, and by whom.
type reads struct {
	seen    map[string]time.Time
	second  time.Time
	written int // in this second
	leftOut int // that had no room
}

// room reports whether a read is to be kept, and how many had no room before it.
func (r *reads) room(key string, now time.Time) (leftOut int, ok bool) {
	if at, was := r.seen[key]; was && now.Sub(at) < readAgain {
		return 0, false
	}
	if now.Sub(r.second) >= time.Second {
		r.second, r.written = now, 0
	}
	if r.written == readsASec {
		r.leftOut++
		return 0, false
	}
	r.written++
	if r.seen == nil || len(r.seen) >= mostReaders {
		r.seen = map[string]time.Time{}
	}
	r.seen[key] = now
	leftOut, r.leftOut = r.leftOut, 0
	return leftOut, true
}

// KeepRead keeps who read what: once in ten minutes for the same, and not more than some
// a second in all; how many were left out for that is told.
func (a *Audit) KeepRead(e Entry) {
	if a == nil {
		return
	}
	a.mu.Lock()
	leftOut, ok := a.reads.room(e.subject(), a.now())
	a.mu.Unlock()
	if e.leftOut = leftOut; ok {
		a.Keep(e)
	}
}

// subject is who did what to which task, capture or bench, whatever part of it.
func (e *Entry) subject() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%q %q %q %s", e.Who.Name, e.Who.ID, e.What, e.Code)
	for _, on := range e.On {
		if on.Key == "bench" || strings.HasSuffix(on.Key, "_id") {
			fmt.Fprintf(&s, " %s=%q", on.Key, on.Value)
		}
	}
	return s.String()
}
