package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// process is a program that runs on until it is stopped or killed.
type process struct {
	name string
	args []string
	log  *os.File

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// newProcess prepares a program; its log lies in dir.
func newProcess(dir, name string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &process{name: name, args: args, log: log}, nil
}

// start begins it, or begins it anew.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // whoever needs it up sees that it is not
		close(done)
	}()
	p.cmd, p.done = cmd, done
	return nil
}

// pid is 0 before the first start.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// end sends a signal and waits for the end; one that does not come in time is
// forced.
func (p *process) end(sig os.Signal) {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(sig)
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		<-done
	}
}

// awaitPort returns once somebody listens.
func (p *process) awaitPort(ctx context.Context, address string) error {
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		p.mu.Lock()
		done := p.done
		p.mu.Unlock()
		select {
		case <-done:
			return fmt.Errorf("%s ended at once: see %s", p.name, p.log.Name())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// freePort is an address on which nobody listens.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// run runs a program to its end, kills it after a while where that is asked for,
// and returns what it printed.
func run(ctx context.Context, during func(kill func()), args ...string) (out []byte, killed bool, err error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = 5 * time.Second
	var side sync.WaitGroup
	if during != nil {
		side.Go(func() {
			during(func() {
				killed = true
				_ = cmd.Process.Signal(syscall.SIGKILL)
			})
		})
	}
	out, err = cmd.Output()
	side.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, lastLine(exit.Stderr))
	}
	return out, killed, err
}
