package store

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Liveness is what is known of a process that owns a task.
type Liveness uint8

// What is known: nothing, as of another machine's process; that it runs; that it has ended.
const (
	LivenessUnknown Liveness = iota
	Alive
	Gone
)

// owner names a process so that it is not mistaken for a later one of the same number.
type owner struct {
	pid               int
	start             string // ticks since boot, as the kernel counts
	space, boot, host string // its namespaces of numbers and of time, the boot, the machine
}

// Owner names this process, for Lives; empty where the system does not tell enough.
func Owner() string {
	o, ok := own(os.Getpid())
	if !ok {
		return ""
	}
	return fmt.Sprintf("pid=%d start=%s space=%s boot=%s host=%s", o.pid, o.start, o.space, o.boot, o.host)
}

// own is a process of this machine.
func own(pid int) (o owner, ok bool) {
	o.pid = pid
	var errs [3]error
	o.space, errs[0] = os.Readlink("/proc/self/ns/pid")
	if clock, err := os.Readlink("/proc/self/ns/time"); err == nil {
		o.space += "," + clock // by which /proc tells a process's start
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

// Lives tells whether the process that Owner named still runs, and its number.
func Lives(name string) (Liveness, int) {
	o, ok := parseOwner(name)
	here, known := own(os.Getpid())
	switch {
	case !ok || !known || o.host != here.host:
		return LivenessUnknown, o.pid
	case o.boot != here.boot:
		return Gone, o.pid
	case o.space != here.space:
		return LivenessUnknown, o.pid
	}
	switch start := started(o.pid); {
	case start == o.start:
		return Alive, o.pid
	case hidden(o.pid):
		return LivenessUnknown, o.pid
	}
	return Gone, o.pid
}

// hidden reports whether a process of this number runs that /proc does not show to this
// user (its mount option hidepid, ProtectProc= of systemd).
func hidden(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil && errors.Is(unix.Kill(pid, 0), unix.EPERM)
}

func parseOwner(name string) (o owner, ok bool) {
	for _, f := range strings.Fields(name) {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "pid":
			o.pid, _ = strconv.Atoi(value)
		case "start":
			o.start = value
		case "space":
			o.space = value
		case "boot":
			o.boot = value
		case "host":
			o.host = value
		}
	}
	return o, o.pid > 0 && o.start != "" && o.space != "" && o.boot != "" && o.host != ""
}
