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

// inPairs is the advised order.
const inPairs = "in pairs of random order (wattmark run --times)"

// Verdict states the differences shown in energy and time, in one sentence. Without a
// test it states the ratios, the reason, and the remedy.
func Verdict(energy, time *Effect) string {
	if !energy.Design.tested() {
		return untested(energy, time)
	}
	if !measure.Known(energy.P) {
		return "Nothing is known of what chance does to these energies: the runs of each side are equal to the last " +
			"digit; no difference can be told from chance."
	}
	var parts []string
	state := func(format string, e *Effect) {
		parts = append(parts, fmt.Sprintf(format, amount(e), PText(float64(e.Corrected))))
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
	if !energy.Shown {
		sd, _ := energy.Scatter()
		change := 100 * energy.Visible(len(energy.a.logs)+more, len(energy.b.logs)+more, sd)
		parts = append(parts, fmt.Sprintf("with %d more repeats of each one would see %.*f %%", more,
			decimals(change), change))
	}
	s := strings.Join(parts, "; ") + "."
	return strings.ToUpper(s[:1]) + s[1:]
}

// untested is the verdict of runs whose design has no test.
func untested(energy, time *Effect) string {
	na, nb := len(energy.a.logs), len(energy.b.logs)
	covers, reason := "± is the meters' and the runs' scatter, without a drift", ""
	runs := fmt.Sprintf("%s of A and %d of B", measure.Plural(na, "run"), nb)
	switch energy.Design {
	case Blocks:
		reason = "All of one side ran before all of the other: a drift of the card looks the same as a difference."
	case LongBlocks:
		reason = "The runs hardly took turns: a drift of the card looks the same as a difference."
	case Unordered:
		reason = "The order of the runs is not known: a drift of the card may look like a difference."
	case Few:
		reason = fmt.Sprintf("A test needs %d pairs of random order, or %d runs in turns: a drift and the scatter cannot "+
			"be told apart in fewer.", leastPairs, leastRuns)
	case EndedEarly:
		covers = "± is the meters' and the runs' scatter"
		reason = "The series ended before its planned pairs: an end that may depend on the result has no p."
	default:
		reason = "One run cannot tell a difference of the work from its scatter from run to run."
		runs, covers = "one run of each", "± is the meters' alone"
		if na+nb > 2 {
			side, other := "A", "B"
			if nb == 1 {
				side, other = other, side
			}
			runs = fmt.Sprintf("one run of %s and %d of %s", side, na+nb-1, other)
			covers = fmt.Sprintf("± takes the run of %s to scatter as those of %s do", side, other)
		}
	}
	if !(energy.U > 0) {
		covers = "nothing is known of the meters' uncertainty"
	}
	return fmt.Sprintf("B over A, by %s: energy %s, time %s (%s). %s %s", runs, ratioText(energy), ratioText(time),
		covers, reason, remedy(energy))
}

// remedy is a sentence on the runs that would show the difference in energy, on which scatter.
func remedy(energy *Effect) string {
	sd, seen := energy.Scatter()
	if !(sd > 0) {
		return fmt.Sprintf("Repeat each %d times, %s.", Repeats, inPairs)
	}
	scatter := fmt.Sprintf("if runs scatter by %.2g %%, as these do", 100*sd)
	if !seen {
		scatter = fmt.Sprintf("if runs scatter by %.2g %%, which is an assumption", 100*sd)
	}
	n := energy.Needed(sd)
	if n == 0 {
		return fmt.Sprintf("%d runs of each, %s, would not tell this difference in energy from chance, %s.", mostNeeded,
			inPairs, scatter)
	}
	return fmt.Sprintf("%d runs of each, %s, would tell a difference in energy of this size from chance in 4 of 5 "+
		"cases, %s.", n, inPairs, scatter)
}

// ratioText is a ratio with its interval: "0.9973 ± 0.0023".
func ratioText(e *Effect) string {
	u := e.ChangeU()
	if !(u > 0) || math.IsInf(u, 0) {
		return fmt.Sprintf("%.4g", e.Ratio)
	}
	if loose := Loose(e.Low, e.High); loose != "" {
		return fmt.Sprintf("%.3g %s", e.Ratio, loose)
	}
	d := max(decimals(u), 3)
	return fmt.Sprintf("%.*f ± %.*f", d, e.Ratio, d, u)
}

// amount is a change with its interval: "12.3 ± 0.8 % less", "69 % less (to a factor of 40)".
func amount(e *Effect) string {
	c, u := 100*float64(e.Relative), 100*e.ChangeU()
	word := "more"
	if c < 0 {
		word = "less"
	}
	if loose := Loose(e.Low, e.High); loose != "" {
		return fmt.Sprintf("%.3g %% %s (%s)", math.Abs(c), word, loose)
	}
	digits := decimals(u)
	if u < 10 {
		digits = max(digits, 1)
	}
	return fmt.Sprintf("%.*f ± %.*f %% %s", digits, math.Abs(c), digits, u, word)
}

// Loose states an interval of a positive quantity by the factor to either side, where that is above 3 and half of the
// width means little: "to a factor of 25". It is empty for others.
func Loose(low, high float64) string {
	switch f := math.Sqrt(high / low); {
	case f > 1000:
		return "to a factor above 1000"
	case f > 3:
		return fmt.Sprintf("to a factor of %.2g", f)
	}
	return ""
}

// decimals is how many make two digits of u where it begins with a 1 or a 2, else one.
func decimals(u float64) int {
	d := measure.Decimals(u)
	if u/math.Pow(10, math.Floor(math.Log10(u))) >= 2.95 {
		d--
	}
	return min(max(d, 0), 6)
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
