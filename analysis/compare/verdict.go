package compare

import (
	"fmt"
	"math"
	"strings"
)

// more is how many runs the verdict thinks of adding to each side.
const more = 5

// Verdict says what was shown of energy and time, in one sentence.
func Verdict(energy, time *Effect) string {
	if math.IsNaN(energy.P) {
		return "Nothing is known of what chance does to these energies: neither a budget nor repeats; no difference can be told from chance."
	}
	var parts []string
	if energy.Shown() {
		parts = append(parts, "B uses "+amount(energy)+" energy "+chanceText(energy))
	} else {
		parts = append(parts, "no difference in energy could be shown (B uses "+amount(energy)+", "+strings.Trim(chanceText(energy), "()")+")")
	}
	switch {
	case math.IsNaN(time.P):
	case time.Shown():
		parts = append(parts, "it takes "+amount(time)+" time "+chanceText(time))
	default:
		parts = append(parts, fmt.Sprintf("no difference in time could be shown (%s, %s)", amount(time), strings.Trim(chanceText(time), "()")))
	}
	if !energy.Shown() {
		parts = append(parts, outlook(energy))
	}
	s := strings.Join(parts, "; ") + "."
	return strings.ToUpper(s[:1]) + s[1:]
}

// outlook says what more runs would show.
func outlook(e *Effect) string {
	a, b := len(e.a.logs), len(e.b.logs)
	change, seen := e.Visible(a+more, b+more)
	if !seen {
		return "repeat each at least three times: with one run, nobody has seen how the work itself varies"
	}
	return fmt.Sprintf("with %d more repeats of each one would see %s %%", more, twoDigits(100*change))
}

// amount is a change with its interval: "12.3 ± 0.8 % less".
func amount(e *Effect) string {
	c, u := 100*e.Change(), 100*e.ChangeU()
	word := "more"
	if c < 0 {
		word = "less"
	}
	digits := decimals(u)
	if u < 10 {
		digits = max(digits, 1)
	}
	return fmt.Sprintf("%.*f ± %.*f %% %s", digits, math.Abs(c), digits, u, word)
}

// decimals is how many make two digits of u where it begins with a 1 or a 2, else one.
func decimals(u float64) int {
	if !(u > 0) || math.IsInf(u, 0) {
		return 2
	}
	exponent := int(math.Floor(math.Log10(u)))
	if u/math.Pow(10, float64(exponent)) < 2.95 {
		exponent--
	}
	return min(max(-exponent, 0), 6)
}

func twoDigits(v float64) string { return fmt.Sprintf("%.*f", max(decimals(v), 0), v) }

// PText writes a chance: three digits are more than it is good for.
func PText(p float64) string {
	switch {
	case math.IsNaN(p):
		return "unknown"
	case p < 1e-4:
		return "< 0.0001"
	case p < 0.01:
		return fmt.Sprintf("= %.1g", p)
	}
	return fmt.Sprintf("= %.2g", p)
}

func chanceText(e *Effect) string { return "(p " + PText(e.Holm) + ")" }
