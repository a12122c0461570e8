//go:build unix

package calibration

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe among the records is told, not waited for.
func TestPipeAmongTheRecords(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "x.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Folder(dir).Load(); err == nil || !strings.Contains(err.Error(), "x.yaml is no file") {
		t.Error(err)
	}
}
