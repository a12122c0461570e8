package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"wattmark/analysis/validate"
	"wattmark/measure"
)

// none stands for what cannot be told.
const none = "–"

func isNumber(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// energyText writes E ± U with two significant digits of U.
func energyText[E, U ~float64](e E, u U) string {
	if !isNumber(float64(e)) {
		return none
	}
	if !(u > 0) || !isNumber(float64(u)) {
		return joules(measure.Joule(e))
	}
	d := max(0, min(9, 1-int(math.Floor(math.Log10(float64(u))))))
	return fmt.Sprintf("%.*f ± %.*f J", d, float64(e), d, float64(u))
}

// joules writes an energy by itself.
func joules(e measure.Joule) string {
	if !isNumber(float64(e)) {
		return none
	}
	return strconv.FormatFloat(float64(e), 'g', 5, 64) + " J"
}

// percent writes an error.
func percent(v float64) string {
	if !isNumber(v) {
		return none
	}
	return strings.Replace(fmt.Sprintf("%+.2f %%", v), "-", "−", 1)
}

// percentPlain writes a share.
func percentPlain(v float64) string {
	if !isNumber(v) {
		return none
	}
	return fmt.Sprintf("%.2f %%", v)
}

// interval writes an interval of an error.
func interval(lo, hi float64) string {
	if !isNumber(lo) || !isNumber(hi) {
		return none
	}
	return strings.ReplaceAll(fmt.Sprintf("%+.2f … %+.2f %%", lo, hi), "-", "−")
}

func watts(w measure.Watt) string {
	if !isNumber(float64(w)) {
		return none
	}
	return strings.Replace(fmt.Sprintf("%.1f W", float64(w)), "-", "−", 1)
}

func span(s measure.Seconds) string {
	if !isNumber(float64(s)) {
		return none
	}
	return strings.Replace(s.String(), "-", "−", 1)
}

func count(n int) string { return strconv.Itoa(n) }

// clockText says how the meter's clock was put on the host's.
func clockText(c validate.Clock) string {
	if c.How == "" && c.Offset == 0 {
		return "as given"
	}
	out := c.How
	if isNumber(float64(c.Offset)) && isNumber(float64(c.OffsetU)) {
		out += fmt.Sprintf("; %s were added to its times, ± %s (k = 2)", span(c.Offset), span(c.OffsetU))
	} else if isNumber(float64(c.OffsetU)) {
		out += fmt.Sprintf(", ± %s (k = 2)", span(c.OffsetU))
	}
	if isNumber(c.DriftPPM) && isNumber(c.DriftUPPM) {
		out += fmt.Sprintf("; it gains %+.1f ± %.1f ppm on the host's", c.DriftPPM, c.DriftUPPM)
	}
	return out
}

// missing says what a rail that is not measured may carry.
func missing(m validate.MissingRail) string {
	if !isNumber(float64(m.Most)) {
		return fmt.Sprintf("%s: %s", m.Name, m.Reason)
	}
	return fmt.Sprintf("%s: at most %s (%s)", m.Name, watts(m.Most), m.Reason)
}

// colourClass is the class of a method's swatch.
func colourClass(r *validate.Report, name string) string {
	cs := colours(r)
	for i := range r.Methods {
		if r.Methods[i].Name == name {
			c := cs[i]
			return "sw-" + strings.TrimPrefix(variables[fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B)], "--")
		}
	}
	return ""
}

// swatches are the names of the methods' colours.
func swatches() []template.CSS {
	var out []template.CSS
	for _, v := range variables {
		if n := strings.TrimPrefix(v, "--"); strings.HasPrefix(n, "m-") || strings.HasPrefix(n, "o-") {
			out = append(out, template.CSS(n)) // #nosec G203 -- names of variables of this package
		}
	}
	slices.Sort(out)
	return out
}

// lagText writes a lag with its uncertainty.
func lagText(m validate.MethodReport) string {
	if !isNumber(float64(m.Lag)) {
		return none
	}
	d := 0
	ms := 1e3 * float64(m.LagU)
	if ms > 0 && ms < 10 {
		d = 1
	}
	return strings.Replace(fmt.Sprintf("%.*f ± %.*f ms", d, 1e3*float64(m.Lag), d, ms), "-", "−", 1)
}

// Notes are what is to be said of methods beside their figures; the same of several
// is said once.
func Notes(list []validate.MethodReport) (out []string) {
	var texts []string
	by := map[string][]string{}
	add := func(name, text string) {
		if text == "" {
			return
		}
		if by[text] == nil {
			texts = append(texts, text)
		}
		by[text] = append(by[text], name)
	}
	for i := range list {
		add(list[i].Name, list[i].Note)
		if list[i].LagNote != "" {
			add(list[i].Name, "lag: "+list[i].LagNote)
		}
	}
	for _, t := range texts {
		out = append(out, strings.Join(by[t], ", ")+": "+t)
	}
	return out
}

// definitions are the methods in a sentence each.
var definitions = map[string]string{
	"sma":          "background sampling of GetPowerUsage every 15 ms, not synchronised to the work: E = Σ P · 15 ms over the readings within it (Arafa et al., IV-A).",
	"mtsm":         "a second thread reads GetPowerUsage from launch to synchronise: E = T/N · Σ P (Arafa et al., IV-C, Eq. 2).",
	"papi":         "GetPowerUsage once, when the work has been synchronised: E = P · T (Arafa et al., IV-B).",
	"average":      "NVML's field 185, the mean over a window (1 s on a Hopper), integrated by trapezoids.",
	"instant":      "NVML's field 186, the mean over a short window of each update (25 of 100 ms on a Hopper), integrated by trapezoids.",
	"usage":        "nvmlDeviceGetPowerUsage, integrated by trapezoids.",
	"counter":      "the energy counter's slope from its first to its last change within the work, times T; its power is drawn between its updates.",
	"counter-ends": "the energy counter after the work less the energy counter before it.",
}

func definition(name string) string {
	if d, ok := definitions[name]; ok {
		return d
	}
	if strings.HasPrefix(name, "nvidia-smi ") {
		return "a column of the log of nvidia-smi, integrated by trapezoids over its time stamps."
	}
	return "readings as they were given, integrated by trapezoids unless the method brings an energy of its own."
}
