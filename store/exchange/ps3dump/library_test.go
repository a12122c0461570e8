package ps3dump_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// library is what PowerSensor3's firmware and host library of a version do between a
// sensor and a line of the dump: what order the packets come in, what a reading is made
// of, and how it is printed.
type library struct {
	skipsFirst bool // 1.2 on: the first packet is read to see that data flow
	groups     bool // to 1.1: a reading after as many sensors as are in use
	inline     bool // 1.5 on: markers are the first character of a reading
	absolute   bool // 1.6 on, by choice
	pairs      int

	out      bytes.Buffer
	rng      *rand.Rand
	marks    []byte
	marker   bool
	begun    bool
	read     int
	stamp    int
	levels   [8]float64
	host     float64 // s
	previous float64
	lastMark string
}

// versions are the libraries that differ.
func versions(pairs int) map[string]func() *library {
	return map[string]func() *library{
		"1.1":      func() *library { return &library{groups: true, pairs: pairs} },
		"1.4":      func() *library { return &library{skipsFirst: true, pairs: pairs} },
		"1.6":      func() *library { return &library{skipsFirst: true, inline: true, pairs: pairs} },
		"1.6 date": func() *library { return &library{skipsFirst: true, inline: true, absolute: true, pairs: pairs} },
	}
}

func (l *library) heading() {
	l.out.WriteString("marker time dt_micro device_timestamp")
	for p := range l.pairs {
		fmt.Fprintf(&l.out, " current%d voltage%d power%d", p, p, p)
	}
	l.out.WriteString(" power_total\n")
}

// frame sends a frame at a time of the host in seconds.
func (l *library) frame(micros int64, values [8]float64, mark byte, host float64) {
	if l.previous == 0 {
		l.previous = host - 1e-4
	}
	l.host = host
	if mark != 0 {
		l.marks = append(l.marks, mark)
	}
	l.packet(7, true, float64(micros%1024), true)
	for i, v := range values {
		l.packet(i, mark != 0 && i == 0, v, false)
	}
}

func (l *library) packet(sensor int, bit bool, value float64, stamp bool) {
	l.marker = l.marker || bit
	if l.skipsFirst && !l.begun {
		l.begun = true
		return
	}
	if l.marker && sensor == 7 {
		if l.marker = false; stamp {
			l.stamp = int(value)
		} else {
			l.stamp = 1023 // a level that is taken for a stamp
		}
		return
	}
	l.levels[sensor] = value
	full := 8
	if l.groups {
		full = 2 * l.pairs
	}
	if l.read++; l.read >= full {
		l.read = 0
		l.reading()
	}
}

func (l *library) number(v float64) string {
	if l.absolute {
		return strconv.FormatFloat(v, 'f', 6, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

func (l *library) reading() {
	first := "S"
	if l.marker {
		l.marker = false
		c := l.marks[0]
		l.marks = l.marks[1:]
		l.lastMark = string([]byte{c})
		if l.inline {
			first = l.lastMark
		} else {
			fmt.Fprintf(&l.out, "M %c\n", c)
		}
	}
	l.host += 2e-6 + 8e-6*l.rng.Float64()
	at := l.host
	if l.absolute {
		at = float64(int64(1e6*(1733935203+l.host))) / 1e6
	}
	fmt.Fprintf(&l.out, "%s %s %d %d", first, l.number(at), int(1e6*(l.host-l.previous)), l.stamp)
	l.previous = l.host
	total := 0.0
	for p := range l.pairs {
		i, v := l.levels[2*p], l.levels[2*p+1]
		fmt.Fprintf(&l.out, " %s %s %s", l.number(i), l.number(v), l.number(i*v))
		total += i * v
	}
	fmt.Fprintf(&l.out, " %s\n", l.number(total))
}
