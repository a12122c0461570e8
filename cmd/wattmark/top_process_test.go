//go:build linux

package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/top"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"golang.org/x/sys/unix"
)

// terminal is a program on a terminal of its own.
type terminal struct {
	*process
	master *os.File
}

// onTerminal starts the program on a terminal of that size.
func onTerminal(t *testing.T, columns, rows uint16, args ...string) *terminal {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	master, name, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	x := &terminal{process: &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}, master: master}
	x.resize(t, columns, rows)
	x.cmd.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&x.out, master) // ends with an error when the last slave is closed
	}()
	go func() {
		_ = x.cmd.Wait()
		<-read // what it printed last may still lie in the terminal
		close(x.ended)
	}()
	t.Cleanup(func() {
		x.kill(t)
		_ = master.Close()
		<-read
	})
	return x
}

func (x *terminal) resize(t *testing.T, columns, rows uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
	// Fd makes the file block; a blocked Read would outlive Close.
	_ = unix.SetNonblock(int(x.master.Fd()), true)
}

func (x *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// A person looks at a bench, free and then taken, on a terminal that is made
// narrower meanwhile; a script looks at the same.
func TestTop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	x := onTerminal(t, 80, 24, "top", "--monitor", r.address)
	x.await(t, `(?s)wattmark top.*free.*20 kS/s.*pcie_3v3.*total`)
	if !strings.Contains(x.out.String(), "\x1b[?1049h") || !strings.Contains(x.out.String(), "\x1b[34m") {
		t.Error("no screen of its own, or no colours, on a terminal that has them")
	}
	work, end := r.working("watched")
	x.await(t, `held by`)
	x.resize(t, 40, 12)
	x.await(t, `wattmark top[^\r\n]*…`)
	end()
	if code := work.wait(t); code != 0 {
		t.Errorf("a viewer disturbed the measurement: exit code %d\n%s", code, &work.err)
	}
	var task struct {
		Gaps  uint64 `json:"gaps"`
		State string `json:"state"`
	}
	if err := json.Unmarshal([]byte(work.out.String()), &task); err != nil || task.Gaps != 0 || task.State != "complete" {
		t.Errorf("%+v, %v", task, err)
	}
	x.press(t, "p")
	x.await(t, "held: p goes on")
	x.press(t, "q")
	if code := x.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	eventually(t, "the terminal is as it was", func() bool { return strings.Contains(x.out.String(), "\x1b[?1049l") })

	var picture top.TopReport
	object(t, inside(t, "top", "--json", "--monitor", r.address).ok(t).out, &picture)
	if !picture.Sampled || len(picture.Rails) != 4 || picture.TotalW < 5 || picture.RateHz != 20e3 || picture.Protocol != "1.1" {
		t.Errorf("%+v", picture)
	}
	once := inside(t, "top", "--once", "--monitor", r.address).ok(t).out
	if !strings.Contains(once, "total") || strings.Contains(once, "\x1b") {
		t.Errorf("once: %q", once)
	}
	var left top.TopReport
	object(t, inside(t, "top", "--json", "--sample-idle=false", "--monitor", r.address).ok(t).out, &left)
	if left.Sampled || left.Holder != "" {
		t.Errorf("a free bench that is left alone: %+v", left)
	}
	// In a pipe it prints lines until it is stopped.
	lines := start(t, "top", "--monitor", r.address)
	lines.await(t, `(?m)free +\d+\.\d\d W +pcie_3v3`)
	if code := lines.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestTopWithoutAMonitor(t *testing.T) {
	inside(t, "top", "--once", "--monitor", "127.0.0.1:1").fails(t, cli.ExitFailed, "127.0.0.1:1", "is wattmark monitor running there?")
	inside(t, "top", "--every", "1ms").fails(t, cli.ExitUsage, "--every")
}

// The list of tasks fits the terminal that it is printed on.
func TestTasksOnATerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if p := r.run("--benchmark", "half", "--duration", "400ms", "--name", strings.Repeat("very-long-", 20)); p.wait(t) != 0 {
		t.Fatal(&p.err)
	}
	for _, columns := range []uint16{50, 80, 200} {
		x := onTerminal(t, columns, 24, "tasks", "--db", r.db)
		x.await(t, `very-long`)
		x.wait(t)
		text := strings.ReplaceAll(x.out.String(), "\r", "")
		if got := out.Widest(text); got > int(columns) || !strings.Contains(text, "…") {
			t.Errorf("%d columns of %d:\n%s", got, columns, text)
		}
		plot := onTerminal(t, columns, 24, "show", "1", "--db", r.db)
		plot.await(t, `(?s)═.*aux_12v_2`)
		plot.wait(t)
		_, text, _ = strings.Cut(plot.out.String(), "against the meter")
		for _, l := range strings.Split(strings.ReplaceAll(text, "\r", ""), "\n") {
			if strings.ContainsAny(l, "┤┼═■") && out.Widest(l) > int(columns) {
				t.Errorf("%d columns of %d: %q", out.Widest(l), columns, l)
			}
		}
	}
}
