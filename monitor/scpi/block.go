package scpi

import "fmt"

// maxPrefix is how much text an instrument may put before a block, as a header
// of its reply.
const maxPrefix = 64

// header finds the begin of a definite block (IEEE 488.2, 8.7.9) as its bytes
// come: #, a digit n, n digits of length. It is pure; Feed it byte by byte.
type header struct {
	prefix int
	state  int // 0: before #, 1: n is due, 2: digits are due, 3: done
	digits int
	length int
}

// Feed takes the next byte; done says that the block's bytes follow. Line ends
// before the # are left over from the reply before and do not count.
func (h *header) Feed(b byte) (done bool, err error) {
	switch h.state {
	case 0:
		switch {
		case b == '#':
			h.state = 1
		case b == '\r' || b == '\n':
			if h.prefix > 0 {
				return false, fmt.Errorf("%w: a line of text came where a block #… is due", ErrReply)
			}
		default:
			if h.prefix++; h.prefix > maxPrefix {
				return false, fmt.Errorf("%w: no block #… within %d bytes", ErrReply, maxPrefix)
			}
		}
		return false, nil
	case 1:
		switch {
		case b == '0':
			return false, fmt.Errorf("%w: its end cannot be told from data on this link: ask the instrument for definite blocks", ErrIndefinite)
		case b < '1' || b > '9':
			return false, fmt.Errorf("%w: %q after the # of a block", ErrReply, b)
		}
		h.digits, h.state = int(b-'0'), 2
		return false, nil
	}
	if b < '0' || b > '9' {
		return false, fmt.Errorf("%w: %q in the length of a block", ErrReply, b)
	}
	h.length = 10*h.length + int(b-'0')
	h.digits--
	if h.digits == 0 {
		h.state = 3
	}
	return h.state == 3, nil
}

// ParseBlock splits a definite block off the begin of b: its data, and what
// follows it. ok is false, without an error, where b ends before the block does.
// The data alias b.
func ParseBlock(b []byte) (data, rest []byte, ok bool, err error) {
	var h header
	for i, c := range b {
		done, err := h.Feed(c)
		if err != nil {
			return nil, nil, false, err
		}
		if !done {
			continue
		}
		b = b[i+1:]
		if len(b) < h.length {
			return nil, nil, false, nil
		}
		return b[:h.length], b[h.length:], true, nil
	}
	return nil, nil, false, nil
}
