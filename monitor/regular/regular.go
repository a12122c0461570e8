// Package regular reads plain files of a running service. A pipe or device in such a file's
// place is refused, and never blocks. What the YAML library finds wrong in one becomes a line.
package regular

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// Read returns the content of a plain file, or its first most+1 bytes where it has more:
// what is longer than most is for the caller to refuse. It does not block on what is no
// plain file; links are followed.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !s.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file, but %v: put a file in its place", path, s.Mode().Type())
	}
	return io.ReadAll(io.LimitReader(f, most+1))
}

// YAMLMessage returns a message of the YAML library without its own lines of the file. Those about a tab,
// which would be shown as a space, become one that says what to write.
func YAMLMessage(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if strings.Contains(text, "\t") || strings.Contains(text, "tab character") {
		return "a tab: YAML wants spaces here"
	}
	return text
}
