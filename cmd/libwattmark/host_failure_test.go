package main_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// A program that dies while it is measured through the daemon frees the bench at
// once, long before its lease; what was sampled is kept.
func TestDeathUnderTheDaemon(t *testing.T) {
	coverage.Long(t)
	for _, sig := range deaths {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.startHost()
			r.more = []string{"LEASE_MS=3600000"}
			c, _, _, _ := r.started("hang")
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err == nil {
				t.Error("it ended by itself")
			}
			r.eventuallyFree()
			db := r.open()
			eventually(t, "the task has an end", func() bool { return r.task(db, 1).State != store.Running })
			x := r.task(db, 1)
			want := fmt.Sprintf("cancelled during work: the program vanished (drive, process %d)", c.Process.Pid)
			if x.State != store.Incomplete || x.Scans == 0 || !strings.Contains(x.Reason, want) {
				t.Errorf("%v with %d scans: %s\nwant %s", x.State, x.Scans, x.Reason, want)
			}
		})
	}
}

// outlives ends the daemon amid a program's measurement, and returns what the
// program says of it.
func (r *rig) outlives(h *host, sig syscall.Signal) (s said, text string) {
	r.t.Helper()
	c, in, out, errs := r.started("outlive")
	if err := h.end(sig); sig == syscall.SIGTERM && err != nil {
		r.t.Errorf("the daemon ended with %v: %s", err, h.said())
	}
	if _, err := fmt.Fprintln(in); err != nil {
		r.t.Fatal(err)
	}
	if err := json.NewDecoder(out).Decode(&s); err != nil {
		r.t.Fatalf("%v\n%s", err, errs)
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != 13 {
		r.t.Errorf("the program ended with %v", err)
	}
	return s, errs.String()
}

// kill -9 of the daemon: the program hears of it with all causes, the lease frees
// the bench, and a daemon that is started again fetches the task, over the dead
// one's socket.
func TestDaemonIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.startHost()
	s, text := r.outlives(h, syscall.SIGKILL)
	t.Log(text)
	if s.Code != 13 || s.Task != 1 || s.State != int(store.Running) {
		t.Errorf("got %+v", s)
	}
	for _, want := range []string{"wm_marker: ", "wm_end: ", "the host daemon was lost", strings.TrimPrefix(r.host, "unix:"), "during work", "task 1 is left unfinished", "lease of 1s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	db := r.open()
	if x := r.task(db, 1); x.State != store.Running {
		t.Errorf("the task is %v: %s", x.State, x.Reason)
	}
	h = r.startHostAt(strings.TrimPrefix(r.host, "unix:"))
	r.eventuallyFree()
	h.await("finished a task that was interrupted")
	if x := r.task(db, 1); x.State != store.Incomplete || x.Scans == 0 || !strings.Contains(x.Reason, "the process that measured was gone before it had stored when the work ran") {
		t.Errorf("%v with %d scans: %s", x.State, x.Scans, x.Reason)
	}
	// And programs are measured again.
	r.holds(db, parse(t, r.drive("plain"))[0])
}

// A daemon that is stopped gives up what it measures and says so; the bench is free.
func TestDaemonIsStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.startHost()
	r.more = []string{"LEASE_MS=3600000"}
	s, text := r.outlives(h, syscall.SIGTERM)
	if s.Code != 13 || s.Task != 1 || s.State != int(store.Incomplete) || !strings.Contains(text, "wattmark host is being stopped") {
		t.Errorf("got %+v\n%s", s, text)
	}
	if x := r.task(r.open(), 1); x.State != store.Incomplete || x.Scans == 0 || !strings.Contains(x.Reason, "is being stopped") {
		t.Errorf("%v with %d scans: %s", x.State, x.Scans, x.Reason)
	}
	r.mustBeFree()
	if _, err := os.Lstat(strings.TrimPrefix(r.host, "unix:")); err == nil {
		t.Error("the daemon left its socket")
	}
}

// Without WATTMARK_HOST a program measures through the daemon at the default
// socket; where there is none, on its own; where one was and nobody answers, not
// at all. A second daemon there goes away politely; the first one serves on.
func TestDefaultSocket(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run, err := os.MkdirTemp("", "wm") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	r.host = ""
	r.more = []string{"XDG_RUNTIME_DIR=" + run, "TMPDIR=" + run}
	plain := func(code int, says string) {
		t.Helper()
		if o := r.drive("plain"); o.code != code || !strings.Contains(o.err, says) {
			t.Errorf("exit code %d, want %d with %q\n%s", o.code, code, says, o.err)
		}
	}
	plain(0, "")
	h := r.startHostAt("") // the default
	h.await(filepath.Join(run, "wattmark", "host.sock"))
	o := finish(t, r.command(filepath.Join(r.dir, "wattmark"), "host", "--db", r.db, "--listen", "127.0.0.1:0"))
	if o.code != 1 || !strings.Contains(o.err, fmt.Sprint("another host daemon serves this socket: process ", h.cmd.Process.Pid)) || !strings.Contains(o.err, "--socket") {
		t.Errorf("a second daemon: exit code %d: %s", o.code, o.err)
	}
	plain(0, "")
	h.await(`msg="a measurement has ended" name=plain user=lab program="drive, process `)
	if err := h.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v: %s", err, h.said())
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(run, "wattmark", "host.sock")})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	plain(13, "is wattmark host running there")
}

// What fails on either side of the socket has its code on this one.
func TestFailuresThroughTheDaemon(t *testing.T) {
	coverage.Long(t)
	for _, c := range []struct {
		name, fail, monitor string
		code                int
		says, reason        string // reason: of the task, empty for none
	}{
		{"no monitor", "", "127.0.0.1:1", 5, "is wattmark monitor running there", ""},
		{"warm-up", "cuStreamQuery=700", "", 7, "cuStreamQuery", "cuStreamQuery"},
		{"the start marker", "cuMemsetD8Async=700", "", 7, "cuMemsetD8", "cuMemsetD8"},
		{"the program's kernels", "cuCtxSynchronize=700@2", "", 7, "cuCtxSynchronize", "cancelled during work: the program gave the measurement up: cuda"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			bench := r.address
			if c.monitor != "" {
				r.address = c.monitor
			}
			r.startHost()
			r.address = bench
			r.more = []string{"FAKE_FAIL=" + c.fail, "WATTMARK_MONITOR="}
			o := finish(t, r.command(filepath.Join(r.dir, "drive"), "plain"))
			if o.code != c.code || !strings.Contains(o.err, c.says) {
				t.Errorf("exit code %d, want %d with %q\n%s", o.code, c.code, c.says, o.err)
			}
			r.mustBeFree()
			tasks, err := r.open().Tasks(t.Context(), store.Query{})
			if err != nil || (len(tasks) == 1) != (c.reason != "") {
				t.Fatalf("%d tasks, %v", len(tasks), err)
			}
			if c.reason != "" && (tasks[0].State != store.Incomplete || !strings.Contains(tasks[0].Reason, c.reason)) {
				t.Errorf("the task is %v: %s", tasks[0].State, tasks[0].Reason)
			}
		})
	}
}
