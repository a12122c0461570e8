package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/guptarohit/asciigraph"
	"golang.org/x/term"

	"wattmark/measure"
)

// trace is a task's power drawn into columns: the mean of the scans that fall
// into each, NaN where there are none.
type trace struct {
	from, to measure.Seconds
	names    []string
	rails    [][]float64 // watts, [rail][column]
	total    []float64   // watts
	counts   []int
}

func newTrace(from, to measure.Seconds, names []string, columns int) *trace {
	t := &trace{from: from, to: to, names: names, total: make([]float64, columns), counts: make([]int, columns)}
	for range names {
		t.rails = append(t.rails, make([]float64, columns))
	}
	return t
}

// finish turns sums into means. Empty columns carry the last value on, as a slow
// meter's reading does, where samples lie no further apart than 2.5 columns or periods;
// further, samples were lost, and nothing is drawn.
func (t *trace) finish(period measure.Seconds) {
	width := (t.to - t.from) / measure.Seconds(len(t.counts))
	reach := 2.5 * max(width, period)
	all := append([][]float64{t.total}, t.rails...)
	for c := 0; c < len(t.counts); {
		if n := t.counts[c]; n > 0 {
			for _, s := range all {
				s[c] /= float64(n)
			}
			c++
			continue
		}
		end := c
		for end < len(t.counts) && t.counts[end] == 0 {
			end++
		}
		for _, s := range all {
			v := math.NaN()
			if c > 0 && measure.Seconds(end-c+1)*width <= reach {
				v = s[c-1]
			}
			for i := c; i < end; i++ {
				s[i] = v
			}
		}
		c = end
	}
}

// plot draws the total and the rails with the markers and the window below, no
// wider than room, where that is not 0.
func (t *trace) plot(w io.Writer, r *report, room int) {
	offset := 3
	series := [][]float64{t.total}
	legends := []string{"total"}
	colors := []asciigraph.AnsiColor{asciigraph.Default}
	palette := []asciigraph.AnsiColor{asciigraph.Blue, asciigraph.Green, asciigraph.Red, asciigraph.Goldenrod, asciigraph.Magenta, asciigraph.Cyan}
	if len(t.rails) > 1 {
		for i, s := range t.rails {
			series = append(series, s)
			legends = append(legends, t.names[i])
			colors = append(colors, palette[i%len(palette)])
		}
	}
	opts := []asciigraph.Option{
		asciigraph.Height(14), asciigraph.Offset(offset), asciigraph.LowerBound(0), asciigraph.Precision(0),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%.0f W", v) }),
	}
	if isTerminal(w) {
		opts = append(opts, asciigraph.SeriesColors(colors...))
	}
	if len(series) > 1 {
		opts = append(opts, asciigraph.SeriesLegends(legends...))
	}
	graph := asciigraph.PlotMany(series, opts...)
	lines := strings.Split(graph, "\n")
	left := leftEdge(lines)
	body, legend := splitLegend(lines)
	fmt.Fprintln(w, strings.Join(body, "\n"))
	fmt.Fprintln(w, withKey(t.ruler(r, left), left, room))
	first, last := fmt.Sprintf("%.3f s", float64(t.from)), fmt.Sprintf("%.3f s", float64(t.to))
	fmt.Fprintf(w, "%s%s%*s\n", strings.Repeat(" ", left), first, len(t.counts)-len(first), last)
	text := strings.Join(legend, "\n")
	if !isTerminal(w) {
		text = ansi.Strip(text) // asciigraph colours its legend in any case
	}
	if text = strings.Trim(text, "\n"); text != "" {
		fmt.Fprintln(w, wrapLegend(text, left, room))
	}
}

// leftEdge is the column where the plot's body begins.
func leftEdge(lines []string) int {
	for i, c := range []rune(lines[0]) {
		if c == '┤' || c == '┼' {
			return i + 1
		}
	}
	return 0
}

// splitLegend parts the graph's body from the legend that asciigraph appends.
func splitLegend(lines []string) (body, legend []string) {
	for i, l := range lines {
		if !strings.ContainsAny(l, "┤┼") {
			return lines[:i], lines[i:]
		}
	}
	return lines, nil
}

// ruler is the line below the plot: M where a marker stands, ═ over the window.
func (t *trace) ruler(r *report, left int) string {
	line := []rune(strings.Repeat(" ", len(t.counts)))
	put := func(from, to float64, c rune) {
		for i := range line {
			at := float64(t.from) + (float64(i)+0.5)*float64(t.to-t.from)/float64(len(line))
			if at >= from && at < to {
				line[i] = c
			}
		}
	}
	if r.Window != nil {
		put(r.Window.FromS, r.Window.ToS, '═')
	}
	for _, m := range []*markerReport{r.Markers.Start, r.Markers.Stop} {
		if m != nil {
			put(m.beginS, m.endS, 'M')
		}
	}
	return strings.Repeat(" ", left) + string(line)
}

// withKey says what the ruler's letters mean, behind it or, where there is no
// room, below.
func withKey(ruler string, left, room int) string {
	const key = "M marker, ═ window"
	if room > 0 && ansi.StringWidth(ruler)+2+ansi.StringWidth(key) > room {
		return ruler + "\n" + strings.Repeat(" ", left) + key
	}
	return ruler + "  " + key
}

// wrapLegend breaks a legend that is too wide between its entries, which three
// spaces part.
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

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth is how many columns there are: 80 where nothing says it.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// leastPlot is how many columns are drawn at least.
const leastPlot = 20

// plotWidth is the number of columns to draw.
func plotWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return min(max(width-30, leastPlot), 160)
		}
	}
	return 90
}
