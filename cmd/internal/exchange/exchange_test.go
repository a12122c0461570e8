package exchange

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// The copy of an input that cannot be read twice has no name while it is read: nothing of it
// is left, however the program ends.
func TestCopiesOfInputsHaveNoName(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system has no path of an open file")
	}
	t.Setenv("TMPDIR", t.TempDir())
	file, done, err := importFile("-", strings.NewReader("t_s,gpu_w\n0,1\n"))
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 0 {
		t.Errorf("%v lies there, %v", left, err)
	}
	for range 2 {
		if b, err := os.ReadFile(file); err != nil || string(b) != "t_s,gpu_w\n0,1\n" {
			t.Errorf("it holds %q", b)
		}
	}
	if err := done(); err != nil {
		t.Error(err)
	}
}
