package store

import (
	"crypto/sha256"
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
	machine, _ := machineHash(&o)
	return os.MkdirTemp("", tempName(machine, &o))
}

// tempPrefix begins the names of the folders.
const tempPrefix = "wattmark-tmp-"

// tempName is how the folders of a process begin: with its machine and boot, which may share
// the folder for temporary files with others, its namespace of numbers, its number, and when
// it was started.
func tempName(machine string, o *owner) string {
	return fmt.Sprintf("%s%s.%s-%s-%d-%s-", tempPrefix, machine, shortHash(o.boot), spaceNumber(o.space), o.pid, o.start)
}

// machineHash tells machines apart by their names and machine ids. sure is false where there
// is no machine id: others may have the same name.
func machineHash(o *owner) (hash string, sure bool) {
	id, err := os.ReadFile("/etc/machine-id")
	return shortHash(o.host + "\n" + string(id)), err == nil && len(id) >= 32
}

func shortHash(text string) string { return fmt.Sprintf("%.5x", sha256.Sum256([]byte(text))) }

// spaceNumber is a namespace's numbers, as 4026531836 of pid:[4026531836].
func spaceNumber(space string) string {
	return strings.Join(strings.FieldsFunc(space, func(r rune) bool { return r < '0' || r > '9' }), ".")
}

// sweepTemp removes the folders of processes of this machine that are gone: of this boot and
// namespace, and of earlier boots. What cannot be removed stays.
func sweepTemp(dir string) {
	here, ok := own(os.Getpid())
	names, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if !ok || err != nil {
		return
	}
	machine, sure := machineHash(&here)
	for _, name := range names {
		f := strings.Split(strings.TrimPrefix(filepath.Base(name), tempPrefix), "-")
		if len(f) != 5 {
			continue
		}
		m, boot, _ := strings.Cut(f[0], ".")
		pid, err := strconv.Atoi(f[2])
		switch {
		case m != machine || boot == "" || err != nil || pid <= 0:
			continue
		case boot != shortHash(here.boot):
			if !sure {
				continue
			}
		case f[1] != spaceNumber(here.space) || started(pid) == f[3] || hidden(pid):
			continue
		}
		_ = os.RemoveAll(name) // which follows no links
	}
}
