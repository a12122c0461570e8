// Package thirdparty runs, in tests, programs that we did not write.
package thirdparty

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Python is Debian's own, which sees Debian's packages.
const Python = "/usr/bin/python3"

// Need skips the test where a program is absent, unless WATTMARK_REQUIRE_TOOLS=1
// says that it must be there. The probe is a command that succeeds where it is.
func Need(t *testing.T, debian string, probe ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), probe[0], probe[1:]...).CombinedOutput()
	if err == nil {
		return
	}
	reason := fmt.Sprintf("no %s (apt-get install %s): %v\n%s", probe[0], debian, err, out)
	if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// NeedVISA skips the test where there is no PyVISA.
func NeedVISA(t *testing.T) {
	t.Helper()
	Need(t, "python3-pyvisa python3-pyvisa-py python3-serial", Python, "-c", "import pyvisa, pyvisa_py, serial")
}

// Run runs a program for at most 20 s and returns its lines.
func Run(t *testing.T, name string, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// Listen serves an instrument on a port of this machine until the test ends.
func Listen(t *testing.T, serve func(context.Context, net.Listener) error) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}
