package cluster

import "sync"

// faults keeps the last one.
type faults struct {
	mu   sync.Mutex
	last string
}

func (f *faults) put(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = text
}

func (f *faults) get() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == "" {
		return "it did not listen in time"
	}
	return f.last
}
