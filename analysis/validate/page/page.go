// Package page presents validations: as one self-contained page of HTML with its
// plots inlined, for light and dark, and as a figure in SVG. A page loads nothing
// and runs nothing.
package page

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"image/color"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Page is the content of a page.
type Page struct {
	Reports []*validate.Report
	Summary validate.Summary
	Refused []Refusal
	Made    time.Time
	Maker   string // program and version
}

// Refusal is a subject that could not be judged.
type Refusal struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// short cuts a name for a plot, and makes it printable.
func short(s string) string { return measure.Shorten(measure.Printable(s), 30) }

// drawing is a plot within a page.
type drawing struct {
	caption string
	svg     string
}

// drawings draws the two plots of a report for a page.
func drawings(r *validate.Report) ([]drawing, error) {
	power, energy, err := plots(r)
	if err != nil {
		return nil, err
	}
	var out []drawing
	for _, x := range []struct {
		p       *plot.Plot
		width   vg.Length
		caption string
	}{
		{power, powerWidth, "The meter's power (mean and range of its samples) and what each method read meanwhile."},
		{
			energy, energyWidth,
			"The energy that each method says, with its interval, beside the meter's with its uncertainty.",
		},
	} {
		// The page has the title as a caption, and its own ground.
		x.p.BackgroundColor = color.Transparent
		label := x.p.Title.Text
		x.p.Title.Text = ""
		svg, err := inline(x.p, x.width, label)
		if err != nil {
			return nil, err
		}
		out = append(out, drawing{x.caption, svg})
	}
	return out, nil
}

var (
	prolog = lazy.Regexp(`(?s)^.*?<svg[^>]*>`)
	hex    = lazy.Regexp(`#[0-9A-Fa-f]{6}`)
)

// inline draws a plot as an element of a page, in the page's colours. The drawing
// library escapes its output, names included.
func inline(p *plot.Plot, width vg.Length, label string) (string, error) {
	c := vgsvg.New(width, rowHeight)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if err := figure.Encode(&b, c); err != nil {
		return "", err
	}
	body := prolog().ReplaceAllString(b.String(), "")
	body = hex().ReplaceAllStringFunc(body, func(h string) string {
		if v, ok := variables[strings.ToUpper(h)]; ok {
			return "var(" + v + ")"
		}
		return h
	})
	head := fmt.Sprintf(`<svg role="img" aria-label="%s" viewBox="0 0 %.6g %.6g" xmlns="http://www.w3.org/2000/svg"`+
		` xmlns:xlink="http://www.w3.org/1999/xlink">`,
		html.EscapeString(label), width.Points(), rowHeight.Points())
	return head + body, nil
}

// variables are the page's colours by those that plots are drawn in.
var variables = func() map[string]string {
	out := map[string]string{}
	for name, c := range map[string]color.NRGBA{
		"--fg": figure.Ink, "--grid": figure.Lines, "--truth": figure.Truth, "--band": figure.Band,
		"--bg": figure.Ground,
	} {
		out[figure.Hex(c)] = name
	}
	for m, c := range figure.Methods {
		out[figure.Hex(c)] = "--m-" + m
	}
	for i, c := range figure.Others {
		out[figure.Hex(c)] = fmt.Sprintf("--o-%d", i)
	}
	return out
}()

// none stands for an undetermined figure.
const none = "–"

// known returns the text of a figure, with its first sign as a minus, or none where it is undetermined.
func known[T ~float64](v T, text string) string {
	if !measure.Known(v) {
		return none
	}
	return strings.Replace(text, "-", "−", 1)
}

// energyText writes E ± U with two significant digits of U.
func energyText[E, U ~float64](e E, u U) string {
	if !measure.Known(e) {
		return none
	}
	if !(u > 0) || !measure.Known(u) {
		return joules(measure.Joule(e))
	}
	d := measure.Decimals(float64(u))
	return fmt.Sprintf("%.*f ± %.*f J", d, float64(e), d, float64(u))
}

// joules writes an energy by itself.
func joules(e measure.Joule) string {
	if !measure.Known(e) {
		return none
	}
	return strconv.FormatFloat(float64(e), 'g', 5, 64) + " J"
}

// figureText returns a function that writes a figure by a format, with its sign as a minus.
func figureText[T ~float64](format string) func(T) string {
	return func(v T) string { return known(v, fmt.Sprintf(format, float64(v))) }
}

// percent writes an error, percentPlain a share, watts a power to a tenth of a watt.
var (
	percent      = figureText[measure.Number]("%+.2f %%")
	percentPlain = figureText[measure.Number]("%.2f %%")
	watts        = figureText[measure.Watt]("%.1f W")
)

// interval writes an interval of an error.
func interval(i validate.Interval) string {
	if !measure.Known(i.Lo) || !measure.Known(i.Hi) {
		return none
	}
	return strings.ReplaceAll(fmt.Sprintf("%+.2f … %+.2f %%", i.Lo, i.Hi), "-", "−")
}

// span writes a time with its sign as a minus.
func span(s measure.Seconds) string { return known(s, s.String()) }

// Clock describes the relation of the meter's clock to the host's in lines; of a recovered
// clock also the time at which the offset holds, the edges behind it, and the breaks.
func Clock(c validate.Clock) (lines []string) {
	out := cmp.Or(c.How, "as given")
	switch {
	case measure.Known(c.Offset) && measure.Known(c.OffsetU) && (c.Offset != 0 || c.OffsetU != 0):
		out += fmt.Sprintf("; %s were added to its times, ± %s (k = 2)", span(c.Offset), span(c.OffsetU))
	case !measure.Known(c.OffsetU):
		out += ", how well is not known"
	case c.OffsetU != 0:
		out += fmt.Sprintf(", ± %s (k = 2)", span(c.OffsetU))
	}
	if measure.Known(c.DriftPPM) && measure.Known(c.DriftUPPM) && c.DriftUPPM != 0 {
		gains := fmt.Sprintf("; it gains %+.1f ± %.1f ppm on the host's", c.DriftPPM, c.DriftUPPM)
		out += strings.Replace(gains, "-", "−", 1)
	}
	lines = []string{out}
	f := c.Found
	if f == nil || c.OffsetAt == nil {
		return lines
	}
	out = fmt.Sprintf("the offset is that at %.3f s, %s; found by %d edges of the power, %d lie off, %d not seen",
		float64(*c.OffsetAt), milliseconds(c.Offset, c.OffsetU), f.Edges, f.Rejected, f.Unseen)
	if measure.Known(f.Scatter) {
		out += fmt.Sprintf("; one scatters by %.3f ms", 1e3*float64(f.Scatter))
	}
	lines = append(lines, out)
	for _, b := range f.Breaks {
		lines = append(lines, fmt.Sprintf("%s at %.3f s: %s", milliseconds(b.Size, b.U), float64(b.At), b.Note))
	}
	return lines
}

// milliseconds writes a time with its expanded uncertainty, which is left out where it is not known.
func milliseconds(v, u measure.Seconds) string {
	if !measure.Known(u) {
		return fmt.Sprintf("%+.3f ms", 1e3*float64(v))
	}
	return fmt.Sprintf("%+.3f ± %.3f ms", 1e3*float64(v), 1e3*float64(u))
}

// missing gives the bound of a rail that is not measured.
func missing(m validate.MissingRail) string {
	if !measure.Known(m.Most) {
		return fmt.Sprintf("%s: %s", m.Name, m.Reason)
	}
	return fmt.Sprintf("%s: at most %s (%s)", m.Name, watts(m.Most), m.Reason)
}

// colourClass is the class of a method's swatch.
func colourClass(r *validate.Report, name string) string {
	i := slices.IndexFunc(r.Methods, func(m validate.MethodReport) bool { return m.Name == name })
	return "sw-" + strings.TrimPrefix(variables[figure.Hex(colours(r)[i])], "--")
}

// lagText writes a lag with its uncertainty.
func lagText(m validate.MethodReport) string {
	d := 0
	ms := 1e3 * float64(m.LagU)
	if ms > 0 && ms < 10 {
		d = 1
	}
	return known(m.Lag, fmt.Sprintf("%.*f ± %.*f ms", d, 1e3*float64(m.Lag), d, ms))
}

// Notes returns the notes on methods; the same note on several is given once.
func Notes(list []validate.MethodReport) (out []string) {
	var by lists.Groups[string, string]
	for i := range list {
		m := &list[i]
		if m.Note != "" {
			by.Add(m.Note, m.Name)
		}
		if m.LateEnds() {
			by.Add(fmt.Sprintf("%+.2f %% of its error come from the begin and the end of the work, which it shows %v "+
				"late; the interval is without them", m.EndsPct, m.Lag), m.Name)
		}
		if m.LagNote != "" {
			by.Add("lag: "+m.LagNote, m.Name)
		}
	}
	return lists.Map(by.Keys, func(t string) string { return strings.Join(by.Of[t], ", ") + ": " + t })
}

// definitions are the methods in a sentence each.
var definitions = map[string]string{
	"sma": "background sampling of GetPowerUsage every 15 ms, not synchronised to the work: E = Σ P · 15 " +
		"ms over the readings within it (Arafa et al., IV-A).",
	"mtsm": "a second thread reads GetPowerUsage from launch to synchronise: E = T/N · Σ P (Arafa et al., " +
		"IV-C, Eq. 2).",
	"papi":    "GetPowerUsage once, when the work has been synchronised: E = P · T (Arafa et al., IV-B).",
	"average": "NVML's field 185, the mean over a window (1 s on a Hopper), integrated by trapezoids.",
	"instant": "NVML's field 186, the mean over a short window of each update (25 of 100 ms on a Hopper), " +
		"integrated by trapezoids.",
	"usage": "nvmlDeviceGetPowerUsage, integrated by trapezoids.",
	"counter": "the energy counter's slope from its first to its last change within the work, times T; its " +
		"power is drawn between its updates.",
	"counter-ends": "the energy counter after the work less the energy counter before it.",
}

// definition returns a method in a sentence, that of given readings for an unknown one.
func definition(name string) string {
	if d, ok := definitions[name]; ok {
		return d
	}
	if strings.HasPrefix(name, "nvidia-smi ") {
		return "a column of the log of nvidia-smi, integrated by trapezoids over its time stamps."
	}
	return "readings as they were given, integrated by trapezoids unless the method brings an energy of its own."
}
