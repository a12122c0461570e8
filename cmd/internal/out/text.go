// Package out formats results as text: quantities with their uncertainty, tables, progress
// on a terminal, and the text around plots. Functions write to the writer they get and keep
// no state; only the progress lines have one.
package out

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/wattmark/wattmark/measure"
)

// Row is a line of a table, with a cell for each column.
type Row = table.Row

// NewTable returns a table without borders that Render writes to w, with the header if one is given. A column whose
// header begins with > is aligned to the right.
func NewTable(w io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Options.DrawBorder = false
	t.Style().Options.SeparateColumns = false
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	var right []table.ColumnConfig
	// The mark is no part of the name; the header itself may be shared between calls.
	names := slices.Clone(header)
	for i, h := range header {
		if name, found := strings.CutPrefix(fmt.Sprint(h), ">"); found {
			r := text.AlignRight
			names[i] = name
			right = append(right, table.ColumnConfig{Number: i + 1, Align: r, AlignHeader: r, AlignFooter: r})
		}
	}
	if len(header) > 0 {
		t.AppendHeader(names)
		t.SetColumnConfigs(right)
	}
	return t
}

// Table writes a table with a header and one row per item of list.
func Table[T any](w io.Writer, header Row, list []T, row func(T) Row) {
	t := NewTable(w, header...)
	for _, x := range list {
		t.AppendRow(row(x))
	}
	t.Render()
}

// EnergyText returns E ± U in joules with two significant digits of U (GUM, 7.2.6), at most
// nine decimals. Without a finite positive U it has four digits and no uncertainty.
func EnergyText[T ~float64](e, u T) string {
	if !(u > 0) || !measure.Known(u) {
		return fmt.Sprintf("%.4g J", float64(e))
	}
	decimals := measure.Decimals(float64(u))
	return fmt.Sprintf("%.*f J ± %.*f J", decimals, float64(e), decimals, float64(u))
}

// Energy returns an estimate as EnergyText formats it.
func Energy(e measure.Estimate) string { return EnergyText(e.Energy, e.U) }

// RateText returns a sample rate in S/s with an SI prefix.
func RateText(rate measure.Hertz) string { return strings.TrimSuffix(rate.String(), "Hz") + "S/s" }

// GapText returns the number of gaps with the samples lost in them.
func GapText(gaps, lost uint64) string {
	switch gaps {
	case 0:
		return "no gap"
	case 1:
		return fmt.Sprintf("1 gap (%d samples lost)", lost)
	}
	return fmt.Sprintf("%d gaps (%d samples lost)", gaps, lost)
}

// JoinNonEmpty joins the parts that are not empty.
func JoinNonEmpty(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), sep)
}

// Widest returns the width of the widest line in terminal columns.
func Widest(text string) (n int) {
	for l := range strings.SplitSeq(text, "\n") {
		n = max(n, ansi.StringWidth(l))
	}
	return n
}

// FileSystem returns the type of a directory's file system, as ext4: that of the longest
// mount point that is a prefix of dir, an absolute path. Empty if it is unknown, as on
// systems other than Linux.
func FileSystem(dir string) string {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	best, kind := "", ""
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		at := strings.TrimSuffix(f[1], "/") + "/"
		if strings.HasPrefix(dir+"/", at) && len(at) >= len(best) {
			best, kind = at, f[2]
		}
	}
	return kind
}
