package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
)

// On a machine with an AMD GPU alone, as a stand-in for its library shows it, programs are measured without markers.
func TestRunOnAnAMDGPU(t *testing.T) {
	t.Parallel()
	if cuda.Loads() == nil {
		t.Skip("a driver of NVIDIA's is here, which comes first")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc here")
	}
	source, err := os.ReadFile("../../hostagent/gpu/amdsmi/testdata/standin.c")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), gcc, "-shared", "-fPIC", "-DROCM=70", "-x", "c", "-o", filepath.Join(dir, "libamd_smi.so.26"), "-")
	if build.Stdin = strings.NewReader(string(source)); build.Run() != nil {
		t.Fatal("gcc failed")
	}
	r := newRig(t, "LD_LIBRARY_PATH="+dir)
	run := func(args ...string) result {
		return startEnv(t, r.env, append([]string{"run", "--monitor", r.address, "--db", r.db, "--db-free", "0", "--json"}, args...)...).result(t)
	}
	var got report.Report
	object(t, run("--", "sleep", "2").ok(t).out, &got)
	if got.GPU != "AMD Instinct MI300X" || got.State != "complete" || !strings.Contains(got.Reason, "plays no markers") {
		t.Errorf("%s on %q: %s", got.State, got.GPU, got.Reason)
	}
	if got.EnergyJ == nil || *got.EnergyJ < 10 || got.NVMLJ == nil || *got.NVMLJ < 2*700 { // 717 W for two seconds
		t.Errorf("energy %v, by the card's own sensor %v", got.EnergyJ, got.NVMLJ)
	}
	run("--mark-every", "60s", "--", "true").fails(t, cli.ExitUsage, "need markers", "AMD Instinct MI300X")
	run("--benchmark", "memory").fails(t, cli.ExitFailed, "wattmark run measures programs on it")
}
