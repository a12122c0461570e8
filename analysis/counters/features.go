package counters

import (
	"slices"
	"strings"
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
