package regular

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	file, link, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "1234", link: "1234"} {
		if b, err := Read(path, 3); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	for _, path := range []string{pipe, dir, "/dev/zero"} {
		if b, err := Read(path, 3); err == nil || !strings.Contains(err.Error(), "is no file, but") {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
}
