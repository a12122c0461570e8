package attribute

// ends is a heap of the kernels that run, by their end.
type ends []Kernel

func (h *ends) push(k Kernel) {
	s := append(*h, k)
	i := len(s) - 1
	for up := (i - 1) / 2; i > 0 && s[i].End < s[up].End; i, up = up, (up-1)/2 {
		s[i], s[up] = s[up], s[i]
	}
	*h = s
}

func (h *ends) pop() Kernel {
	s := *h
	top, n := s[0], len(s)-1
	s[0] = s[n]
	s = s[:n]
	for i := 0; ; {
		least := i
		for _, c := range []int{2*i + 1, 2*i + 2} {
			if c < n && s[c].End < s[least].End {
				least = c
			}
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return top
}
