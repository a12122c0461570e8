package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattmark/wattmark/cmd/internal/cli"
)

// patience bounds every wait in these tests: far more than is ever needed, so
// that only what hangs runs into it.
const patience = 3 * time.Minute

// endBrowser ends the browser that tests share, if one was started.
var endBrowser = func() {}

// buildDir is where the program is built, once for all tests.
var buildDir string

func TestMain(m *testing.M) {
	// The environment of who runs the tests must not decide what they see.
	for _, name := range []string{"DB", "JOB", "MONITOR", "HOST", "USER", "GPU", "CONTEXT", "AUTH", "TLS_CA", "TLS_CERT", "TLS_KEY", "TOKEN", "TOKEN_FILE"} {
		_ = os.Unsetenv("WATTMARK_" + name)
	}
	_ = os.Setenv("WATTMARK_CONFIG", "none")
	_ = os.Setenv("LC_ALL", "C.UTF-8")
	// Nor must an ignored SIGHUP (nohup): programs start with the default for what is caught here.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	dir, err := os.MkdirTemp("", "wattmark-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	_ = os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	code := m.Run()
	endBrowser()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// program builds wattmark as a user does, once, and returns its path; library the C library.
var (
	program = sync.OnceValues(func() (string, error) { return built("wattmark", "CGO_ENABLED=0", ".") })
	library = sync.OnceValues(func() (string, error) {
		return built("libwattmark.so", "CGO_ENABLED=1", "-buildmode=c-shared", "../libwattmark")
	})
)

func built(name, env string, args ...string) (string, error) {
	path := filepath.Join(buildDir, name)
	c := exec.Command("go", append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", path}, args...)...)
	c.Env = append(os.Environ(), env)
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// tail keeps what a process prints and tells who waits for it.
type tail struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
	return t.text.Write(p)
}

// read returns what was printed so far and a channel that is closed when there is more.
func (t *tail) read() (string, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.text.String(), t.changed
}

func (t *tail) String() string {
	s, _ := t.read()
	return s
}

// process is a wattmark that runs.
type process struct {
	cmd      *exec.Cmd
	out, err tail
	ended    chan struct{}
}

// start starts the program; it is killed when the test ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith starts the program with a standard input.
func startWith(t *testing.T, in io.Reader, args ...string) *process {
	t.Helper()
	return startCommand(t, in, command(t, args...))
}

// startEnv starts the program with variables that are added to this process's environment.
func startEnv(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	c := command(t, args...)
	c.Env = append(os.Environ(), env...)
	return startCommand(t, nil, c)
}

// command is the program with its arguments, not yet started.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(path, args...)
}

// startCommand starts what leads to the program in the end.
func startCommand(t *testing.T, in io.Reader, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill(t)
		if t.Failed() {
			t.Logf("%s\n%s%s", strings.Join(cmd.Args, " "), &p.out, &p.err)
		}
	})
	return p
}

// await waits for a line that matches and returns the match's groups.
func (p *process) await(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		out, moreOut := p.out.read()
		errs, moreErr := p.err.read()
		for _, text := range []string{out, errs} {
			if m := re.FindStringSubmatch(text); m != nil {
				return m
			}
		}
		select {
		case <-moreOut:
		case <-moreErr:
		case <-p.ended:
			if out+errs == p.out.String()+p.err.String() {
				t.Fatalf("%v ended without %q", p.cmd.Args, pattern)
			}
		case <-timer.C:
			t.Fatalf("%v does not print %q", p.cmd.Args, pattern)
		}
	}
}

// wait waits for the end and returns the exit code.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		t.Fatalf("%v does not end", p.cmd.Args)
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill is kill -9.
func (p *process) kill(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Kill()
	p.wait(t)
}

// stop asks for the end, as Ctrl-C does.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	return p.wait(t)
}

// result is what a command came to.
type result struct {
	out, err string
	code     int
}

// wattmark runs the program in a process of its own, to its end.
func wattmark(t *testing.T, args ...string) result {
	t.Helper()
	return start(t, args...).result(t)
}

// result waits for the end and returns what the command came to.
func (p *process) result(t *testing.T) result {
	t.Helper()
	code := p.wait(t)
	return result{p.out.String(), p.err.String(), code}
}

// Inside runs a command in this process. What main would print of an error
// stands at the end of err.
func inside(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	err := execute(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	r := result{out: out.String(), err: errs.String()}
	if err != nil {
		r.err += "wattmark: " + err.Error() + "\n"
		r.code = cli.ExitCode(err)
	}
	return r
}

// ok fails the test unless a command went well.
func (r result) ok(t *testing.T) result {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	return r
}

// Fails checks the exit code and that the message has all that an operator needs.
func (r result) fails(t *testing.T, code int, words ...string) result {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, w := range words {
		if !strings.Contains(r.err, w) {
			t.Errorf("%q is not told:\n%s", w, r.err)
		}
	}
	return r
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	began, timer, tick := time.Now(), time.NewTimer(patience), time.NewTicker(10*time.Millisecond)
	defer timer.Stop()
	defer tick.Stop()
	defer func() { t.Logf("%.1f s until %s", time.Since(began).Seconds(), what) }()
	for !holds() {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Fatal("waited in vain until ", what)
		}
	}
}

// tool finds a program that the product does not need but a test does.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return path
}

// stockSQL runs a statement in the sqlite3 program of the system.
func stockSQL(t *testing.T, db, statement string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), tool(t, "sqlite3"), "-batch", "-readonly", db, statement).CombinedOutput()
	if err != nil {
		t.Fatalf("sqlite3: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// execSQL runs a statement in a database of any kind, through the product's driver.
func execSQL(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// NoRaces passes over a test that works on what is stored in one goroutine, or times:
// the database takes twenty times as long under the race detector, and its own tests
// look for races there.
func noRaces(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("it works on stored tasks in one goroutine: nothing can race")
	}
}

// root returns the program's command.
func root(a *cli.App) *cobra.Command { return cli.Root(a, cli.FamiliesFor(nil, families)...) }

// Every family has the commands by whose names it is chosen, and no others.
func TestFamiliesByName(t *testing.T) {
	for _, f := range families {
		var names []string
		for _, c := range f.Commands(&cli.App{}) {
			names = append(names, c.Name())
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != f.Names {
			t.Errorf("a family of %q has %q", f.Names, got)
		}
	}
	if n := len(cli.FamiliesFor([]string{"--db", "x", "tasks"}, families)); n != len(families) {
		t.Errorf("a flag before the command: %d families", n)
	}
}

// execute runs a command line in this process.
func execute(ctx context.Context, args []string, s cli.Streams) error {
	return cli.Run(ctx, args, s, cli.FamiliesFor(args, families)...)
}
