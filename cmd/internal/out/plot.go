package out

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/internal/lists"
)

// TerminalWidth returns the number of columns of a terminal; 80 if it is unknown.
func TerminalWidth(w io.Writer) int {
	s, ok := w.(*cli.Screen)
	if !ok {
		s = cli.NewScreen(w, true, false)
	}
	return s.Width()
}

// Room returns the number of columns of a terminal; 0 for a stream without limit.
func Room(w io.Writer) int {
	if !IsTerminal(w) {
		return 0
	}
	return TerminalWidth(w)
}

// LeastPlot is the least width of a plot in columns.
const LeastPlot = 20

// PlotWidth returns the width of a plot in columns: that of the terminal less 30 for axis
// and labels, within LeastPlot and 160; 90 if w is no terminal.
func PlotWidth(w io.Writer) int {
	if !IsTerminal(w) {
		return 90
	}
	return min(max(TerminalWidth(w)-30, LeastPlot), 160)
}

// Graph is a plot of power or another quantity in the terminal, with a column for each value;
// NaN leaves a column blank.
type Graph struct {
	Series  [][]float64
	Legends []string               // of the series; nil for none
	Colours []asciigraph.AnsiColor // of the series, on a terminal
	Height  int
	Axis    string // format of the values at the axis, as %.0f W
	Options []asciigraph.Option
	// Ruler is a line of marks below the plot, Key its meaning; empty for none.
	Ruler, Key string
	// First and Last are the ends of the abscissa, Columns apart.
	First, Last string
	Columns     int
	// Room is the width in which key and legend wrap; 0 for that of a terminal.
	Room int
}

// Draw writes the plot: body, ruler, abscissa and legend. Only a terminal gets colours.
func (g *Graph) Draw(w io.Writer) {
	room := cmp.Or(g.Room, Room(w))
	opts := append([]asciigraph.Option{
		asciigraph.Height(g.Height), asciigraph.Offset(3), asciigraph.Precision(0),
		asciigraph.YAxisValueFormatter(func(v float64) string {
			return fmt.Sprintf(g.Axis, math.Round(1e9*v)/1e9+0) // no negative zero
		}),
	}, g.Options...)
	if len(g.Colours) > 0 && Coloured(w) {
		opts = append(opts, asciigraph.SeriesColors(g.Colours...))
	}
	if len(g.Legends) > 0 {
		opts = append(opts, asciigraph.SeriesLegends(g.Legends...))
	}
	text := asciigraph.PlotMany(g.Series, opts...)
	if !Coloured(w) {
		text = ansi.Strip(text) // asciigraph colours its legend in any case
	}
	// The legend comes below the abscissa, so that ruler and abscissa lie right under the body.
	lines := strings.Split(text, "\n")
	n := slices.IndexFunc(append(lines, ""), func(l string) bool { return !strings.ContainsAny(l, "┤┼") })
	body, legend := lines[:n], lines[n:]
	fmt.Fprintln(w, strings.Join(body, "\n"))
	left := ansi.StringWidth(body[0][:strings.IndexAny(body[0], "┤┼")]) + 1 // right of the axis
	indent := strings.Repeat(" ", left)
	if g.Ruler != "" {
		fmt.Fprintln(w, withKey(indent+g.Ruler, g.Key, left, room))
	}
	last := ansi.StringWidth(g.Last)
	fmt.Fprintf(w, "%s%s%*s\n", indent, g.First, max(g.Columns-ansi.StringWidth(g.First), last+1), g.Last)
	if text = strings.Trim(strings.Join(legend, "\n"), "\n"); text != "" {
		fmt.Fprintln(w, wrapLegend(text, left, room))
	}
}

// Mark sets the columns of a ruler from first to last whose centres lie in [from, to) to c.
func Mark[T ~float64](ruler []rune, first, last, from, to T, c rune) {
	for i := range ruler {
		if at := first + (T(i)+0.5)*(last-first)/T(len(ruler)); at >= from && at < to {
			ruler[i] = c
		}
	}
}

// withKey returns the ruler with the key to its letters: behind it or, if that is wider than
// room columns (0 for no limit), on the next line, indented by left.
func withKey(ruler, key string, left, room int) string {
	if room > 0 && ansi.StringWidth(ruler)+2+ansi.StringWidth(key) > room {
		return ruler + "\n" + strings.Repeat(" ", left) + key
	}
	return ruler + "  " + key
}

// wrapLegend breaks a legend wider than room columns (0 for no limit) between its entries,
// which three spaces separate. Each line is indented by left.
func wrapLegend(text string, left, room int) string {
	if room <= 0 || ansi.StringWidth(text) <= room {
		return text
	}
	var lines []string
	for e := range strings.SplitSeq(strings.TrimSpace(text), "   ") {
		if n := len(lines); n > 0 && ansi.StringWidth(lines[n-1])+3+ansi.StringWidth(e) <= room {
			lines[n-1] += "   " + e
			continue
		}
		lines = append(lines, strings.Repeat(" ", left)+e)
	}
	return strings.Join(lines, "\n")
}

// terminalColours are the colours of a terminal for those of a chart.
var terminalColours = map[color.Color]asciigraph.AnsiColor{
	figure.Blue: asciigraph.Blue, figure.Green: asciigraph.Green, figure.Orange: asciigraph.Goldenrod,
	figure.Pink: asciigraph.Magenta, figure.Truth: asciigraph.Default,
}

// Sketch draws the lines of a chart that have Sketch, and its marks, as wide as the terminal.
// Without colours each line has a sign of its own, which the legend names. A chart without
// such a line, or without an extent, draws nothing.
func Sketch(w io.Writer, c *figure.Chart) {
	columns := PlotWidth(w)
	from, to := extent(c)
	place := func(x float64) float64 { return (x - from) / (to - from) * float64(columns) }
	if c.LogX {
		place = func(x float64) float64 { return math.Log(x/from) / math.Log(to/from) * float64(columns) }
	}
	g := Graph{Height: 12, Columns: columns, First: fmt.Sprintf("%.4g ", from) + unitOf(c.X)}
	g.Last = fmt.Sprintf("%.4g ", to) + unitOf(c.X)
	if c.LogX {
		g.Last += " (logarithmic)"
	}
	var signs []asciigraph.CharSet
	for _, l := range c.Lines {
		if !l.Sketch || !(to > from) {
			continue
		}
		name, signed := l.Name, asciigraph.DefaultCharSet
		// Dots have a sign of their own in any case, lines where the colour does not tell them apart.
		if sign := []string{"", "*", "+"}[len(signs)%3]; l.Radius > 0 {
			signed, name = asciigraph.CreateCharSet("o"), name+" (o)"
		} else if sign != "" && !Coloured(w) {
			signed, name = asciigraph.CreateCharSet(sign), name+" ("+sign+")"
		}
		colour, ok := terminalColours[l.Color]
		if !ok {
			colour = asciigraph.Red
		}
		signs, g.Legends, g.Colours = append(signs, signed), append(g.Legends, name), append(g.Colours, colour)
		g.Series = append(g.Series, inColumns(c, &l, place, columns))
	}
	if len(g.Series) == 0 {
		return
	}
	g.Axis = axisFormat(g.Series, g.Height, unitOf(c.Y))
	g.Options = append(g.Options, asciigraph.SeriesChars(signs...))
	if c.FromZero {
		g.Options = append(g.Options, asciigraph.LowerBound(0))
	}
	if c.YRange[0] < c.YRange[1] {
		g.Options = append(g.Options, asciigraph.LowerBound(c.YRange[0]), asciigraph.UpperBound(c.YRange[1]))
	}
	g.Ruler, g.Key = ruler(c, place, columns)
	fmt.Fprintln(w)
	g.Draw(w)
}

// extent returns the limits of the abscissa: those that the chart states, else those of its
// sketched lines.
func extent(c *figure.Chart) (from, to float64) {
	if c.XRange[0] < c.XRange[1] {
		return c.XRange[0], c.XRange[1]
	}
	from, to = math.Inf(1), math.Inf(-1)
	for _, l := range lists.Filter(c.Lines, func(l *figure.Line) bool { return l.Sketch }) {
		for _, p := range l.Points {
			from, to = min(from, p.X), max(to, p.X)
		}
	}
	return from, to
}

// axisFormat returns the format of a plot's axis, with the decimals that tell its lines apart.
func axisFormat(series [][]float64, lines int, unit string) string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range slices.Concat(series...) {
		if !math.IsNaN(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	decimals := 0
	if step := (high - low) / float64(lines); step > 0 {
		decimals = min(max(0, int(math.Ceil(-math.Log10(step)))), 9)
	}
	return fmt.Sprintf("%%.%df %s", decimals, strings.ReplaceAll(unit, "%", "%%"))
}

// unitOf returns the unit of an axis: the part of its label behind " / ", else all of it.
func unitOf(label string) string {
	_, unit, ok := strings.Cut(label, " / ")
	if !ok {
		return label
	}
	return strings.Trim(unit, "()")
}

// inColumns returns the mean of a line's points in each column, within the chart's limits of
// Y. Columns between two points are interpolated, except of dots; those outside are NaN.
func inColumns(c *figure.Chart, l *figure.Line, place func(float64) float64, columns int) []float64 {
	mean, n := slices.Repeat([]float64{math.NaN()}, columns), make([]float64, columns)
	last := -1 // the column of the point before, whose value is y
	var y float64
	for _, p := range l.Points {
		i := min(int(math.Floor(place(p.X))), columns-1)
		if i < 0 || place(p.X) > float64(columns) {
			continue
		}
		v := p.Y
		if c.YRange[0] < c.YRange[1] {
			v = max(c.YRange[0], min(c.YRange[1], v))
		}
		// From the point itself and not from its column's mean: a staircase stays level.
		for k := last + 1; k < i && last >= 0 && l.Radius == 0; k++ {
			mean[k] = y + (v-y)*float64(k-last)/float64(i-last)
		}
		if n[i]++; n[i] == 1 {
			mean[i] = v
		} else {
			mean[i] += (v - mean[i]) / n[i]
		}
		last, y = i, v
	}
	return mean
}

// ruler returns the line of marks below a plot and their key; empty without marks.
func ruler(c *figure.Chart, place func(float64) float64, columns int) (line, key string) {
	signs := []rune(strings.Repeat(" ", columns))
	for _, m := range c.Marks {
		if i := place(m.At); c.Shows(m) && i >= 0 && i < float64(columns) {
			signs[int(i)] = m.Sign
			key = JoinNonEmpty("; ", key, fmt.Sprintf("%c %s", m.Sign, m.Name))
		}
	}
	if key == "" {
		return "", ""
	}
	return string(signs), key
}
