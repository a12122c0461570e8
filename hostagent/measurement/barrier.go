package measurement

import "sync"

// barrier holds back those who arrive until nobody is still expected. Each of
// those expected arrives or leaves, once.
type barrier struct {
	mu       sync.Mutex
	expected int
	arrived  int
	open     chan struct{} // closed when nobody is expected any more
}

func newBarrier(n int) *barrier { return &barrier{expected: n, open: make(chan struct{})} }

func (b *barrier) arrive() { b.step(1) }
func (b *barrier) leave()  { b.step(0) }

func (b *barrier) step(arrived int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arrived += arrived
	if b.expected--; b.expected == 0 {
		close(b.open)
	}
}

// present is how many have arrived.
func (b *barrier) present() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.arrived
}
