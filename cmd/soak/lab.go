package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// lab is what a soak runs: a card and a meter in software, a monitor, a host, and
// cables between them that can be cut.
type lab struct {
	o     options
	dir   string // scratch
	begun time.Time

	meter, monitor, host  *process
	meterLine, hostLine   *proxy
	monitorHTTP, hostHTTP string
	hostAddress           string
	meterAddress          string
	monitorAddress        string

	captures []capture
	leftover int  // tasks that nobody finished
	keep     bool // the scratch, to look at; until the verdict is good
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// keepSize is what the host keeps of old tasks, so that the disk is flat too.
const keepSize = "300MB"

func newLab(o options) (*lab, error) {
	dir, err := os.MkdirTemp("", "wattmark-soak-")
	if err != nil {
		return nil, err
	}
	l := &lab{o: o, dir: dir, keep: true}
	for _, a := range []*string{&l.monitorHTTP, &l.hostHTTP, &l.hostAddress, &l.meterAddress, &l.monitorAddress} {
		if *a, err = freePort(); err != nil {
			return nil, err
		}
	}
	var errs [5]error
	l.meterLine, errs[0] = newProxy(l.meterAddress)
	l.hostLine, errs[1] = newProxy(l.monitorAddress)
	l.meter, errs[2] = newProcess(dir, "meter", o.program, "emulate", "nidaqmx", "--listen", l.meterAddress, "--gpu", l.path("gpu"), "--imperfect")
	l.monitor, errs[3] = newProcess(dir, "monitor", o.program, "monitor", "--bench", l.path("bench.yaml"), "--listen", l.monitorAddress,
		"--spool", l.path("spool"), "--http", l.monitorHTTP, "--spool-quota", "2GB")
	l.host, errs[4] = newProcess(dir, "host", o.program, "host", "--db", l.path("power.db"), "--listen", l.hostAddress, "--http", l.hostHTTP,
		"--socket", l.path("host.sock"), "--monitor", l.monitorAddress, "--recover-every", "5s", "--retain-keep-size", keepSize, "--retain-every", "1m")
	return l, errors.Join(errs[:]...)
}

var benchAddress = regexp.MustCompile(`tcp:[0-9.]+:[0-9]+`)

// start brings up all programs.
func (l *lab) start(ctx context.Context) error {
	text, err := os.ReadFile(l.o.bench)
	if err != nil {
		return err
	}
	text = benchAddress.ReplaceAll(text, []byte("tcp:"+l.meterLine.address()))
	if err := os.WriteFile(l.path("bench.yaml"), text, 0o644); err != nil { // #nosec G703 -- a folder that the user names
		return err
	}
	for _, s := range []struct {
		p       *process
		address string
	}{{l.meter, l.meterAddress}, {l.monitor, l.monitorAddress}, {l.host, l.hostAddress}} {
		if err := s.p.start(); err != nil {
			return err
		}
		if err := s.p.awaitPort(ctx, s.address); err != nil {
			return err
		}
	}
	l.begun = time.Now()
	return nil
}

// restartHost is what a service manager does.
func (l *lab) restartHost(ctx context.Context) error {
	l.host.end(syscall.SIGKILL)
	if err := l.host.start(); err != nil {
		return err
	}
	return l.host.awaitPort(ctx, l.hostAddress)
}

// close stops all, and removes the scratch where all went well.
func (l *lab) close() {
	for _, p := range []*process{l.host, l.monitor, l.meter} {
		if p != nil {
			p.end(syscall.SIGTERM)
		}
	}
	for _, p := range []*proxy{l.meterLine, l.hostLine} {
		if p != nil {
			p.close()
		}
	}
	if !l.keep {
		_ = os.RemoveAll(l.dir)
		return
	}
	fmt.Fprintln(os.Stderr, "soak: logs, spool and database are left in", l.dir)
}
