package metercsv

import (
	"errors"
	"fmt"
	"strings"
)

// units are the endings that columns may have, with what makes SI of them.
var (
	timeUnits  = map[string]float64{"s": 1, "sec": 1, "seconds": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
	powerUnits = map[string]float64{"w": 1, "watts": 1, "mw": 1e-3, "kw": 1e3, "uw": 1e-6}
	voltUnits  = map[string]float64{"v": 1, "mv": 1e-3}
	ampUnits   = map[string]float64{"a": 1, "ma": 1e-3}
)

// split parts a column's name from its unit: power_w, power [W], power (W).
func split(header string) (name, unit string) {
	s := strings.ToLower(strings.TrimSpace(strings.TrimPrefix(header, "\ufeff")))
	if i := strings.IndexAny(s, "[("); i > 0 {
		return strings.TrimRight(s[:i], " _"), strings.Trim(s[i:], "[]() ")
	}
	if i := strings.LastIndexAny(s, "_ "); i > 0 {
		if _, ok := anyUnit(s[i+1:]); ok {
			return strings.TrimRight(s[:i], " _"), s[i+1:]
		}
	}
	return s, ""
}

func anyUnit(u string) (float64, bool) {
	for _, m := range []map[string]float64{timeUnits, powerUnits, voltUnits, ampUnits} {
		if v, ok := m[u]; ok {
			return v, true
		}
	}
	return 0, false
}

// layoutOf finds the columns. A total of power goes before those of rails, power
// before voltage and current.
func layoutOf(names []string) (l layout, err error) {
	l.time.index = -1
	var total, rails []column
	volts, amps := map[string]column{}, map[string]column{}
	var order []string
	for i, header := range names {
		name, unit := split(header)
		c := column{index: i, name: strings.TrimSpace(header)}
		switch {
		case name == "t" || name == "time" || name == "timestamp":
			if l.time.index >= 0 {
				return l, fmt.Errorf("columns %q and %q are both times: leave one", l.time.name, c.name)
			}
			c.scale = timeUnits[unit] // 0: only times with a zone, or since 1970
			l.time = c
		case name == "power" || name == "total_power" || name == "p" || strings.HasSuffix(name, "_power") || strings.HasSuffix(name, " power"):
			if c.scale = powerUnits[unit]; c.scale == 0 {
				return l, fmt.Errorf("column %q: say its unit, as in power_w or power_mw", header)
			}
			if name == "power" || name == "total_power" || name == "p" {
				total = append(total, c)
			} else {
				rails = append(rails, c)
			}
		case strings.HasSuffix(name, "voltage") && voltUnits[unit] > 0:
			c.scale = voltUnits[unit]
			volts[strings.TrimSuffix(name, "voltage")] = c
			order = append(order, strings.TrimSuffix(name, "voltage"))
		case strings.HasSuffix(name, "current") && ampUnits[unit] > 0:
			c.scale = ampUnits[unit]
			amps[strings.TrimSuffix(name, "current")] = c
		}
	}
	if l.time.index < 0 {
		return l, fmt.Errorf("no column of time in %q: want time_s, time_ms, time_us or time_ns, or timestamp with zoned times or seconds since 1970", names)
	}
	return l, l.choose(total, rails, order, volts, amps, names)
}

func (l *layout) choose(total, rails []column, order []string, volts, amps map[string]column, names []string) error {
	switch {
	case len(total) > 1:
		return fmt.Errorf("columns %q and %q are both the power: leave one", total[0].name, total[1].name)
	case len(total) == 1:
		l.power = total
		return nil
	case len(rails) > 0:
		l.power = rails
		return nil
	}
	for _, rail := range order {
		if a, ok := amps[rail]; ok {
			l.voltage, l.current = append(l.voltage, volts[rail]), append(l.current, a)
		}
	}
	if len(l.voltage) == 0 {
		return errors.New("no column of power in " + fmt.Sprintf("%q", names) + ": want power_w or power_mw, or voltage_v and current_a")
	}
	return nil
}
