package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"
)

// label marks the goroutines of a world, and those that they start.
const label = "campaign-world"

// openFiles lists the files below dir that this process has open.
func openFiles(dir string) (open []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil // not Linux
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(to, dir) {
			open = append(open, strings.TrimPrefix(to, dir))
		}
	}
	return open
}

// Leaks returns the stacks of goroutines that outlived their worlds. What is on
// its way out is given a moment.
func Leaks() (stacks []string) {
	for end := time.Now().Add(20 * time.Second); ; {
		stacks = stacks[:0]
		var b bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			return []string{fmt.Sprint(err)}
		}
		for _, s := range strings.Split(b.String(), "\n\n") {
			if strings.Contains(s, label) {
				stacks = append(stacks, s)
			}
		}
		if len(stacks) == 0 || time.Now().After(end) {
			return stacks
		}
		<-time.After(50 * time.Millisecond)
	}
}
