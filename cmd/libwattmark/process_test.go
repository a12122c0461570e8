package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// command is a program in the rig's world.
func (r *rig) command(name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(r.t.Context(), name, args...)
	c.Env = append(os.Environ(), append([]string{
		"LD_LIBRARY_PATH=" + r.dir, "FAKE_BOARD=" + r.board, "WATTMARK_MONITOR=" + r.address, "WATTMARK_DB=" + r.db, "WATTMARK_HOST=" + r.host,
		"WATTMARK_USER=lab", "WATTMARK_TASK=p", "WATTMARK_CONFIG=none",
	}, r.more...)...)
	return c
}

// output is what a program came to.
type output struct {
	out, err string
	code     int
}

func finish(t *testing.T, c *exec.Cmd) output {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return output{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

func (r *rig) drive(name string) output {
	r.t.Helper()
	o := finish(r.t, r.command(filepath.Join(r.dir, "drive"), name))
	if o.code == 99 {
		r.t.Fatalf("drive %s: %s", name, o.err)
	}
	return o
}
