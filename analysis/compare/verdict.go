package compare

import (
	"fmt"
	"math"
	"strings"

	"github.com/wattmark/wattmark/measure"
)

// more is how many runs the verdict thinks of adding to each side.
const more = 5

// Repeats are the runs of each that are advised.
const Repeats = 5

// Verdict states the differences shown in energy and time, in one sentence. With one
// run on either side it states the ratios, and that no difference follows from them.
func Verdict(energy, time *Effect) string {
	if energy.Holds != BothSides {
		return lone(energy, time)
	}
	if !measure.Known(energy.P) {
		return "Nothing is known of what chance does to these energies: the runs of each side are equal to the last " +
			"digit; no difference can be told from chance."
	}
	var parts []string
	state := func(format string, e *Effect) {
		parts = append(parts, fmt.Sprintf(format, amount(e), PText(float64(e.Holm))))
	}
	if energy.Shown {
		state("B uses %s energy (p %s)", energy)
	} else {
		state("no difference in energy could be shown (B uses %s, p %s)", energy)
	}
	switch {
	case !measure.Known(time.P):
	case time.Shown:
		state("it takes %s time (p %s)", time)
	default:
		state("no difference in time could be shown (%s, p %s)", time)
	}
	if !energy.turns && (energy.Shown || time.Shown) {
		parts = append(parts, "this holds only if nothing else changed between the runs of A and those of B, which "+
			"did not take turns: "+
			"what warms up or drifts shows as a difference, and p does not know of it")
	}
	if !energy.Shown {
		change, _ := energy.Visible(len(energy.a.logs)+more, len(energy.b.logs)+more)
		parts = append(parts,
			fmt.Sprintf("with %d more repeats of each one would see %.*f %%", more, decimals(100*change), 100*change))
	}
	s := strings.Join(parts, "; ") + "."
	return strings.ToUpper(s[:1]) + s[1:]
}

// lone is the verdict where a side has a single run.
func lone(energy, time *Effect) string {
	who, covers := "one run of each", "± is the meters' alone"
	if n := len(energy.a.logs) + len(energy.b.logs); n > 2 {
		side, other := "A", "B"
		if len(energy.b.logs) == 1 {
			side, other = other, side
		}
		who, covers = fmt.Sprintf("one run of %s and %d of %s", side, n-1,
			other), fmt.Sprintf("± takes the run of %s to scatter as those of %s do", side, other)
	}
	if !(energy.U > 0) {
		covers = "nothing is known of the meters' uncertainty"
	}
	return fmt.Sprintf("B over A, by %s: energy %s, time %s (%s). One run cannot tell a difference of the work from "+
		"its scatter from run to run: "+
		"repeat each at least three times, better %d times, in turns; %d of each show in 4 of 5 cases a difference "+
		"twice as large as the scatter of a run.",
		who, ratioText(energy), ratioText(time), covers, Repeats, Repeats)
}

// ratioText is a ratio with its interval: "0.9973 ± 0.0023".
func ratioText(e *Effect) string {
	u := e.ChangeU()
	if !(u > 0) || math.IsInf(u, 0) {
		return fmt.Sprintf("%.4g", e.Ratio)
	}
	d := max(decimals(u), 3)
	return fmt.Sprintf("%.*f ± %.*f", d, e.Ratio, d, u)
}

// amount is a change with its interval: "12.3 ± 0.8 % less".
func amount(e *Effect) string {
	c, u := 100*float64(e.Relative), 100*e.ChangeU()
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
