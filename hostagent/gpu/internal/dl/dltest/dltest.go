// Package dltest builds small shared libraries for tests of the bindings.
package dltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Build compiles C source to a shared library in the test's folder and returns
// its path. Without a C compiler the test is skipped.
func Build(t *testing.T, name, source string) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc here: the real dlopen path is not tried")
	}
	dir := t.TempDir()
	src, lib := filepath.Join(dir, "lib.c"), filepath.Join(dir, name)
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-Wall", "-Werror", "-o", lib,
		src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return lib
}

// Stubs returns C functions that return code, for the first symbol of every
// field of table that source does not define itself.
func Stubs(table any, source, code string) string {
	var b strings.Builder
	v := reflect.TypeOf(table)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(strings.TrimSuffix(v.Field(i).Tag.Get("c"), "?"), ",")
		if name != "" && !strings.Contains(source, name+"(") {
			b.WriteString("int " + name + "(void) { return " + code + "; }\n")
		}
	}
	return b.String()
}
