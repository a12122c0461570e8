package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Process is a started program. Its methods may be called from any goroutine.
type Process struct {
	*exec.Cmd
	Ended <-chan struct{} // closed when the program has ended and was waited for
	log   string
}

// Start starts a command. Its standard error, and its standard output where the caller set none, are appended to a
// file. The exit status is dropped: a trial judges a program by the files and answers it leaves.
func Start(c *exec.Cmd, log string) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the process has its own descriptor
	if c.Stderr = f; c.Stdout == nil {
		c.Stdout = f
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	return &Process{Cmd: c, Ended: ended, log: log}, nil
}

// Stop sends a signal and waits for the end of the process; after 20 s it is killed.
func (p *Process) Stop(sig os.Signal) {
	_ = p.Process.Signal(sig)
	select {
	case <-p.Ended:
	case <-time.After(20 * time.Second):
		_ = p.Process.Kill()
		<-p.Ended
	}
}

// AwaitPort waits until something listens at a TCP address. It fails when the process or the context ends first.
func (p *Process) AwaitPort(ctx context.Context, address string) error {
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-p.Ended:
			return fmt.Errorf("%s ended before it listened at %s: see %s", p.Path, address, p.log)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Wait waits for a time, or until the context ends.
func Wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Await calls f every 20 ms until it returns nil. It fails after a time, with f's last error.
func Await(ctx context.Context, event string, within time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if Wait(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("%s did not come within %v: %w", event, within, err)
		}
	}
}

// Path resolves a relative path against the folder of the module around the working directory: the go command runs a
// test in the folder of its package. Outside of a module, and for the empty path, it returns the path itself.
func Path(path string) string {
	wd, err := os.Getwd()
	if err != nil || path == "" || filepath.IsAbs(path) {
		return path
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, path)
		} else if dir == filepath.Dir(dir) {
			return path
		}
	}
}

// Build compiles wattmark without C. It also looks at each Go file of the module: the go command repeats a cached
// verdict unless a file that the test itself has looked at has changed, and knows nothing of the files that go build
// reads.
func Build(ctx context.Context, program string) error {
	err := filepath.WalkDir(Path("."), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".go" {
			_, err = os.Stat(path)
		}
		return err
	})
	c := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/wattmark/wattmark/cmd/wattmark")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, berr := c.CombinedOutput()
	if berr != nil {
		err = errors.Join(err, fmt.Errorf("build wattmark: %w: %s", berr, out))
	}
	return err
}

// Descriptors lists the files and sockets that a process has open, as /proc names them. It returns
// fs.ErrNotExist where the process has ended, or the system has no /proc.
func Descriptors(pid int) (open []string, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	all, err := os.ReadDir(dir)
	for _, fd := range all {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil { // else closed meanwhile
			open = append(open, to)
		}
	}
	return open, err
}

// Get returns the body of a page. A status other than 200 is an error.
func Get(ctx context.Context, c *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(b), err
}
