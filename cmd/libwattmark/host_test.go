package main_test

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// host is a wattmark host, as a process of its own.
type host struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
	up  chan struct{} // it serves programs
}

// startHost starts a daemon on a socket of its own, and has programs use it.
func (r *rig) startHost(more ...string) *host {
	r.t.Helper()
	socket := filepath.Join(r.t.TempDir(), "host.sock")
	r.host = "unix:" + socket
	return r.startHostAt(socket, more...)
}

func (r *rig) startHostAt(socket string, more ...string) *host {
	r.t.Helper()
	h := &host{t: r.t, done: make(chan struct{}), up: make(chan struct{})}
	h.cmd = r.command(filepath.Join(r.dir, "wattmark"), append([]string{
		"host", "--db", r.db, "--socket", socket, "--listen", "127.0.0.1:0", "--monitor", r.address, "--recover-every", "100ms",
	}, more...)...)
	out, err := h.cmd.StderrPipe()
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	go h.read(bufio.NewScanner(out))
	r.t.Cleanup(func() { h.end(syscall.SIGTERM) })
	select {
	case <-h.up:
	case <-h.done:
		r.t.Fatalf("the daemon ended: %s", h.said())
	case <-time.After(30 * time.Second):
		r.t.Fatalf("the daemon does not serve: %s", h.said())
	}
	return h
}

func (h *host) read(in *bufio.Scanner) {
	defer close(h.done)
	up := sync.OnceFunc(func() { close(h.up) })
	for in.Scan() {
		h.mu.Lock()
		h.log.WriteString(in.Text() + "\n")
		h.mu.Unlock()
		if strings.Contains(in.Text(), "measuring for programs") {
			up()
		}
	}
}

func (h *host) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.String()
}

// await waits until the daemon's log has a text: its lines come through a pipe.
func (h *host) await(text string) {
	h.t.Helper()
	eventually(h.t, "the daemon logs "+text, func() bool { return strings.Contains(h.said(), text) })
}

// end ends the daemon by a signal and returns how it ended.
func (h *host) end(sig syscall.Signal) error {
	_ = h.cmd.Process.Signal(sig) // it may have ended
	<-h.done
	return h.cmd.Wait()
}
