package counters

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"wattmark/analysis/model"
)

// Feature is a column of a model: a counter, or a formula of counters.
type Feature struct {
	Name    string `json:"name" yaml:"name"`
	Formula string `json:"formula,omitempty" yaml:"formula"` // empty for the counter, or the known virtual one, of that name
}

// Set is a named choice of features.
type Set struct {
	Name, What string
	Features   []Feature
}

// events are the counters of the CUDA Profiler 2.3 in Table I of Nagasaka et al.,
// and the virtual ones of them.
var events = map[string]bool{
	"gld_32b": true, "gld_64b": true, "gld_128b": true, "gst_32b": true, "gst_64b": true, "gst_128b": true, "local_load": true, "local_store": true,
	"branch": true, "divergent_branch": true, "instructions": true, "warp_serialize": true, "tlb_miss": true, "gld": true, "gst": true, "mem": true,
}

// virtual holds what is known by name: first as the paper has it (section III-C),
// then by the nearest metrics of Nsight Compute.
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

func plainSet(name, what string, names ...string) Set {
	s := Set{Name: name, What: what}
	for _, n := range names {
		s.Features = append(s.Features, Feature{Name: n})
	}
	return s
}

// Sets returns the choices that have names. The first seven are the paper's.
func Sets() []Set {
	return []Set{
		plainSet("mem", "Mem of the paper", "mem"),
		plainSet("inst", "Inst of the paper", "instructions"),
		plainSet("mem/inst", "Mem/Inst of the paper", "mem", "instructions"),
		plainSet("mem/inst/branch", "Mem/Inst/Branch of the paper", "mem", "instructions", "branch"),
		plainSet("mem/inst/ws", "Mem/Inst/WS of the paper", "mem", "instructions", "warp_serialize"),
		plainSet("mem/inst/tlb", "Mem/Inst/TLB of the paper", "mem", "instructions", "tlb_miss"),
		plainSet("full", "Full of the paper", "gld", "gst", "local_load", "local_store", "branch", "divergent_branch", "instructions", "warp_serialize", "tlb_miss"),
		plainSet("nsight-full", "Full by Nsight Compute's metrics: no TLB misses, texture reads instead", "gld", "gst", "local_load", "local_store", "branch", "divergent_branch", "instructions", "warp_serialize", "texture"),
		{Name: "nsight-units", What: "what today's units do, by Nsight Compute's metrics", Features: []Feature{
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
		{Name: "per-cycle", What: "sums per cycle of AccelWattch's counters", Features: []Feature{
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
	all := Sets()
	i := slices.IndexFunc(all, func(s Set) bool { return strings.EqualFold(s.Name, name) })
	if i < 0 {
		return Set{}, false
	}
	return all[i], true
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
func (t *Table) All() Set { return plainSet("all", "all counters of the file", t.Names()...) }

// Scale says whether counts of events are divided by the run's time.
type Scale string

// The scales.
const (
	Auto      Scale = "auto"       // per second where every row has a time
	PerSecond Scale = "per-second" // per second, or fail
	AsIs      Scale = "none"
)

// ErrMissing is wrapped by errors about counters that a table does not have.
var ErrMissing = errors.New("counter missing")

// resolved is a feature whose names are columns of the table.
type resolved struct {
	column  int // −1 for a formula
	formula *Formula
	of      map[string]*resolved
}

func (t *Table) resolveAll(features []Feature) ([]*resolved, error) {
	out := make([]*resolved, len(features))
	for i, f := range features {
		var err error
		if f.Formula != "" {
			out[i], err = t.resolveFormula(f.Formula, nil)
		} else {
			out[i], err = t.resolve(f.Name, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return out, nil
}

// resolve finds a name: a column, else what is known under that name.
func (t *Table) resolve(name string, above []string) (*resolved, error) {
	if i := t.column(name); i >= 0 {
		return &resolved{column: i}, nil
	}
	if slices.Contains(above, name) {
		return nil, fmt.Errorf("%w: %s is defined by itself", ErrFormula, name)
	}
	var first error
	for _, text := range virtual[name] {
		r, err := t.resolveFormula(text, append(above, name))
		if err == nil {
			return r, nil
		}
		if first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return nil, fmt.Errorf("%s: %w: no counter %q in it: there are %s", t.File, ErrMissing, name, quoted(t.columnNames()))
}

func (t *Table) columnNames() []string {
	out := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		out[i] = c.Name
	}
	return out
}

func (t *Table) resolveFormula(text string, above []string) (*resolved, error) {
	if i := t.column(text); i >= 0 { // a name that is no word needs no quotes by itself
		return &resolved{column: i}, nil
	}
	f, err := ParseFormula(text)
	if err != nil {
		return nil, err
	}
	r := &resolved{column: -1, formula: f, of: map[string]*resolved{}}
	for _, name := range f.Counters() {
		if r.of[name], err = t.resolve(name, above); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Data makes what a model is trained on of a table. Errors name the row.
func (t *Table) Data(features []Feature, scale Scale) (*model.Data, error) {
	rs, err := t.resolveAll(features)
	if err != nil {
		return nil, err
	}
	perSecond, err := t.perSecond(scale)
	if err != nil {
		return nil, err
	}
	d := &model.Data{}
	for _, f := range features {
		d.Counters = append(d.Counters, f.Name)
	}
	for i := range t.Runs {
		r := &t.Runs[i]
		row := model.Row{Name: r.Name, Group: r.App, Power: r.Power, X: make([]float64, len(rs))}
		for j, x := range rs {
			if row.X[j], err = x.value(t, r, perSecond); err != nil {
				return nil, fmt.Errorf("%s: line %d (%s): %s: %w", r.File, r.Line, r.Name, features[j].Name, err)
			}
		}
		d.Rows = append(d.Rows, row)
	}
	return d, nil
}

// PerSecond reports whether Data divides counts by time.
func (t *Table) PerSecond(scale Scale) bool {
	yes, err := t.perSecond(scale)
	return err == nil && yes && slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Kind == Count })
}

func (t *Table) perSecond(scale Scale) (bool, error) {
	if scale == AsIs {
		return false, nil
	}
	if scale != Auto && scale != PerSecond && scale != "" {
		return false, fmt.Errorf("%w: scale %q: want %s, %s or %s", ErrFormula, scale, Auto, PerSecond, AsIs)
	}
	for _, r := range t.Runs {
		if math.IsNaN(float64(r.Time)) {
			if scale == PerSecond {
				return false, fmt.Errorf("%s: line %d (%s): %w: no time to divide the counts by: add a column time_s, or the metric %s", r.File, r.Line, r.Name, ErrMissing, timeMetric)
			}
			return false, nil
		}
	}
	return true, nil
}

func (x *resolved) value(t *Table, r *Run, perSecond bool) (float64, error) {
	if x.formula != nil {
		return x.formula.Value(func(name string) (float64, error) { return x.of[name].value(t, r, perSecond) })
	}
	v, c := r.Values[x.column], t.Columns[x.column]
	if math.IsNaN(v) {
		return 0, fmt.Errorf("%w: %q was not counted for it", ErrMissing, c.Name)
	}
	if perSecond && c.Kind == Count {
		v /= float64(r.Time)
	}
	return v, nil
}
