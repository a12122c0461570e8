package main_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/store"
)

const python = "/usr/bin/python3"

func TestPython(t *testing.T) {
	if _, err := exec.LookPath(python); err != nil {
		skipTool(t, "no "+python)
	}
	for _, with := range []string{"plain", "torch"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if with == "torch" {
				r.startHost()
			}
			r.more = []string{"PYTHONPATH=../../api/python", "PYTHONDONTWRITEBYTECODE=1"}
			o := finish(t, r.command(python, "-Wall", "-Werror", "testdata/measure.py", with))
			if o.code != 0 {
				t.Fatalf("exit code %d\n%s", o.code, o.err)
			}
			db := r.open()
			k := r.holds(db, parse(t, o)[0])
			if len(k) != 2 || k[0].Name != "step" || k[1].Name != "second" {
				t.Errorf("parts: %+v", k)
			}
			if x := r.task(db, 2); x.Name != "broken" || x.State != store.Incomplete {
				t.Errorf("a block that raised is %v: %s", x.State, x.Reason)
			}
			r.mustBeFree()
		})
	}
}

func TestPythonWithoutTheLibrary(t *testing.T) {
	if _, err := exec.LookPath(python); err != nil {
		skipTool(t, "no "+python)
	}
	c := exec.CommandContext(t.Context(), python, "-c", "import wattmark; wattmark.measure('x')")
	c.Env = []string{"PYTHONPATH=../../api/python", "PYTHONDONTWRITEBYTECODE=1", "WATTMARK_LIBRARY=/nowhere.so"}
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "make install-lib") {
		t.Errorf("%v: %s", err, out)
	}
}
