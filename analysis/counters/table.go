// Package counters reads performance counters of kernels from the files of several
// tools, and turns them into the columns of a power model. Its nouns:
//
//   - Table: Runs (rows) of Columns, parsed from a file of one Form; Merge joins tables.
//   - Feature: a column of the model: a counter, or a Formula over counters, per second
//     where it counts events. Set: the features of a model.
//   - Power: measured powers that JoinPower matches to the rows.
//   - Plan: the number of profiling runs that a model's counters need.
//
// It is pure: bytes in, tables out. Tables are not safe for concurrent changes.
package counters

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// Kind is the kind of a column's values.
type Kind int

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
	// Context marks a column that describes a run, such as its clocks, rather than
	// counts in it; a model uses it only by name.
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

const (
	Plain       Form = "csv"         // a header, a row a kernel
	Utilisation Form = "utilisation" // gpupowermodel: three lines of clocks and sizes, names, rows
	NsightWide  Form = "ncu"         // ncu --csv --page raw
	NsightLong  Form = "ncu-long"    // ncu --csv, a metric a line
	AccelWattch Form = "accelwattch" // counters of AccelWattch's hardware model
)

// Forms lists the forms.
func Forms() []Form { return []Form{Plain, Utilisation, NsightWide, NsightLong, AccelWattch} }

// Table holds the counters of runs.
type Table struct {
	File    string
	Form    Form
	Columns []Column
	Runs    []Run
	Notes   []string // omissions, joins and assumptions, for the reader

	index map[string]int // of metrics while they are read
}

// ErrFormat is wrapped by errors about files that cannot be read; they name file,
// line and column.
var ErrFormat = errors.New("not a table of counters")

// By is the unit of a row: how launches recorded by Nsight Compute are combined.
type By string

// The ways to make rows.
const (
	ByKernel By = "kernel" // launches of a kernel with the same grid together
	ByLaunch By = "launch"
	ByApp    By = "app" // all launches of a process together
)

// Options of reading a file. The zero value detects everything.
type Options struct {
	Form Form
	// Columns of a plain table by role; empty ones are found by their usual names.
	Power, Name, App, Time, Blocks, Task string
	Ignore                               []string // columns to leave out
	Rates                                []string // columns that are no counts of events
	AppName                              string   // the application of all rows, in place of the file's
	By                                   By
	Kernel                               *regexp.Regexp // only kernels whose name matches
}

// column returns the index of a column by name, −1 for none.
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
			out = append(out, model.Warning{Code: model.FewBlocks, Row: r.Name, Text: fmt.Sprintf("%g blocks, fewer "+
				"than %g: the multiprocessors are not loaded alike", r.Blocks, minBlocks)})
		}
		if r.Measured < minTime {
			out = append(out, model.Warning{Code: model.ShortRun, Row: r.Name, Text: fmt.Sprintf("measured for %v, "+
				"less than %v: repeat the kernel for longer", r.Measured, minTime)})
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
	return Run{
		Power: measure.Watt(nan), Time: measure.Seconds(nan), Measured: measure.Seconds(nan), Blocks: nan, Launches: 1,
		Values: slices.Repeat([]float64{nan}, columns),
	}
}

// Feature is a column of a model: a counter, or a formula of counters.
type Feature struct {
	Name    string `json:"name" yaml:"name"`
	Formula string `json:"formula,omitempty" yaml:"formula"` // empty: the counter or virtual counter of that name
}

// Set is a named choice of features.
type Set struct {
	Name     string
	Features []Feature
}

// events are the counters of the CUDA Profiler 2.3 in Table I of Nagasaka et al.,
// and the virtual ones of them.
var events = map[string]bool{
	"gld_32b": true, "gld_64b": true, "gld_128b": true, "gst_32b": true, "gst_64b": true, "gst_128b": true,
	"local_load": true, "local_store": true,
	"branch": true, "divergent_branch": true, "instructions": true, "warp_serialize": true,
	"tlb_miss": true, "gld": true, "gst": true, "mem": true,
}

// virtual holds formulas by name: first the paper's (section III-C), then the nearest
// metrics of Nsight Compute.
var virtual = map[string][]string{
	"gld": {"gld_32b + 2*gld_64b + 4*gld_128b", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"},
	"gst": {"gst_32b + 2*gst_64b + 4*gst_128b", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"},
	"mem": {"gld + gst + local_load + local_store"},

	"local_load":       {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"},
	"local_store":      {"l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"},
	"branch":           {"smsp__sass_branch_targets.sum"},
	"divergent_branch": {"smsp__sass_branch_targets_threads_divergent.sum"},
	"instructions":     {"smsp__inst_executed.sum"},
	"warp_serialize":   {"l1tex__data_bank_conflicts_pipe_lsu.sum"},
	"texture":          {"l1tex__t_sectors_pipe_tex_mem_texture.sum"},
}

// plainSet returns a set of counters as they are, without formulas.
func plainSet(name string, names ...string) Set {
	return Set{Name: name, Features: lists.Map(names, func(n string) Feature { return Feature{Name: n} })}
}

// Sets returns the choices that have names. The first seven are the paper's. nsight-full is
// the paper's full by Nsight Compute's metrics: no TLB misses, texture reads instead.
// nsight-units counts the work of today's units, per-cycle has sums of AccelWattch's counters.
func Sets() []Set {
	return []Set{
		plainSet("mem", "mem"),
		plainSet("inst", "instructions"),
		plainSet("mem/inst", "mem", "instructions"),
		plainSet("mem/inst/branch", "mem", "instructions", "branch"),
		plainSet("mem/inst/ws", "mem", "instructions", "warp_serialize"),
		plainSet("mem/inst/tlb", "mem", "instructions", "tlb_miss"),
		plainSet("full", "gld", "gst", "local_load", "local_store", "branch", "divergent_branch", "instructions",
			"warp_serialize", "tlb_miss"),
		plainSet("nsight-full", "gld", "gst", "local_load", "local_store", "branch", "divergent_branch", "instructions",
			"warp_serialize", "texture"),
		{Name: "nsight-units", Features: []Feature{
			{"dram", "dram__bytes.sum"},
			{"l2", "lts__t_sectors.sum"},
			{"l1", "l1tex__t_sectors.sum"},
			{"shared", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"},
			{"texture", "l1tex__t_sectors_pipe_tex_mem_texture.sum"},
			{"alu", "sm__inst_executed_pipe_alu.sum"},
			{"fma", "sm__inst_executed_pipe_fma.sum"},
			{"fp64", "sm__inst_executed_pipe_fp64.sum"},
			{"xu", "sm__inst_executed_pipe_xu.sum"},
			{"tensor", "sm__inst_executed_pipe_tensor.sum"},
			{"instructions", "smsp__inst_executed.sum"},
		}},
		{Name: "per-cycle", Features: []Feature{
			{"DRAM", "(DRAM_Rd + DRAM_Wr)/Elapsed_Cycles"},
			{"L2", "(L2_RH + L2_RM + L2_WH + L2_WM)/Elapsed_Cycles"},
			{"L1", "(L1_RH + L1_RM + L1_WH + L1_WM)/Elapsed_Cycles"},
			{"shared", "SHRD_ACC/Elapsed_Cycles"},
			{"pipeline duty", "Pipeline_Duty"},
			{"idle SMs", "Num_Idle_SMs"},
		}},
	}
}

// PaperSets are the seven models of the paper's Fig. 2.
func PaperSets() []Set { return Sets()[:7] }

// Named returns a set by name.
func Named(name string) (Set, bool) {
	for _, s := range Sets() {
		if strings.EqualFold(s.Name, name) {
			return s, true
		}
	}
	return Set{}, false
}

// Usual returns the set for a table of which none was named: AccelWattch's per-cycle
// sums; the paper's Full where the table can make it; else all counters.
func (t *Table) Usual() Set {
	if t.Form == AccelWattch {
		s, _ := Named("per-cycle")
		return s
	}
	full, _ := Named("full")
	if t.Form == Plain && slices.ContainsFunc(t.Columns, func(c Column) bool { return events[c.Name] }) {
		if _, err := t.resolveAll(full.Features); err == nil {
			return full
		}
	}
	return t.All()
}

// All returns the set of all columns.
func (t *Table) All() Set { return plainSet("all", t.Names()...) }

// Source is the counting tool.
type Source string

const (
	CUDAProfiler Source = "cuda-profiler" // the paper's names
	NsightSource Source = "ncu"
)

// Base returns the counters that features need in the end, each once, by the names
// of a source. have are columns that need not be counted.
func Base(features []Feature, s Source, have []string) ([]string, error) {
	var out []string
	var need func(name string, above []string) error
	formula := func(text string, above []string) error {
		f, err := ParseFormula(text)
		if err != nil {
			return err
		}
		for _, name := range f.Counters() {
			if err := need(name, above); err != nil {
				return err
			}
		}
		return nil
	}
	// need adds a counter, or those of its first formula that suits the source; above holds
	// the names whose formulas led here, to refuse circles.
	need = func(name string, above []string) error {
		if slices.Contains(have, name) || slices.Contains(out, name) {
			return nil
		}
		if slices.Contains(above, name) {
			return fmt.Errorf("%w: %s is defined by itself", ErrFormula, name)
		}
		// Names with "__" are Nsight Compute's metrics; "mem" is of virtual counters of both.
		for _, text := range virtual[name] {
			if strings.Contains(text, "__") == (s == NsightSource) || name == "mem" {
				return formula(text, append(above, name))
			}
		}
		if s == NsightSource && events[name] {
			return fmt.Errorf("%w: Nsight Compute has no metric for %s: take a set without it, as nsight-full",
				ErrMissing, name)
		}
		out = append(out, name)
		return nil
	}
	for _, f := range features {
		var err error
		if f.Formula != "" {
			err = formula(f.Formula, nil)
		} else {
			err = need(f.Name, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return out, nil
}

// Limit is how many counters can be counted in one run: in all, and of one unit.
type Limit struct {
	Total   int            // 0 for no limit
	PerUnit map[string]int // by the prefix of a metric's name, up to "__"
}

// Plan deals counters into the fewest runs that cover all of them, within the limits. Dealt unit by unit, round and
// round, no run gets more than its share of the whole and of each unit, so the number of runs is the least there can
// be: the largest of ⌈n/k⌉ over all and over the units, of n counters with a limit of k.
func Plan(counters []string, l Limit) ([][]string, error) {
	units := map[string]int{}
	for _, c := range counters {
		units[unitOf(c)]++
	}
	runs := min(len(counters), 1)
	share := func(n, k int, what string) error {
		if k < 0 {
			return fmt.Errorf("%w: %d counters of %s in a run: want 1 or more", ErrFormula, k, what)
		}
		if k > 0 {
			runs = max(runs, (n+k-1)/k)
		}
		return nil
	}
	err := share(len(counters), l.Total, "all")
	for u, n := range units {
		err = cmp.Or(err, share(n, l.PerUnit[u], u))
	}
	if err != nil {
		return nil, err
	}
	// Neighbours of one unit go to different runs: i modulo the number of runs.
	byUnit := slices.Clone(counters)
	slices.SortStableFunc(byUnit, func(a, b string) int { return strings.Compare(unitOf(a), unitOf(b)) })
	out := make([][]string, runs)
	for i, c := range byUnit {
		out[i%runs] = append(out[i%runs], c)
	}
	return out, nil
}

// unitOf returns the unit of a metric of Nsight Compute, the part before "__"; empty
// for any other name.
func unitOf(counter string) string {
	if u, _, ok := strings.Cut(counter, "__"); ok {
		return u
	}
	return ""
}
