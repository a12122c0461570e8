package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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
		{"another machine's", with(func(o *owner) { o.host += "x"; o.boot = "x" }), Unknown},
		{"in another container", with(func(o *owner) { o.space = "pid:[1]" }), Unknown},
		{"nothing", "", Unknown},
		{"something else", "pid=x start= host", Unknown},
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

// Of another user's process that /proc does not show it is not said that it has ended.
func TestOwnerThatProcHides(t *testing.T) {
	if name := os.Getenv("HIDDEN_OWNER"); name != "" {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
			t.Fatal(err)
		}
		if got, _ := Lives(name); got != Unknown {
			t.Errorf("hidden: %v, want %v", got, Unknown)
		}
		c := exec.Command("true")
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		pid, _, _ := strings.Cut(name, " ")
		if got, _ := Lives(strings.Replace(name, pid, fmt.Sprintf("pid=%d", c.Process.Pid), 1)); got != Gone {
			t.Errorf("ended: %v, want %v", got, Gone)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can hide processes")
	}
	if out, err := exec.Command("unshare", "--mount", "mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc").CombinedOutput(); err != nil {
		t.Skipf("processes cannot be hidden here: %v: %s", err, out)
	}
	c := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", `mount -t proc -o hidepid=2 proc /proc && exec "$0" -test.run '^TestOwnerThatProcHides$'`, os.Args[0])
	c.Env = append(os.Environ(), "HIDDEN_OWNER="+Owner())
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A process that counts time from another boot, as one in a time namespace, knows nothing
// of when this one was started.
func TestOwnerInAnotherTimeNamespace(t *testing.T) {
	if name := os.Getenv("OWNER_BEFORE"); name != "" {
		if got, _ := Lives(name); got != Unknown {
			t.Errorf("%v, want %v", got, Unknown)
		}
		return
	}
	shift := []string{"--time", "--boottime", "5000"}
	if out, err := exec.Command("unshare", append(shift, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no time namespaces here: %v: %s", err, out)
	}
	c := exec.CommandContext(t.Context(), "unshare", append(shift, os.Args[0], "-test.run", "^TestOwnerInAnotherTimeNamespace$")...)
	c.Env = append(os.Environ(), "OWNER_BEFORE="+Owner())
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What a killed process left in the folder for temporary files goes when the next one
// needs some; what others have there stays.
func TestTemporaryFoldersOfTheDeadAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if Owner() == "" {
		t.Skip("this system does not tell")
	}
	mine := must(TempDir())(t)
	c := exec.Command("sleep", "60")
	ok(t, c.Start())
	o, _ := own(c.Process.Pid)
	machine, sure := machineHash(&o)
	name := func(machine string, change func(*owner)) string {
		was := o
		change(&was)
		return filepath.Join(os.TempDir(), tempName(machine, &was)+"1")
	}
	alive, earlier := name(machine, func(*owner) {}), name(machine, func(o *owner) { o.start = "1" })
	container := name(machine, func(o *owner) { o.space, o.start = "pid:[1]", "1" })
	boot := name(machine, func(o *owner) { o.boot = "x" })
	// Of another machine that uses this folder too: the first namespaces have the same
	// numbers on all.
	foreign, rebooted := name(shortHash("x"), func(o *owner) { o.start = "1" }), name(shortHash("x"), func(o *owner) { o.boot = "x" })
	unnamed := filepath.Join(os.TempDir(), tempPrefix+spaceNumber(o.space)+"-999999-12345-4711")
	other := filepath.Join(os.TempDir(), tempPrefix+"x")
	stay := []string{mine, container, foreign, rebooted, unnamed, other}
	for _, dir := range append([]string{alive, earlier, boot}, stay[1:]...) {
		ok(t, os.MkdirAll(filepath.Join(dir, "task.db"), 0o700))
	}
	there := func(want map[string]bool) {
		t.Helper()
		must(TempDir())(t)
		for _, dir := range stay {
			want[dir] = true
		}
		for dir, want := range want {
			if exists(dir) != want {
				t.Errorf("%s: there %v, want %v", filepath.Base(dir), !want, want)
			}
		}
	}
	there(map[string]bool{alive: true, earlier: false, boot: !sure})
	ok(t, c.Process.Kill())
	_ = c.Wait()
	there(map[string]bool{alive: false})
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
