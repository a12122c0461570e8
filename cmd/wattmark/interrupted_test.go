package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// A measurement ends in order with each signal that ends programs, a terminal that is
// closed among them: the bench is free, one line names the task, and the exit code is the
// signal's.
func TestSignalsEndARunInOrder(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	for i, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		id := i + 1
		p := r.run("--benchmark", "memory", "--duration", "60s")
		p.await(t, "running the work")
		_ = p.cmd.Process.Signal(s)
		if code := p.wait(t); code != 128+int(s) {
			t.Errorf("%v: exit code %d\n%s", s, code, &p.err)
		}
		want := fmt.Sprintf("wattmark: interrupted by %s: kept as task %d (incomplete)\n", cli.Asked{Signal: s}.Name(), id)
		if lines := strings.SplitAfter(p.err.String(), "\n"); len(lines) < 2 || lines[len(lines)-2] != want || strings.Count(p.err.String(), "wattmark:") != 1 {
			t.Errorf("%v: it said\n%s", s, &p.err)
		}
		x, _ := onlyTask(t, r.db, store.TaskID(id))
		if x.State != store.Incomplete || !strings.Contains(x.Reason, "cancelled during work: "+cli.Asked{Signal: s}.Name()) {
			t.Errorf("%v: state %v: %s", s, x.State, x.Reason)
		}
		if cs := r.captures(); len(cs) != 0 {
			t.Errorf("%v: captures left on the monitor: %+v", s, cs)
		}
	}
	r.free()
	if r.monitor.stop(t); !strings.HasSuffix(r.monitor.err.String(), "msg=ended signal=SIGINT\n") {
		t.Errorf("the monitor said\n%s", &r.monitor.err)
	}
	p := start(t, "demo", "--db", filepath.Join(t.TempDir(), "power.db"), "--duration", "60s")
	p.await(t, "running the work")
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	code := p.wait(t)
	if said := p.err.String(); code != 130 || !strings.HasSuffix(said, "\nwattmark: interrupted by SIGINT: kept as task 1 (incomplete)\n") {
		t.Errorf("demo: exit code %d\n%s", code, said)
	}
}

// interrupted runs a command that a signal ends before it has done anything.
func interrupted(t *testing.T, s syscall.Signal, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cli.Asked{Signal: s})
	var out, errs bytes.Buffer
	err := execute(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	r := result{out: out.String(), err: errs.String()}
	if err != nil && !cli.Silently(err) {
		r.err, r.code = r.err+"wattmark: "+err.Error()+"\n", cli.ExitCode(err)
	}
	return r
}

// Every command that a signal ends says so in one line, with what was kept where it writes, and has the exit code of
// the signal.
func TestSignalsEndCommandsInOneLine(t *testing.T) {
	goldenUser(t)
	dir := t.TempDir()
	goldenDatabase(t, filepath.Join(dir, "power.db"))
	t.Chdir(dir)
	const nothing = ": nothing was changed"
	for command, kept := range map[string]string{
		"tasks": nothing, "users": nothing, "show 1": nothing, "compare gemm-fp16 gemm-fp8": "",
		"tasks --sort mean": nothing, "db check": nothing, "db repair": nothing, "validate 7": nothing,
		"export 7 -o x.csv": nothing, "db copy power.db b.db": ": nothing was copied",
		"db vacuum": ": what was changed before is kept", "delete 7 --yes": ": what was changed before is kept",
		"recalculate 7": ": what was changed before is kept", "db backup c.db": nothing,
	} {
		r := interrupted(t, syscall.SIGINT, strings.Fields(command)...)
		if want := "wattmark: interrupted by SIGINT" + kept + "\n"; r.code != 130 || r.err != want {
			t.Errorf("%s: exit code %d, %q, want %q", command, r.code, r.err, want)
		}
		// As of a pipe into head: what may have been changed is said all the same.
		r = interrupted(t, syscall.SIGPIPE, strings.Fields(command)...)
		if said := r.err != ""; said != (kept != "" && kept != nothing) {
			t.Errorf("%s, without a reader of its output: %q", command, r.err)
		}
	}
	left, err := filepath.Glob("*")
	if err != nil || len(left) != 1 {
		t.Errorf("files %v: %v", left, err)
	}
}

// nohup is respected: a SIGHUP that was ignored before stays ignored.
func TestIgnoredHangupStaysIgnored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-c", `trap "" HUP; exec "$0" "$@"`, path}, r.runArgs("--benchmark", "memory", "--duration", "1s")...)
	p := startCommand(t, nil, exec.Command("sh", args...))
	p.await(t, "running the work")
	_ = p.cmd.Process.Signal(syscall.SIGHUP)
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, &p.err)
	}
	if x, _ := onlyTask(t, r.db, 1); x.State != store.Complete {
		t.Errorf("state %v: %s", x.State, x.Reason)
	}
}

// What kill -9 leaves is finished by the next command that sees it, and its bench is free
// before the lease ends.
func TestLeftOversAreFinished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.run("--benchmark", "memory", "--duration", "60s") // no program, which would outlive it
	p.await(t, "running the work")
	eventually(t, "samples are stored", func() bool {
		x, ok := onlyTask(t, r.db, 1)
		return ok && x.Chunks >= 2
	})
	out, _, err := inProcess(t, "--db", r.db, "show", "1", "--no-plot")
	if want := fmt.Sprintf("process %d measures it", p.cmd.Process.Pid); err != nil || !strings.Contains(out, want) {
		t.Errorf("while it runs: %v\n%s", err, out)
	}
	if _, said, _ := inProcess(t, "--db", r.db, "tasks"); said != "" {
		t.Errorf("while it runs: %s", said)
	}
	p.kill(t)
	begin := time.Now()
	out, said, err := inProcess(t, "--db", r.db, "tasks")
	if err != nil || !strings.Contains(said, "task 1 was left by a process that is gone: finished (incomplete)") || !strings.Contains(out, "incomplete") {
		t.Errorf("%v\n%s%s", err, said, out)
	}
	if cs := r.captures(); len(cs) != 0 {
		t.Errorf("captures left on the monitor: %+v", cs)
	}
	r.free()
	t.Log("free after", time.Since(begin))

	// One whose monitor does not answer is named, with what to do.
	again := r.run("--benchmark", "memory", "--duration", "60s")
	again.await(t, "running the work")
	again.kill(t)
	r.monitor.kill(t)
	_, said, err = inProcess(t, "--db", r.db, "tasks")
	if err != nil || !strings.Contains(said, "task 3") || !strings.Contains(said, "wattmark host finishes such tasks") {
		t.Errorf("%v\n%s", err, said)
	}
	out, _, _ = inProcess(t, "--db", r.db, "show", "3", "--no-plot")
	if !strings.Contains(out, "its process is gone") {
		t.Errorf("%s", out)
	}
}

// Where nobody reads the standard error any more, as behind 2>&1 | head, the measurement is
// brought to its end as by another signal: the bench is free at once.
func TestNobodyReadsTheOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	c := exec.Command(path, r.runArgs("--", "sleep", "60")...)
	c.Stdout, c.Stderr = write, write
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	lines := bufio.NewScanner(read)
	for lines.Scan() && !strings.Contains(lines.Text(), "starting the capture") {
	}
	_ = read.Close()
	_ = c.Wait() // the exit code tells
	if code := c.ProcessState.ExitCode(); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d, %v", code, c.ProcessState)
	}
	if x, some := onlyTask(t, r.db, 1); some && x.State != store.Incomplete {
		t.Errorf("state %v: %s", x.State, x.Reason)
	}
	if left := r.captures(); len(left) != 0 {
		t.Errorf("captures left on the monitor: %+v", left)
	}
	r.free()
}
