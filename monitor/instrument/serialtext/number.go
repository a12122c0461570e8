package serialtext

// number reads a decimal number as a whole number of 10^−decimals; blanks may
// stand before it.
func number(b []byte, decimals int) (v int64, n int, f flaw) {
	for n < len(b) && b[n] == ' ' {
		n++
	}
	neg := false
	if n < len(b) && (b[n] == '-' || b[n] == '+') {
		neg = b[n] == '-'
		n++
	}
	digits, left, point := 0, decimals, false
	for ; n < len(b); n++ {
		c := b[n]
		if c == '.' && !point && digits > 0 {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		digits++
		if point {
			if left == 0 {
				if c != '0' {
					return 0, n, tooMany
				}
				continue
			}
			left--
		}
		if v = 10*v + int64(c-'0'); v > 1<<40 {
			return 0, n, tooGreat
		}
	}
	if digits == 0 {
		return 0, n, noNumber
	}
	for ; left > 0; left-- {
		if v *= 10; v > 1<<40 {
			return 0, n, tooGreat
		}
	}
	if neg {
		v = -v
	}
	return v, n, fine
}

func xor(b []byte) (x byte) {
	for _, c := range b {
		x ^= c
	}
	return x
}

// hexDigit is the value of a hex digit, or more than two of them can be.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return 1 << 12
}
