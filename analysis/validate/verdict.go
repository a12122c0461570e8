package validate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"wattmark/measure"
)

// judgeLoad tells how much the truth changes, and how fast against the sensor's
// updates.
func (r *run) judgeLoad() {
	mean := float64(r.rep.Truth.Energy) / float64(len(r.power))
	var all float64
	for _, e := range r.power {
		all += (e - mean) * (e - mean)
	}
	r.rep.Swing = math.Sqrt(all/float64(len(r.power))) / mean
	var slow float64
	for _, m := range r.rep.Methods {
		if u := float64(m.Update); u > slow && u < (r.to-r.from)/2 {
			slow = u
		}
	}
	r.rep.Alternation = r.within(slow)
	for i := range r.rep.Methods {
		m := &r.rep.Methods[i]
		m.blind = r.blind(m)
	}
}

// within is the share of the truth's variance that lies within stretches of a length.
func (r *run) within(length float64) float64 {
	size := max(1, int(math.Round(length/(r.to-r.from)*float64(len(r.power)))))
	mean := float64(r.rep.Truth.Energy) / float64(len(r.power))
	var all, inside float64
	for i := 0; i < len(r.power); i += size {
		part := r.power[i:min(i+size, len(r.power))]
		var sum float64
		for _, e := range part {
			sum += e
		}
		for _, e := range part {
			d := e - sum/float64(len(part))
			inside += d * d
			all += (e - mean) * (e - mean)
		}
	}
	if all == 0 {
		return 0
	}
	return inside / all
}

// blind reports whether the power changes faster than a method has new values, or
// while it shows none.
func (r *run) blind(m *MethodReport) bool {
	if r.rep.Swing < 0.1 || m.Compared < 2 {
		return false
	}
	u := float64(m.Update)
	return math.IsNaN(u) || r.within(u) > 0.5
}

// ratings bound rails that are missing: what a slot may carry after the PCI Express
// Card Electromechanical Specification, table 4-1 (a card of 75 W): 3 A of 3.3 V
// within 9 %, 5.5 A of 12 V within 8 %.
var ratings = []struct {
	words []string
	most  measure.Watt
	why   string
}{
	{[]string{"3.3"}, 10.8, slot3},
	{[]string{"3v3"}, 10.8, slot3},
	{[]string{"aux"}, measure.Watt(math.NaN()), "a plug may carry anything up to its rating"},
	{[]string{"slot", "12"}, 71.3, slot12},
	{[]string{"pcie_12"}, 71.3, slot12},
}

const (
	slot3  = "3 A at 3.6 V is the most that the slot's 3.3 V may carry"
	slot12 = "5.5 A at 12.96 V is the most that the slot's 12 V may carry"
)

// Unseen bounds what a meter does not see, and all of it together: NaN where a rail
// has no bound, zero where the meter sees every rail.
func Unseen(rails []string) (list []MissingRail, most measure.Watt) {
	for _, name := range rails {
		m := MissingRail{Name: name, Most: measure.Watt(math.NaN()), Reason: "nothing bounds it"}
		for _, x := range ratings {
			if hasAll(strings.ToLower(name), x.words) {
				m.Most, m.Reason = x.most, x.why
				break
			}
		}
		list = append(list, m)
		most += m.Most
	}
	return list, most
}

func hasAll(s string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}

// conclude writes the verdict: what is furthest off, and what is nearest. It says of
// each what was held against what: the energy over the work, and, where that agrees,
// by how much the parts of the tables below are off.
func (rep *Report) conclude() {
	var told []*MethodReport
	for i := range rep.Methods {
		if m := &rep.Methods[i]; m.told() {
			told = append(told, m)
		}
	}
	if len(told) == 0 {
		rep.Verdict = "no method says what this work took"
		return
	}
	worst := slices.MaxFunc(told, func(a, b *MethodReport) int {
		sure := func(m *MethodReport) int { return 2*b2i(m.Agreement == Reads) + b2i(m.everOff()) }
		return cmp.Or(sure(a)-sure(b), cmp.Compare(math.Abs(a.ErrorPct), math.Abs(b.ErrorPct)))
	})
	best := slices.MinFunc(told, func(a, b *MethodReport) int {
		// What one reading said is chance, however near it came.
		one := func(m *MethodReport) int { return b2i(m.Compared < 2) }
		return cmp.Or(one(a)-one(b), cmp.Compare(math.Abs(a.ErrorPct)+half(a), math.Abs(b.ErrorPct)+half(b)))
	})
	parts := []string{rep.sentence(worst)}
	if best != worst {
		parts = append(parts, rep.praise(best))
	}
	widest := slices.MaxFunc(told, func(a, b *MethodReport) int { return cmp.Compare(half(a), half(b)) })
	if half(widest) > wild && widest != worst && widest != best {
		parts = append(parts, fmt.Sprintf("of work like this %s may say anything from %+.0f to %+.0f %%", widest.Name, widest.Lo, widest.Hi))
	}
	if len(rep.Missing) > 0 {
		parts = append(parts, rep.lacking())
	}
	rep.Verdict = strings.Join(parts, "; ")
}

// everOff reports whether other work like this would come out off as well: zero does
// not lie in the interval.
func (m *MethodReport) everOff() bool { return m.Lo > 0 || m.Hi < 0 }

// sentence is what a method's error means.
func (rep *Report) sentence(m *MethodReport) string {
	if m.Agreement == Agrees {
		return rep.agreeing(m)
	}
	if !m.everOff() {
		return rep.single(m)
	}
	out := fmt.Sprintf("%s reads %s %s over this work", m.Name, sized(m), way(m))
	switch why := rep.advice(m); {
	case m.Agreement == Unknown:
		out += ", and the meter does not see enough to say how far off that is"
	case why != "":
		out += ": " + why
	}
	return out
}

func way(m *MethodReport) string {
	if m.ErrorPct < 0 {
		return "low"
	}
	return "high"
}

// single is a method that is off over this work, which does not say that it is over
// other work like it.
func (rep *Report) single(m *MethodReport) string {
	against := "outside of the uncertainty"
	if m.Agreement == Unknown {
		against = "which the meter does not see enough to judge"
	}
	d := decimals(half(m))
	return fmt.Sprintf("%s read %.*f %% %s this time, %s; of work like this it may say anything from %+.*f to %+.*f %%",
		m.Name, d, math.Abs(m.ErrorPct), way(m), against, d, m.Lo, d, m.Hi)
}

// agreeing says that a method's energy over the work agrees, and of what in the
// tables that does not speak.
func (rep *Report) agreeing(m *MethodReport) string {
	out := fmt.Sprintf("%s is within the uncertainty over this work (%s)", m.Name, errorText(m))
	var but []string
	if name, off := rep.worstKernel(m.Name); name != "" {
		but = append(but, fmt.Sprintf("by kernel it is off by up to %+.1f %% (%s)", off, name))
	}
	if share := 100 * float64(rep.Truth.U/rep.Truth.Energy); m.Compared > 1 && m.MAPEPct > share {
		but = append(but, fmt.Sprintf("single readings are off by %.2g %% on the average", m.MAPEPct))
	}
	if len(but) > 0 {
		out += ", but " + strings.Join(but, " and ")
	}
	return out
}

// worstKernel is the kernel whose energy a method's readings miss by most, of those
// that they do not agree on; empty where there is none.
func (rep *Report) worstKernel(method string) (name string, off float64) {
	for _, l := range rep.ByKernel(len(rep.Kernels)) {
		if l.Kind == AllKernels {
			continue
		}
		for _, k := range l.Methods {
			if k.Name == method && k.Agreement == Reads && math.Abs(k.ErrorPct) > math.Abs(off) {
				name, off = l.Name, k.ErrorPct
				if l.Kind == WithoutKernel {
					name = "while no kernel ran"
				}
			}
		}
	}
	return name, off
}

// advice says what a method is not to be used for.
func (rep *Report) advice(m *MethodReport) string {
	length := float64(rep.Work.Length())
	switch update := float64(m.Update); {
	case math.Abs(m.ErrorPct) < 3:
		return ""
	case m.blind:
		return "do not use it for kernels that alternate"
	case m.Compared == 1:
		return "one reading does not stand for the work"
	case update > 0 && length < 10*update:
		return fmt.Sprintf("do not use it for work as short as %v", measure.Seconds(length))
	case m.Lag > 0 && float64(m.Lag) > length/20:
		return fmt.Sprintf("it trails the power by %v, too much for work of %v", m.Lag, measure.Seconds(length))
	case math.Abs(m.late) < math.Abs(m.ErrorPct)/3:
		return fmt.Sprintf("it settles too slowly for work of %v", measure.Seconds(length))
	}
	return "calibrate it against the meter before use"
}

// praise is what is said of the nearest method.
func (rep *Report) praise(m *MethodReport) string {
	if m.Agreement == Agrees {
		return rep.agreeing(m)
	}
	return fmt.Sprintf("the nearest, %s, is off by %s", m.Name, errorText(m))
}

// lacking says what missing rails do to the verdict.
func (rep *Report) lacking() string {
	var names []string
	for _, m := range rep.Missing {
		names = append(names, m.Name)
	}
	list := strings.Join(names, ", ")
	if p := float64(rep.MissingPower); !math.IsNaN(p) {
		return fmt.Sprintf("the meter does not see %s, so that true errors lie up to %.1f %% lower", list, 100*p/float64(rep.Mean))
	}
	return fmt.Sprintf("the meter does not see %s: the card draws more than it says, by what nothing bounds", list)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// half is the larger half of a method's interval, in per cent.
func half(m *MethodReport) float64 { return max(m.ErrorPct-m.Lo, m.Hi-m.ErrorPct) }

// lopsided reports an interval that ± does not describe.
func lopsided(m *MethodReport) bool {
	a, b := m.ErrorPct-m.Lo, m.Hi-m.ErrorPct
	return max(a, b) > 1.3*min(a, b) || m.everOff() && half(m) >= math.Abs(m.ErrorPct)
}

// errorText is an error with its interval.
func errorText(m *MethodReport) string {
	d := decimals(half(m))
	if lopsided(m) {
		return fmt.Sprintf("%+.*f %%, %+.*f to %+.*f", d, m.ErrorPct, d, m.Lo, d, m.Hi)
	}
	return fmt.Sprintf("%+.*f ± %.*f %%", d, m.ErrorPct, d, half(m))
}

// sized is the size of an error whose interval does not hold zero.
func sized(m *MethodReport) string {
	d, near, far := decimals(half(m)), math.Abs(m.Lo), math.Abs(m.Hi)
	if lopsided(m) {
		return fmt.Sprintf("%.*f %% (%.*f to %.*f %%)", d, math.Abs(m.ErrorPct), d, min(near, far), d, max(near, far))
	}
	return fmt.Sprintf("%.*f ± %.*f %%", d, math.Abs(m.ErrorPct), d, half(m))
}

// wild is how wide half of an interval has to be to be warned of, in per cent.
const wild = 15

// decimals is how many places after the point an uncertainty deserves: to two
// significant digits below one, one place above.
func decimals(u float64) int {
	if !(u > 0) || math.IsInf(u, 0) {
		return 2
	}
	return max(1, min(3, 1-int(math.Floor(math.Log10(u)))))
}
