// Package process names processes so that one is not mistaken for a later one of the same
// number: by number, start, namespace, boot and machine. It finds out whether a named process
// still runs, and makes temporary folders that others remove once their process is gone.
package process

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Liveness is the state of a process that owns a task.
type Liveness uint8

// The states: unknown, as of a process of another machine; running; ended.
const (
	Unknown Liveness = iota
	Alive
	Gone
)

// owner names a process so that it is not mistaken for a later one of the same number.
type owner struct {
	pid               int
	start             string // ticks since boot, as the kernel counts
	space, boot, host string // its namespaces of numbers and of time, the boot, the machine
}

// Owner names this process, for Lives; empty where the system does not reveal enough.
func Owner() string {
	o, ok := own(os.Getpid())
	if !ok {
		return ""
	}
	return fmt.Sprintf(ownerForm, o.pid, o.start, o.space, o.boot, o.host)
}

const ownerForm = "pid=%d start=%s space=%s boot=%s host=%s"

// own describes a process of this machine. ok is false where a part cannot be read.
func own(pid int) (o owner, ok bool) {
	o.pid = pid
	var errs [3]error
	o.space, errs[0] = os.Readlink("/proc/self/ns/pid")
	if clock, err := os.Readlink("/proc/self/ns/time"); err == nil {
		o.space += "," + clock // the origin of the start times in /proc
	}
	o.host, errs[1] = os.Hostname()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	o.boot, errs[2] = strings.TrimSpace(string(boot)), err
	o.start = started(pid)
	return o, errs == [3]error{} && o.start != "" && !strings.ContainsAny(o.host+o.space+o.boot, " \n")
}

// started is when a process was started, in ticks since boot; empty where there is none.
func started(pid int) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The name, in brackets, may hold anything; the state is the first field behind it.
	at := strings.LastIndexByte(string(raw), ')')
	fields := strings.Fields(string(raw)[at+1:])
	if at < 0 || len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// Lives returns the state of the process that Owner named, and its number. A process of another
// machine, container or user may be Unknown.
func Lives(name string) (Liveness, int) {
	var o owner
	parts, _ := fmt.Sscanf(name, ownerForm, &o.pid, &o.start, &o.space, &o.boot, &o.host)
	here, known := own(os.Getpid())
	switch {
	case parts < 5 || o.pid <= 0 || !known || o.host != here.host:
		return Unknown, o.pid
	case o.boot != here.boot:
		return Gone, o.pid
	case o.space != here.space:
		return Unknown, o.pid
	}
	switch start := started(o.pid); {
	case start == o.start:
		return Alive, o.pid
	case hidden(o.pid):
		return Unknown, o.pid
	}
	return Gone, o.pid
}

// hidden reports whether a process of this number runs that /proc does not show to this
// user (its mount option hidepid, ProtectProc= of systemd).
func hidden(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil && errors.Is(unix.Kill(pid, 0), unix.EPERM)
}

// TempDir makes a temporary folder named for this process. Folders of processes of this machine
// that are gone are removed first: a process that was killed left them.
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

// tempName is how the folders of a process begin: with its machine and boot, which may share the folder for
// temporary files with others, its namespace of numbers, its number, and when it was started.
func tempName(machine string, o *owner) string {
	return fmt.Sprintf("%s%s.%s-%s-%d-%s-", tempPrefix, machine, shortHash(o.boot), spaceNumber(o.space), o.pid, o.start)
}

// machineHash identifies the machine by name and machine id. sure is false where there is no
// machine id: other machines may have the same name.
func machineHash(o *owner) (hash string, sure bool) {
	id, err := os.ReadFile("/etc/machine-id")
	return shortHash(o.host + "\n" + string(id)), err == nil && len(id) >= 32
}

// shortHash is the first five bytes of a SHA-256, in hexadecimal: enough to tell machines apart.
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
