package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"wattmark/measure"
)

// rails draws one line a rail, and the total.
func (v topView) rails(s *topState) []string {
	if len(s.rails) == 0 {
		return nil
	}
	name := len("total")
	for _, r := range s.rails {
		name = max(name, ansi.StringWidth(r.name))
	}
	name = min(name, max(v.width/4, 5))
	numbers := name + 3*10 + 2 // three columns of numbers, and a space before the course
	course := max(v.width-numbers, 0)
	wide := v.width >= leastWidth+numbers/2 && course >= 8
	lines := []string{v.look.label(fit("rail", name) + fmt.Sprintf("%10s%10s%10s", "V", "A", "W"))}
	for i, r := range s.rails {
		m := s.moment.Rails[i]
		l := fit(r.name, name) + railCell(float64(m.Voltage), 3) + railCell(float64(m.Current), 3) + watts(m.Power)
		if s.stale {
			l = fit(r.name, name) + fmt.Sprintf("%10s%10s%10s", "–", "–", "–")
		}
		if wide {
			l += "  " + v.look.course(sparkline(r.watts, course-1))
		}
		lines = append(lines, l)
	}
	total := fit("total", name) + fmt.Sprintf("%20s", "peak "+strings.TrimSpace(watts(s.total.peak))) + watts(s.moment.Total)
	if s.stale {
		total = fit("total", name) + fmt.Sprintf("%30s", "not sampled now")
	}
	total = v.look.total(total)
	if wide {
		total += "  " + v.look.course(sparkline(s.total.watts, course-1))
	}
	return append(lines, total)
}

// railCell writes a value in ten columns; a dash where it is not measured.
func railCell(x float64, decimals int) string {
	if x == 0 {
		return fmt.Sprintf("%10s", "–")
	}
	return fmt.Sprintf("%10.*f", decimals, x)
}

func watts(w measure.Watt) string { return fmt.Sprintf("%10.2f", float64(w)) }

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the last values in so many columns, the newest at the right,
// from zero or the lowest below it to the highest that is shown.
func sparkline(w []measure.Watt, columns int) string {
	if columns <= 0 {
		return ""
	}
	w = w[max(len(w)-columns, 0):]
	lo, hi := 0.0, 0.0
	for _, x := range w {
		lo, hi = math.Min(lo, float64(x)), math.Max(hi, float64(x))
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", columns-len(w)))
	for _, x := range w {
		i := 0
		if hi > lo {
			i = int((float64(x) - lo) / (hi - lo) * float64(len(bars)))
		}
		b.WriteRune(bars[min(max(i, 0), len(bars)-1)])
	}
	return b.String()
}

// age is a span for a reader: 12 s, 3 min, 2 h, 5 d.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f d", d.Hours()/24)
}

// thousands parts a number's digits.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
