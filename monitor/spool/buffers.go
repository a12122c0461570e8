package spool

// buffers are a log's two: records gather in one while the other is written.
type buffers struct{ pending, spare []byte }

// newBuffers returns two of the given capacity that are in memory already. A
// buffer that grew with the need would grow while the disk stands still, when
// copying it holds up the meter, and leave several times its size behind.
func newBuffers(size int) buffers {
	const page = 4096
	touched := func() []byte {
		b := make([]byte, size)
		for i := 0; i < size; i += page {
			b[i] = 0 // the system gives a page when it is first written to
		}
		return b[:0]
	}
	return buffers{touched(), touched()}
}

// lend gives a log that is about to start its buffers: those of a log that was
// closed, or new ones.
func (l *Log) lend(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b buffers
	if n := len(s.idle); n > 0 {
		b, s.idle = s.idle[n-1], s.idle[:n-1]
	} else {
		b = newBuffers(s.opt.Buffer)
	}
	l.pending, l.spare, l.lender = b.pending, b.spare, s
}

// giveBack returns the buffers of a log that takes no more records. One pair is
// kept, since a bench takes one capture at a time.
func (l *Log) giveBack() {
	l.mu.Lock()
	b := buffers{l.pending[:0], l.spare[:0]}
	s := l.lender
	l.pending, l.spare, l.lender = nil, nil, nil
	l.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		s.idle = append(s.idle, b)
	}
}
