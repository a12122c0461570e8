package scpiface

import (
	"strings"
	"time"
)

// Kind is a way in which an instrument misbehaves.
type Kind uint8

// The faults of the field.
const (
	Late        Kind = iota + 1 // the reply comes after For
	Mute                        // the reply never comes
	Truncate                    // the last Bytes bytes of the reply are missing, with its end
	Unsolicited                 // Text comes before the reply
	Junk                        // Text comes behind the reply
	Hangup                      // the line is closed instead of a reply
	QueueError                  // Err is put into the error queue
	Header                      // of a block comes, and nothing behind it
)

// Fault happens at the next messages that contain Match.
type Fault struct {
	Kind  Kind
	Match string // part of the message, any case; empty for every message
	Skip  int    // so many matching messages pass first
	Times int    // how often; 0 for once
	For   time.Duration
	Bytes int
	Text  string
	Err   *Error
}

// Inject lets a fault happen.
func (i *Instrument) Inject(f Fault) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f.Times = max(1, f.Times)
	i.faults = append(i.faults, &f)
}

// fault takes the fault that concerns a message.
func (i *Instrument) fault(message string) (Fault, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for n, f := range i.faults {
		if !strings.Contains(strings.ToUpper(message), strings.ToUpper(f.Match)) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times--; f.Times == 0 {
			i.faults = append(i.faults[:n], i.faults[n+1:]...)
		}
		if f.Kind == QueueError {
			i.raise(f.Err)
		}
		return *f, true
	}
	return Fault{}, false
}

// Pending is how many faults have not happened to their end.
func (i *Instrument) Pending() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.faults)
}
