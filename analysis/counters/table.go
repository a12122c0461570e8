// Package counters reads what performance counters said of kernels, from the files
// of several tools, and makes the columns of a power model of them: counters as
// they are, or virtual ones worked out by formulas, per second where they count
// events. It also plans in how many runs a model's counters can be had.
//
// It is pure: bytes in, tables out.
package counters

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"wattmark/analysis/model"
	"wattmark/measure"
)

// Kind is what a column holds.
type Kind int

// The kinds.
const (
	// Rate stands for itself: a utilisation, a ratio, something per second or per cycle.
	Rate Kind = iota
	// Count is a number of events during the run, which a run of twice the length
	// doubles.
	Count
)

// Column is a counter.
type Column struct {
	Name string
	Unit string // "byte", "inst", "%", as far as known
	Kind Kind
	// Context marks what describes a run rather than counts in it, as its clocks; it is
	// in no model unless it is named.
	Context bool
}

// Run is a kernel, or an application, that was counted.
type Run struct {
	Name string // of the kernel
	App  string // of the application; empty where none is known
	Task string // number or name of a stored task that holds its power; empty for none
	// Power is NaN where the file has none.
	Power measure.Watt
	// Time is how long the counted run took, Measured how long its power was measured;
	// both NaN where unknown.
	Time, Measured measure.Seconds
	Blocks         float64 // thread blocks of the smallest launch; NaN where unknown
	Launches       int
	Line           int // in its file
	File           string
	Values         []float64 // in the order of the columns; NaN where not counted

	unnamed bool // Name was made up
}

// Form is a form of file.
type Form string

// The forms.
const (
	Plain       Form = "csv"         // a header, a row a kernel
	Utilisation Form = "utilisation" // gpupowermodel: three lines of clocks and sizes, names, rows
	NsightWide  Form = "ncu"         // ncu --csv --page raw
	NsightLong  Form = "ncu-long"    // ncu --csv, a metric a line
	AccelWattch Form = "accelwattch" // counters of AccelWattch's hardware model
)

// Forms lists the forms.
func Forms() []Form { return []Form{Plain, Utilisation, NsightWide, NsightLong, AccelWattch} }

// Table is what was counted.
type Table struct {
	File    string
	Form    Form
	Columns []Column
	Runs    []Run
	Notes   []string // what a reader should know: what was left out, joined, assumed

	index map[string]int // of metrics while they are read
}

// ErrFormat is wrapped by errors about files that cannot be read; they name file,
// line and column.
var ErrFormat = errors.New("not a table of counters")

// By is what makes a row of what Nsight Compute recorded.
type By string

// The ways to make rows.
const (
	ByKernel By = "kernel" // launches of a kernel with the same grid together
	ByLaunch By = "launch"
	ByApp    By = "app" // all launches of a process together
)

// Options say how a file is to be read. The zero value finds out by itself.
type Options struct {
	Form Form
	// Columns of a plain table by what they are; those left empty are found by their
	// usual names.
	Power, Name, App, Time, Blocks, Task string
	Ignore                               []string // columns to leave out
	Rates                                []string // columns that are no counts of events
	AppName                              string   // the application of all rows, in place of what the file says
	By                                   By
	Kernel                               *regexp.Regexp // only kernels whose name matches
}

func (t *Table) column(name string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
}

func (t *Table) note(format string, args ...any) {
	t.Notes = append(t.Notes, fmt.Sprintf(format, args...))
}

// Doubts warns of rows that the paper's rules leave out: kernels with fewer blocks
// than load all multiprocessors alike, and powers measured over less than a second.
func (t *Table) Doubts(minBlocks float64, minTime measure.Seconds) (out []model.Warning) {
	for _, r := range t.Runs {
		if r.Blocks < minBlocks {
			out = append(out, model.Warning{Code: model.FewBlocks, Row: r.Name, Text: fmt.Sprintf("%g blocks, fewer than %g: the multiprocessors are not loaded alike", r.Blocks, minBlocks)})
		}
		if r.Measured < minTime {
			out = append(out, model.Warning{Code: model.ShortRun, Row: r.Name, Text: fmt.Sprintf("measured for %v, less than %v: repeat the kernel for longer", r.Measured, minTime)})
		}
	}
	return out
}

// Drop removes the rows that a test refuses, and returns how many.
func (t *Table) Drop(refuse func(Run) bool) int {
	n := len(t.Runs)
	t.Runs = slices.DeleteFunc(t.Runs, refuse)
	return n - len(t.Runs)
}

var nan = math.NaN()

// blank is a run of which nothing is known yet.
func blank(columns int) Run {
	r := Run{Power: measure.Watt(nan), Time: measure.Seconds(nan), Measured: measure.Seconds(nan), Blocks: nan, Launches: 1, Values: make([]float64, columns)}
	for i := range r.Values {
		r.Values[i] = nan
	}
	return r
}
