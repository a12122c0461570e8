// Package pgtest runs throw-away PostgreSQL servers for tests, on a socket in a
// folder of their own, as a user without rights: PostgreSQL does not run as root.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Cluster is a server with its files.
// Its life is New, tests, Remove; Kill and Start stand for a crash between.
type Cluster struct {
	// bin is the folder of the server's programs, dir the one of its data and socket.
	bin, dir string
	settings []string
	as       *syscall.Credential // nil for the test's own user

	process *exec.Cmd
	done    chan struct{} // closed when the process has ended
	log     *os.File      // the server's output, read up to the last call of Log
}

// Log returns the server's output since the last call.
func (c *Cluster) Log() string {
	text, _ := io.ReadAll(c.log) // a file of our own
	return string(text)
}

// startWithin is how long a server may take to answer.
const startWithin = 60 * time.Second

// Programs returns the folder of PostgreSQL's programs; empty for none. A program in PATH wins over the packaged ones.
func Programs() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is right
	if p, err := exec.LookPath("initdb"); err == nil {
		found = append(found, p)
	}
	if len(found) == 0 {
		return ""
	}
	p, err := filepath.EvalSymlinks(found[len(found)-1])
	if err != nil {
		return ""
	}
	return filepath.Dir(p)
}

// New makes a cluster and starts it. Settings are as in "fsync=off". It returns nil without an error where
// PostgreSQL is not installed. The data directory has no password and listens on a socket in a private
// folder only. Durability of initdb itself is not wanted (--no-sync).
func New(settings ...string) (*Cluster, error) {
	c := &Cluster{bin: Programs(), settings: settings}
	if c.bin == "" {
		return nil, nil
	}
	// A nil credential is the test's own user. PostgreSQL does not run as root.
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			u, err = user.Lookup("nobody")
		}
		if err != nil {
			return nil, fmt.Errorf("neither postgres nor nobody is a user, and PostgreSQL does not run as root: %w", err)
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		c.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	var err error
	if c.dir, err = os.MkdirTemp("", "wattmark-pg"); err != nil {
		return nil, err
	}
	// The server's user must own the folder.
	if c.as != nil {
		if err := os.Chown(c.dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
			return nil, err
		}
	}
	if c.log, err = os.Create(c.output()); err != nil {
		return nil, err
	}
	cmd := c.command("initdb", "-D", c.data(), "-U", "wattmark", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(c.dir) // the first error is returned
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return c, c.Start()
}

// data is the server's data directory, output the file of its output.
func (c *Cluster) data() string   { return filepath.Join(c.dir, "data") }
func (c *Cluster) output() string { return filepath.Join(c.dir, "log") }

// command runs one of the server's programs in its folder, as the server's user.
func (c *Cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	// It ends with the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	return cmd
}

// Start starts the server and waits until it answers.
func (c *Cluster) Start() error {
	args := []string{"-D", c.data(), "-k", c.dir, "-c", "listen_addresses="}
	for _, s := range c.settings {
		args = append(args, "-c", s)
	}
	// The deadline bounds all tries together.
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	for {
		err := c.start(ctx, args)
		if err == nil || ctx.Err() != nil {
			return err
		}
		// After a kill, the processes that the server had may still be leaving.
		<-time.After(50 * time.Millisecond)
	}
}

// start makes one try: it ends when a connection is accepted, the process has ended, or with the context.
func (c *Cluster) start(ctx context.Context, args []string) error {
	out, err := os.OpenFile(c.output(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer out.Close() // the process has its own
	c.Log()
	process, done := c.command("postgres", args...), make(chan struct{})
	process.Stdout, process.Stderr = out, out
	if err := process.Start(); err != nil {
		return err
	}
	c.process, c.done = process, done
	go func() {
		process.Wait() // its output says why it ended
		close(done)
	}()
	for {
		// A connection is the only sign that recovery is over.
		conn, err := pgx.Connect(ctx, c.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-done:
			return fmt.Errorf("postgres ended at once\n%s", c.Log())
		case <-ctx.Done():
			c.Kill()
			return fmt.Errorf("postgres does not answer: %w\n%s", err, c.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// URL is the address of a database.
func (c *Cluster) URL(database string) string {
	u := url.URL{Scheme: "postgres", Path: "/" + database, User: url.User("wattmark")}
	u.RawQuery = url.Values{"host": {c.dir}}.Encode()
	return u.String()
}

// PID is the server's process.
func (c *Cluster) PID() int { return c.process.Process.Pid }

// Kill ends the server with no chance to do anything, as a fault would.
func (c *Cluster) Kill() { c.signal(syscall.SIGKILL) }

// Stop ends the server; connections are cut.
func (c *Cluster) Stop() { c.signal(syscall.SIGINT) }

// signal sends a signal and blocks until the process has ended; without a process it does nothing.
func (c *Cluster) signal(s syscall.Signal) {
	if c.process == nil {
		return
	}
	c.process.Process.Signal(s) // it may have ended
	<-c.done
	c.process = nil
}

// Remove stops the server and deletes its files.
func (c *Cluster) Remove() error {
	c.signal(syscall.SIGQUIT)
	return errors.Join(c.log.Close(), os.RemoveAll(c.dir))
}

// Own starts a cluster for one test alone, and removes it behind the test.
// Tests that kill the server, or need other settings, must not share it.
func Own(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	c, err := New(settings...)
	Need(t, c, err)
	t.Cleanup(func() {
		if err := c.Remove(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Need skips the test where there is no cluster, and fails it on an error.
func Need(t testing.TB, c *Cluster, err error) {
	t.Helper()
	switch {
	case err != nil:
		t.Fatal(err)
	case c == nil && os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1":
		t.Fatal("PostgreSQL is not installed (package postgresql), and WATTMARK_REQUIRE_TOOLS=1 asks for it")
	case c == nil:
		t.Skip("PostgreSQL is not installed (package postgresql): the task database on a server is not tested")
	}
}

// Make makes an empty database.
func (c *Cluster) Make(t testing.TB, name string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// The name is the package's own, w and a number: no quoting is needed.
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
}
