package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"wattmark/api/auth"
	"wattmark/hostagent/monitorclient"
)

// monitorProcess is the monitor of a benchmark, a process of its own, as its
// parent holds it. Its methods are safe for concurrent use.
type monitorProcess struct {
	client *monitorclient.Client
	cmd    *exec.Cmd

	// asking is held from a command to its answer; commands that have none may
	// be sent meanwhile.
	asking  sync.Mutex
	writing sync.Mutex
	in      io.WriteCloser
	out     *json.Decoder
}

// monitorOptions say what the monitor process does.
type monitorOptions struct {
	transport string // unix, tcp or tls
	rate      float64
	paced     bool
	tag       uint32
	profile   string
}

// startBenchMonitor starts this program again as a monitor with a generator;
// its spool and socket lie in dir.
func startBenchMonitor(ctx context.Context, dir string, o monitorOptions, stderr io.Writer) (*monitorProcess, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the monitor process: %w", err)
	}
	listen := "unix:" + filepath.Join(dir, "m.sock")
	if o.transport != "unix" {
		listen = "tcp:127.0.0.1:0"
	}
	args := []string{
		"bench", "monitor", "--listen", listen, "--spool", filepath.Join(dir, "spool"),
		"--rate", strconv.FormatFloat(o.rate, 'g', -1, 64), "--tag", strconv.FormatUint(uint64(o.tag), 10),
	}
	var known auth.Client
	if o.transport == overTLS {
		if known, err = benchLab(filepath.Join(dir, "auth")); err != nil {
			return nil, err
		}
		args = append(args, "--auth", filepath.Join(dir, "auth"))
	}
	if o.paced {
		args = append(args, "--paced")
	}
	if o.profile != "" {
		args = append(args, "--profile", o.profile+".monitor")
	}
	p := &monitorProcess{cmd: exec.CommandContext(ctx, exe, args...)}
	p.cmd.Stderr = stderr
	p.cmd.WaitDelay = 5 * time.Second
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the monitor process: %w", err)
	}
	if err := p.connect(known); err != nil {
		return nil, errors.Join(fmt.Errorf("start the monitor process: %w", err), p.stop())
	}
	return p, nil
}

func (p *monitorProcess) connect(known auth.Client) error {
	var n monitorNote
	if err := p.out.Decode(&n); err != nil {
		return err
	}
	o, err := known.DialOptions(n.Address)
	if err == nil {
		p.client, err = monitorclient.Dial(n.Address, monitorclient.Options{Version: version(), Dial: o})
	}
	return err
}

// stop ends the process and waits for it.
func (p *monitorProcess) stop() error {
	var errs []error
	if p.client != nil {
		errs = append(errs, p.client.Close())
	}
	p.in.Close() // its end is the signal
	if err := p.cmd.Wait(); err != nil {
		errs = append(errs, fmt.Errorf("monitor process: %w", err))
	}
	return errors.Join(errs...)
}

// ask sends a command and returns the answer.
func (p *monitorProcess) ask(verb string) (monitorNote, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	var n monitorNote
	err := p.send(verb)
	if err == nil {
		err = p.out.Decode(&n)
	}
	if err != nil {
		return n, fmt.Errorf("monitor process: %s: %w", verb, err)
	}
	return n, nil
}

// allow lets the generator deliver so many scans in all.
func (p *monitorProcess) allow(scans uint64) error {
	return p.send("allow " + strconv.FormatUint(scans, 10))
}

func (p *monitorProcess) send(line string) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := fmt.Fprintln(p.in, line)
	return err
}
