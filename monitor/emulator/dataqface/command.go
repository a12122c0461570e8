package dataqface

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"wattmark/measure"
)

const maxLine = 64

// received takes a byte of a command; a carriage return ends it.
func (f *Face) received(b byte) error {
	if b != '\r' {
		if len(f.line) < maxLine {
			f.line = append(f.line, b)
		}
		return nil
	}
	words := strings.Fields(string(f.line))
	f.line = f.line[:0]
	if len(words) == 0 {
		return nil
	}
	if f.scanning {
		if words[0] != "stop" {
			return nil // nothing else is heard while it scans
		}
		f.scanning, f.out = false, f.out[:0] // a packet that is not full is not sent
		return f.echo("stop")
	}
	return f.command(words[0], numbers(words[1:]))
}

func numbers(words []string) (n []uint32) {
	for _, w := range words {
		v, err := strconv.ParseUint(w, 10, 32)
		if err != nil {
			return nil
		}
		n = append(n, uint32(v))
	}
	return n
}

// echo answers a command with itself.
func (f *Face) echo(words ...any) error {
	return f.w.Write(append([]byte(strings.TrimSuffix(fmt.Sprintln(words...), "\n")), '\r'))
}

// command carries out a command; what the device does not know, or cannot do, it
// does not echo.
func (f *Face) command(name string, n []uint32) error {
	switch {
	case name == "stop":
		return f.echo(name)
	case name == "start" && len(n) <= 1:
		f.start()
		return nil // never echoed
	case name == "info" && len(n) == 1:
		return f.echo(name, n[0], f.info(n[0]))
	case name == "slist" && len(n) == 2:
		if !f.setItem(int(n[0]), uint16(n[1])) {
			return nil
		}
	case name == "srate" && len(n) == 1 && n[0] >= 1 && n[0] <= 65535:
		f.srate = n[0]
	case name == "dec" && f.model.divider && len(n) == 1 && n[0] >= 1 && n[0] <= 512:
		f.dec = n[0]
	case name == "filter" && f.model.divider && len(n) == 2:
	case name == "ps" && len(n) == 1 && n[0] <= 7:
		f.packet = 16 << n[0]
	case name == "encode" && len(n) == 1 && n[0] == 0:
	default:
		return nil
	}
	args := []any{name}
	for _, v := range n {
		args = append(args, v)
	}
	return f.echo(args...)
}

func (f *Face) info(what uint32) string {
	switch what {
	case 0:
		return "DATAQ"
	case 1:
		return f.model.number
	case 2:
		return "101"
	case 6:
		return fmt.Sprintf("%08X00", 0x59A0_0000+f.cfg.Seed&0xFFFF)
	case 9:
		return strconv.FormatUint(uint64(f.cfg.Dividend), 10)
	}
	return "0"
}

const digitalItem = 8

// setItem puts an item into the scan list; its first one begins a new list.
func (f *Face) setItem(at int, item uint16) bool {
	number, gain := int(item&0xFF), int(item>>8)
	known := number < f.model.inputs && gain < len(f.model.ranges) || number == digitalItem && gain == 0 && f.model.divider
	if !known || at > len(f.scanList) || at > f.model.inputs {
		return false
	}
	if at == 0 {
		f.scanList = f.scanList[:0]
	}
	f.scanList = append(f.scanList[:at], item)
	return true
}

// start begins to scan.
func (f *Face) start() {
	n := len(f.scanList)
	step := float64(max(f.srate, f.model.least(n))) * float64(f.dec) * 1e9 / float64(f.cfg.Dividend) / (1 + f.clock)
	if f.model.items {
		step *= float64(n)
	}
	f.beat.Start, f.beat.Next, f.beat.Step = f.beat.Pace.Now(f.beat.Now()), 0, step
	f.started.Store(int64(f.beat.Start))
	f.scanning, f.out = true, f.out[:0]
	for len(f.power) < n {
		f.power = append(f.power, make([]measure.Watt, maxScans))
	}
	f.scanList = slices.Clip(f.scanList)
}
