package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"wattmark/measure"
	"wattmark/store"
)

// diskState is what a file system does for a file that must be durable.
type diskState struct {
	Kind  string // of the file system
	Free  uint64 // bytes that this user may still write
	Fsync time.Duration
	// Speed is how fast it takes 16 MiB to the disk, in bytes a second.
	Speed float64
}

const (
	leastFree = 200e6 // bytes: below, a capture may not end well
	lowFree   = 5e9
	slowFsync = 100 * time.Millisecond
	slowDisk  = 20e6 // bytes a second: six channels of 16 bits at 1 MS/s take 4
)

// remote are file systems on another machine: SQLite's log cannot be shared there.
var remote = map[string]bool{
	"nfs": true, "nfs4": true, "cifs": true, "smb3": true, "9p": true, "ceph": true, "afs": true, "fuse.sshfs": true, "fuse.glusterfs": true,
}

// disk tries the disk that a directory, or a database's file, is on.
func (d *doctor) disk(ctx context.Context, check, path string, database bool) (out []finding) {
	dir := path
	if database {
		dir = filepath.Dir(path)
	}
	at := d.nearest(dir)
	s, err := d.tryDisk(ctx, at)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return []finding{failed(check, "let this user write there, or choose another place with --spool or --db", "%s cannot be written", at)}
	case err != nil:
		return []finding{failed(check, "look at the disk: df, dmesg", "%s: %v", at, err)}
	}
	text := fmt.Sprintf("%s: %s, %s free, fsync %v, %s/s", at, s.Kind, sizeText(s.Free), measure.SecondsOf(s.Fsync), sizeText(s.Speed))
	add := func(make func(check, remedy, format string, a ...any) finding, remedy, why string) {
		out = append(out, make(check, remedy, "%s: %s", text, why))
	}
	switch {
	case s.Free < leastFree:
		add(failed, "make room: wattmark delete, wattmark tasks; captures on the monitor are released by their hosts", "almost full")
	case s.Free < lowFree:
		add(warn, "make room: an hour of six channels at 100 kS/s takes 1.5 GB", "little room")
	}
	switch {
	case s.Kind == "tmpfs" || s.Kind == "ramfs":
		add(warn, "choose a place on a disk: what was measured must outlive a restart", "this is memory")
	case remote[s.Kind] && database:
		add(failed, "put the database on a disk of this machine: SQLite's write-ahead log needs one", "this is on another machine")
	case remote[s.Kind]:
		add(warn, "put it on a disk of this machine", "this is on another machine")
	}
	if s.Fsync > slowFsync || s.Speed < slowDisk {
		add(warn, "use a faster disk: samples wait in memory while it writes", "slow")
	}
	if len(out) == 0 {
		out = []finding{ok(check, "%s", text)}
	}
	return out
}

// databaseState is how a database is.
type databaseState struct {
	Schema     int
	Tasks      int
	Unfinished int
	Size, WAL  int64
	Check      string // what SQLite's own check says; empty where it was not asked
}

// largeWAL is a log that a reader has kept from being folded in.
const largeWAL = 256 << 20

func (d *doctor) database(ctx context.Context) (out []finding) {
	const check = "database"
	s, err := d.readDatabase(ctx, d.db)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []finding{ok(check, "none at %s yet: the first measurement makes one", d.db)}
	case errors.Is(err, store.ErrNewer):
		return []finding{failed(check, "update wattmark on this machine", "%v", err)}
	case errors.Is(err, store.ErrNotDatabase), errors.Is(err, store.ErrForeign):
		return []finding{failed(check, "name another file with --db", "%v", err)}
	case err != nil:
		return []finding{failed(check, "open it once for writing: wattmark tasks --db "+d.db+"; if that fails, restore a copy", "%v", err)}
	}
	text := fmt.Sprintf("%s: schema %d, %s, %s", d.db, s.Schema, plural(s.Tasks, "task"), sizeText(s.Size))
	if s.Check != "" && s.Check != "ok" {
		out = append(out, failed(check, "restore a copy, or save what can be read: sqlite3 OLD .recover | sqlite3 NEW", "%s: SQLite finds it damaged: %s", text, s.Check))
	}
	if s.WAL > largeWAL {
		out = append(out, warn(check, "end programs that read it for long; the log is folded in when the last one closes it", "%s: its log has grown to %s", text, sizeText(s.WAL)))
	}
	if s.Unfinished > 0 {
		out = append(out, warn(check, "run wattmark host, which finishes them", "%s is not finished, or is being measured now", plural(s.Unfinished, "task")))
	}
	if len(out) == 0 {
		out = []finding{ok(check, "%s", text)}
	}
	return out
}

// clockState is what the kernel says of its clock.
type clockState struct {
	Synchronised     bool
	Offset, MaxError time.Duration
}

// largestStep is how far CLOCK_REALTIME may move against CLOCK_MONOTONIC while
// the doctor looks: what is slewed moves 0.5 ms a second at most.
const largestStep = 2 * time.Millisecond

// clock looks at the kernel's clock, and whether it jumped meanwhile.
func (d *doctor) clock(moved func() time.Duration) (out []finding) {
	const check = "clock"
	s, err := d.readClock()
	switch {
	case err != nil:
		out = append(out, warn(check, "look at timedatectl", "the kernel does not tell: %v", err))
	case !s.Synchronised:
		out = append(out, warn(check, "install chrony or systemd-timesyncd: joules do not need it, but times of several hosts, imported logs and playback do", "not synchronised"))
	default:
		out = append(out, ok(check, "synchronised, offset %v, within %v", measure.SecondsOf(s.Offset), measure.SecondsOf(s.MaxError)))
	}
	if step := moved(); step.Abs() > largestStep {
		out = append(out, warn(check, "find out who sets it: CUPTI and NVML stamp with it, and a step within a measurement moves kernels against the samples",
			"CLOCK_REALTIME was moved by %v while this looked", measure.SecondsOf(step)))
	}
	return out
}

// limitState is what this process may use; ^uint64(0) is no limit.
type limitState struct{ Files, Locked uint64 }

func (d *doctor) limits() (out []finding) {
	const check = "limits"
	l, err := d.readLimits()
	if err != nil {
		return []finding{warn(check, "look at ulimit -a", "%v", err)}
	}
	if l.Files < 1024 {
		out = append(out, warn(check, "ulimit -n 4096, or LimitNOFILE= in the service", "%d open files at most", l.Files))
	}
	if d.gpu() && l.Locked < 8<<20 {
		out = append(out, warn(check, "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service", "%s of locked memory at most: pinned host memory of CUDA and of network cards may be refused", sizeText(l.Locked)))
	}
	if len(out) == 0 {
		out = []finding{ok(check, "open files: %s; locked memory: %s", limitText(l.Files, func(n float64) string { return fmt.Sprint(uint64(n)) }), limitText(l.Locked, sizeText))}
	}
	return out
}

func limitText(n uint64, text func(float64) string) string {
	if n == ^uint64(0) {
		return "no limit"
	}
	return text(float64(n))
}
