package scpiface

import (
	"strconv"
	"strings"
)

// maxList bounds a channel list: no instrument has more channels.
const maxList = 1024

// Channels reads parameter i as a channel list: (@101,103:105).
func (c Call) Channels(i int) (out []int, err error) {
	if i >= len(c.Args) {
		return nil, ErrMissing
	}
	list, begins := strings.CutPrefix(c.Args[i], "(@")
	list, ends := strings.CutSuffix(list, ")")
	if !begins || !ends {
		return nil, ErrType
	}
	for _, part := range strings.Split(list, ",") {
		from, to, span := strings.Cut(strings.TrimSpace(part), ":")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && span {
			last, err = strconv.Atoi(to)
		}
		switch {
		case err != nil:
			return nil, ErrType
		case last < first || last-first >= maxList-len(out):
			return nil, ErrRange
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}
