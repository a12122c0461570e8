//go:build unix

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/measure/session"
)

// manager is a service manager: what it is told.
type manager struct {
	conn *net.UnixConn
	path string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{conn, path}
}

// await reads until something is told that contains the words.
func (m *manager) await(t *testing.T, words string) {
	t.Helper()
	_ = m.conn.SetReadDeadline(time.Now().Add(patience))
	for buf := make([]byte, 4096); ; {
		n, err := m.conn.Read(buf)
		if err != nil {
			t.Fatalf("%q was not told: %v", words, err)
		}
		if strings.Contains(string(buf[:n]), words) {
			return
		}
	}
}

// managed starts the program as a service manager does.
func managed(t *testing.T, m *manager, args ...string) *process {
	t.Helper()
	t.Setenv("NOTIFY_SOCKET", m.path)
	t.Setenv("WATCHDOG_USEC", "50000")
	return start(t, args...)
}

// A monitor as a service: ready when it is, alive, reloaded with a capture that
// goes on, and stopped with a capture that comes to its end.
func TestMonitorAsAService(t *testing.T) {
	r := newRig(t)
	r.monitor.stop(t)
	dir := t.TempDir()
	bench, config := filepath.Join(dir, "bench.yaml"), filepath.Join(dir, "monitor.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	benchText := fmt.Sprintf("name: desk\ninstruments:\n- {kind: powersensor3, port: %q}\n", r.link)
	configText := fmt.Sprintf("bench: %q\nspool: %q\nlisten: 127.0.0.1:0\ndrain: 1h\n", bench, r.spool)
	write(bench, benchText)
	write(config, configText)
	m := newManager(t)
	p := managed(t, m, "monitor", "--config", config)
	m.await(t, "READY=1\nSTATUS=serving bench desk")
	r.address = p.await(t, `msg="serving the bench".* address=(\S+)`)[1]
	m.await(t, "WATCHDOG=1")

	c := r.client()
	started, err := c.Start(t.Context(), session.Request{Holder: "ada@lab", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	write(config, strings.Replace(configText, "listen: 127.0.0.1:0", "listen: 127.0.0.1:1\nlog_level: debug\nkeep: 24h", 1))
	_ = p.cmd.Process.Signal(syscall.SIGHUP)
	p.await(t, `changed="keep=24h log-level=debug"`)
	p.await(t, `need a restart.*settings=listen`)
	p.await(t, `were read again.*bench=desk`)
	write(bench, strings.Replace(benchText, "powersensor3", "pmd", 1))
	_ = p.cmd.Process.Signal(syscall.SIGHUP)
	p.await(t, `names other instruments.*needs a restart`)
	write(bench, "instruments: []\n")
	_ = p.cmd.Process.Signal(syscall.SIGHUP)
	p.await(t, `the bench stays as it is.*bench.yaml:1:[^\\]*$`)
	m.await(t, "; the last reload failed: "+bench+":1:")

	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	m.await(t, "STOPPING=1")
	eventually(t, "no new captures are taken", func() bool {
		b, err := c.GetBench(t.Context())
		return err == nil && b.Draining && b.Holder == "ada@lab"
	})
	if _, err := c.Start(t.Context(), session.Request{Holder: "bob@lab"}); err == nil || !strings.Contains(err.Error(), "no new captures") {
		t.Errorf("a new capture: %v", err)
	}
	s, err := c.Stop(t.Context(), started.CaptureID)
	if err != nil || s.State != session.Complete {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := c.Release(t.Context(), started.CaptureID); err != nil {
		t.Error(err)
	}
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A second signal ends the wait; the capture says so when the monitor is back.
func TestSecondSignalEndsTheDrain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client()
	started, err := c.Start(t.Context(), session.Request{Holder: "ada@lab", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.monitor.cmd.Process.Signal(syscall.SIGTERM)
	eventually(t, "the monitor drains", func() bool {
		b, err := c.GetBench(t.Context())
		return err == nil && b.Draining
	})
	eventually(t, "the monitor ends", func() bool {
		_ = r.monitor.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-r.monitor.ended:
			return true
		default:
			return false
		}
	})
	r.startMonitor(freeAddress(t))
	for _, x := range r.captures() {
		if x.ID == started.CaptureID && strings.Contains(x.Reason, "stopped at once") {
			return
		}
	}
	t.Errorf("the capture does not say why it ended: %+v", r.captures())
}

func TestHostAsAService(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "host.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf("db: %q\nlisten: 127.0.0.1:0\n", filepath.Join(dir, "power.db"))), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newManager(t)
	p := managed(t, m, "host", "--config", config)
	m.await(t, "READY=1")
	address := p.await(t, `msg="serving the task database".* address=(\S+)`)[1]
	m.await(t, "WATCHDOG=1")
	if v, err := daemon.AskVersion(t.Context(), address, "wattmark.v1.TaskService"); err != nil || v == "" {
		t.Errorf("version %q, %v", v, err)
	}
	if err := os.WriteFile(config, []byte("recover_every: 0s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Process.Signal(syscall.SIGHUP)
	p.await(t, `recover_every must be more than 0`)
	p.await(t, `settings="db listen"`)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	m.await(t, "STOPPING=1")
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestConfigFilesAreChecked(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(name, []byte("bench: b.yaml\nlisen: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside(t, "monitor", "--config", name).fails(t, cli.ExitUsage, name+":2:1", `"lisen"`, "listen")
	inside(t, "host", "--config", name).fails(t, cli.ExitUsage, name+":1:1", `"bench"`, "db", "recover_every")
	inside(t, "monitor", "--config", name+".not").fails(t, cli.ExitUsage, name+".not")
}
