package total

import (
	"os"
	"testing"
)

// A source without a path is a host, whose port may be left out, unless there is a file of its name.
func TestSources(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("tasks", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("node1", 0o700); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]bool{
		"gpu-host": true, "node1": true, "gpu-host:7552": true, "[::1]:7552": true, "host://gpu-host": true, "unix:/run/host.sock": true,
		"tasks": false, "power.db": false, "dir/power": false, "a:b/power": false, "postgres://lab/power": false,
	} {
		if got := isAddress(from); got != want {
			t.Errorf("%s: %v, want %v", from, got, want)
		}
	}
}
