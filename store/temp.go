package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// TempDir makes a temporary folder whose name says which process made it. Those of
// processes of this machine that are gone are removed first: one that was killed left them.
func TempDir() (string, error) {
	sweepTemp(os.TempDir())
	o, ok := own(os.Getpid())
	if !ok {
		return os.MkdirTemp("", tempPrefix)
	}
	return os.MkdirTemp("", fmt.Sprintf("%s%s-%d-%s-", tempPrefix, spaceNumber(o.space), o.pid, o.start))
}

// tempPrefix begins the names of the folders; behind it stand the process's namespace of
// numbers, its number, and when it was started.
const tempPrefix = "wattmark-tmp-"

// spaceNumber is a namespace's numbers, as 4026531836 of pid:[4026531836].
func spaceNumber(space string) string {
	return strings.Join(strings.FieldsFunc(space, func(r rune) bool { return r < '0' || r > '9' }), ".")
}

// sweepTemp removes the folders of processes that are gone, of this user and namespace.
// What cannot be removed stays.
func sweepTemp(dir string) {
	here, ok := own(os.Getpid())
	names, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if !ok || err != nil {
		return
	}
	for _, name := range names {
		f := strings.Split(strings.TrimPrefix(filepath.Base(name), tempPrefix), "-")
		if len(f) != 4 || f[0] != spaceNumber(here.space) {
			continue
		}
		if pid, err := strconv.Atoi(f[1]); err != nil || pid <= 0 || started(pid) == f[2] {
			continue
		}
		_ = os.RemoveAll(name) // which follows no links
	}
}
