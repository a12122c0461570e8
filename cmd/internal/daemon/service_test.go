//go:build unix

package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Without a service manager Tell does nothing; a socket that no longer exists is a warning.
func TestNotifier(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "1")
	var said strings.Builder
	n := NewNotifier(slog.New(slog.NewTextHandler(&said, nil)))
	if n.every != 0 || os.Getenv("NOTIFY_SOCKET") != "" {
		t.Errorf("a watchdog for another process, or an environment for children: %+v", n)
	}
	n.Tell("READY=1")
	if !strings.Contains(said.String(), "cannot be told") {
		t.Errorf("said %q", &said)
	}
	(&Notifier{}).Tell("READY=1")
}
