package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/doctor"
)

// On this machine, with a monitor and a database that are really there.
func TestDoctorHere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if p := r.run("--benchmark", "half", "--duration", "50ms", "--name", "x"); p.wait(t) != 0 {
		t.Fatal(&p.err)
	}
	var got doctor.DoctorReport
	object(t, inside(t, "doctor", "--json", "--monitor", r.address, "--db", r.db, "--spool", r.spool).out, &got)
	found := map[string]doctor.Finding{}
	for _, f := range got.Findings {
		found[f.Check] = f
	}
	for check, words := range map[string]string{
		"monitor": "bench powersensor3, free", "versions": "protocol 1.1", "instrument": "20 kS/s, 4 rails", "database": "1 task", "spool disk": "fsync", "limits": "open files",
	} {
		if f := found[check]; !strings.Contains(f.Found, words) {
			t.Errorf("%s: %+v, want %q", check, f, words)
		}
	}
	left, err := filepath.Glob(filepath.Join(r.spool, ".wattmark-doctor-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	inside(t, "doctor", "--machine", "cook").fails(t, cli.ExitUsage, "want monitor or host")
	r.monitor.stop(t)
	inside(t, "doctor", "--monitor", r.address, "--db", r.db, "--spool", r.spool).fails(t, cli.ExitFailed, "checks failed")
}
