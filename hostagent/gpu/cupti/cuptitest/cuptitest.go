// Package cuptitest builds a stand-in for libcupti, for tests without a GPU: a
// real shared library with CUPTI's calls, buffers and threads, whose kernels the
// test invents (standin_kernel).
package cuptitest

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl/dltest"
)

//go:embed csource/standin.c
var source string

// Build builds the stand-in and returns its path. kernel is the version of the
// kernel record (4, 5, 9, 10), version the result of cuptiGetVersion. Each of
// defines sets a script of csource/standin.c, such as "FAIL_ENABLE". Without a C
// compiler the test is skipped.
func Build(t *testing.T, kernel int, version uint32, defines ...string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "#define KERNEL %d\n#define VERSION %d\n", kernel, version)
	for _, d := range defines {
		fmt.Fprintf(&b, "#define %s\n", d)
	}
	return dltest.Build(t, "libcupti.so.13", b.String()+source)
}
