package store

import (
	"fmt"
	"os/exec"
	"testing"
)

func TestOwner(t *testing.T) {
	me := Owner()
	if me == "" {
		t.Skip("this system does not tell")
	}
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Skip(err)
	}
	child, ok := own(c.Process.Pid)
	if !ok {
		t.Fatal("a child is not known")
	}
	as := func(o owner) string {
		return fmt.Sprintf("pid=%d start=%s space=%s boot=%s host=%s", o.pid, o.start, o.space, o.boot, o.host)
	}
	with := func(change func(*owner)) string {
		o := child
		change(&o)
		return as(o)
	}
	for _, tc := range []struct {
		name, owner string
		want        Liveness
	}{
		{"this one", me, Alive},
		{"a child", as(child), Alive},
		{"an earlier one of its number", with(func(o *owner) { o.start = "1" }), Gone},
		{"before the boot", with(func(o *owner) { o.boot = "x" }), Gone},
		{"another machine's", with(func(o *owner) { o.host += "x"; o.boot = "x" }), LivenessUnknown},
		{"in another container", with(func(o *owner) { o.space = "pid:[1]" }), LivenessUnknown},
		{"nothing", "", LivenessUnknown},
		{"something else", "pid=x start= host", LivenessUnknown},
	} {
		if got, _ := Lives(tc.owner); got != tc.want {
			t.Errorf("%s: %v, want %v (%s)", tc.name, got, tc.want, tc.owner)
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if got, pid := Lives(as(child)); got != Gone || pid != c.Process.Pid {
		t.Errorf("killed: %v, %d", got, pid)
	}
}
