package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	sessioncmd "github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/checkup"
	"github.com/wattmark/wattmark/store"
)

// diskState describes a file system as a place for durable files.
type diskState struct {
	Kind string // type of the file system, as in ext4
	Free uint64 // bytes that this user may still write
	// Fsync is the median duration of a write of 4 KiB with fsync.
	Fsync time.Duration
	// Speed is the rate of writing 16 MiB to the disk, in bytes per second.
	Speed float64
}

// Limits of a disk. Below leastFree a capture may not end cleanly.
const (
	leastFree = 200e6 // bytes
	lowFree   = 5e9
	slowFsync = 100 * time.Millisecond
	slowDisk  = 20e6 // bytes a second: six channels of 16 bits at 1 MS/s take 4
)

// remote are network file systems: SQLite's write-ahead log needs shared memory,
// which they lack.
var remote = map[string]bool{
	"nfs": true, "nfs4": true, "cifs": true, "smb3": true, "9p": true, "ceph": true, "afs": true, "fuse.sshfs": true,
	"fuse.glusterfs": true,
}

// disk checks the disk of a directory, which the database may lie in: room, kind and speed.
func (d *doctor) disk(ctx context.Context, check, dir string, database bool) {
	at := d.nearest(dir)
	s, err := d.tryDisk(ctx, at)
	others := errors.Is(err, fs.ErrPermission) && slices.Contains(d.services, dir)
	switch {
	case others:
	case errors.Is(err, fs.ErrPermission):
		d.failed(check, "let this user write there, or choose another place with --spool or --db", "%s cannot be written", at)
		return
	case err != nil:
		d.failed(check, "look at the disk: df, dmesg", "%s: %v", at, err)
		return
	}
	text := fmt.Sprintf("%s: %s, %s free", at, s.Kind, cli.SizeText(s.Free))
	if others {
		text += "; its service writes there, and this user may not: sudo wattmark doctor tries it"
	} else {
		text += fmt.Sprintf(", fsync %v, %s/s", measure.SecondsOf(s.Fsync), cli.SizeText(s.Speed))
	}
	before := len(d.found)
	add := func(as func(check, remedy, format string, a ...any), remedy, why string) {
		as(check, remedy, "%s: %s", text, why)
	}
	switch {
	case s.Free < leastFree:
		remedy := "make room: hosts release what they fetched, and the monitor's keep drops what none fetches"
		if database {
			remedy = "make room: wattmark delete and db vacuum, or db retain"
		}
		add(d.failed, remedy, "almost full")
	case s.Free < lowFree:
		add(d.warn, "make room: an hour of six channels at 100 kS/s takes 1.5 GB", "little room")
	}
	switch {
	case s.Kind == "tmpfs" || s.Kind == "ramfs":
		add(d.warn, "choose a place on a disk: what was measured must outlive a restart", "this is memory")
	case remote[s.Kind] && database:
		add(d.failed, "put the database on a disk of this machine: SQLite's write-ahead log needs one",
			"this is on another machine")
	case remote[s.Kind]:
		add(d.warn, "put it on a disk of this machine", "this is on another machine")
	}
	if !others && (s.Fsync > slowFsync || s.Speed < slowDisk) {
		add(d.warn, "use a faster disk: samples wait in memory while it writes", "slow")
	}
	if len(d.found) == before {
		d.ok(check, "%s", text)
	}
}

// databaseState describes a database; sizes are in bytes.
type databaseState struct {
	Schema     int
	Tasks      int
	Unfinished int
	Size, WAL  int64
	Check      string // result of SQLite's quick_check; "" if not run
}

// database checks schema, integrity, log and unfinished tasks. No database yet is
// no fault.
func (d *doctor) database(ctx context.Context) {
	const check = "database"
	s, err := d.readDatabase(ctx, d.db)
	switch {
	case store.OnServer(d.db) && err == nil:
		d.ok(check, "%s: %s", d.db, measure.Plural(s.Tasks, "task"))
		return
	case store.OnServer(d.db):
		d.failed(check, "look at --db, and at the server that it names", "%s: %s", d.db, cli.FirstLineOf(err))
		return
	case errors.Is(err, fs.ErrNotExist):
		d.ok(check, "none at %s yet: the first measurement makes one", d.db)
		return
	case errors.Is(err, fs.ErrPermission):
		d.warn(check, "join its group, or look as root: sudo wattmark doctor", "%s: this user may not read it", d.db)
		return
	case errors.Is(err, store.ErrNewer):
		d.failed(check, "update wattmark on this machine", "%v", err)
		return
	case errors.Is(err, store.ErrNotDatabase), errors.Is(err, store.ErrForeign):
		d.failed(check, "name another file with --db", "%v", err)
		return
	case err != nil:
		d.failed(check, "open it once for writing: wattmark tasks --db "+d.db+"; if that fails, restore a copy", "%v", err)
		return
	}
	before := len(d.found)
	text := fmt.Sprintf("%s: schema %d, %s, %s", d.db, s.Schema, measure.Plural(s.Tasks, "task"), cli.SizeText(s.Size))
	if s.Check != "" && s.Check != "ok" {
		d.failed(check, "restore a copy, or save what can be read: sqlite3 OLD .recover | sqlite3 NEW",
			"%s: SQLite finds it damaged: %s", text, s.Check)
	}
	if s.WAL > 256<<20 { // a long reader has kept it from being checkpointed
		d.warn(check, "end programs that read it for long; the log is folded in when the last one closes it",
			"%s: its log has grown to %s", text, cli.SizeText(s.WAL))
	}
	if s.Unfinished > 0 {
		d.warn(check, "run wattmark host, which finishes them", "%s is not finished, or is being measured now",
			measure.Plural(s.Unfinished, "task"))
	}
	if len(d.found) == before {
		d.ok(check, "%s", text)
	}
}

// largestStep bounds the movement of CLOCK_REALTIME against CLOCK_MONOTONIC during
// the examination. Slewing moves it by at most 0.5 ms per second, so more is a
// step.
const largestStep = 2 * time.Millisecond

// clock checks synchronisation, and whether the clock was stepped during the
// examination.
func (d *doctor) clock(moved func() time.Duration) {
	const check = "clock"
	s, err := d.readClock()
	switch {
	case err != nil:
		d.warn(check, "look at timedatectl", "the kernel does not tell: %v", err)
	case !s.Synchronised:
		d.warn(check, "install chrony or systemd-timesyncd: joules do not need it, but times of several hosts, imported "+
			"logs and playback do", "not synchronised")
	default:
		d.ok(check, "synchronised, offset %v, within %v", measure.SecondsOf(s.Offset), measure.SecondsOf(s.MaxError))
	}
	if step := moved(); step.Abs() > largestStep {
		d.warn(check, "find out who sets it: CUPTI and NVML stamp with it, and a step within a measurement moves kernels "+
			"against the samples", "CLOCK_REALTIME was moved by %v while this looked", measure.SecondsOf(step))
	}
}

// limitState holds resource limits of this process; ^uint64(0) means unlimited.
type limitState struct{ Files, Locked uint64 }

// limits checks open files and, on a machine with a GPU, locked memory in bytes.
func (d *doctor) limits() {
	const check = "limits"
	l, err := d.readLimits()
	if err != nil {
		d.warn(check, "look at ulimit -a", "%v", err)
		return
	}
	before := len(d.found)
	if l.Files < 1024 {
		d.warn(check, "ulimit -n 4096, or LimitNOFILE= in the service", "%d open files at most", l.Files)
	}
	if d.gpu() && l.Locked < 8<<20 {
		d.warn(check, "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service",
			"%s of locked memory at most: pinned host memory of CUDA and of network cards may be refused",
			cli.SizeText(l.Locked))
	}
	if len(d.found) == before {
		text := func(n uint64, unit func(float64) string) string {
			if n == ^uint64(0) {
				return "no limit"
			}
			return unit(float64(n))
		}
		d.ok(check, "open files: %s; locked memory: %s",
			text(l.Files, func(n float64) string { return fmt.Sprint(uint64(n)) }), text(l.Locked, cli.SizeText))
	}
}

// peers checks monitor and host, compares their versions with this program's, and returns the monitor's bench: nil
// where none answers.
func (d *doctor) peers(ctx context.Context) (bench *session.Bench) {
	b, err := d.askBench(ctx, d.monitor)
	switch {
	case errors.Is(err, monitorclient.ErrVersion):
		d.failed("monitor", "install the same major version on both machines", "%v", err)
	case err == nil:
		bench = &b
		d.answering(b)
	default:
		d.silent("monitor", d.monitor, d.monitorNamed || d.role == roleMonitor, err,
			"start it: wattmark monitor --bench bench.yaml (or systemctl start wattmark-monitor)")
	}
	if !d.gpu() && !d.hostNamed {
		return bench // it belongs to the other machine, which never connects to this one
	}
	switch version, err := d.askHost(ctx, d.host); {
	case err != nil:
		d.silent("host", d.host, d.hostNamed || d.role == roleHost, err,
			"start it: wattmark host (or systemctl start wattmark-host); wattmark run works without it")
	case version == "": // too old to send one
		d.warn("host", "update wattmark host and start it anew",
			"answers at %s, and does not tell its version: it is older than this program (%s)", d.host, cli.Version())
	case version == cli.Version():
		d.ok("host", "answers at %s, version %s", d.host, version)
	default:
		d.warn("host", "start it anew after an update: systemctl restart wattmark-host",
			"answers at %s with version %s, this program is %s", d.host, measure.Printable(version), cli.Version())
	}
	return bench
}

// answering adds the findings about a monitor that answers.
func (d *doctor) answering(b session.Bench) {
	who := "free"
	if b.Holder != "" {
		who = "held by " + b.Holder
	}
	d.ok("monitor", "answers at %s: bench %s, %s", d.monitor, b.Name, who)
	if b.Draining {
		d.warn("monitor", "wait until it was started anew", "it is being stopped and takes no new captures")
	}
	for _, s := range b.SetAside {
		d.warn("spool", "look at it on the monitor's machine: mend it from a copy, or move it away, and start the monitor "+
			"anew", "left as it is: %s", s)
	}
	switch {
	case b.Bridged != "":
		d.warn("versions", "update the older of the two; measurements work, and each task has a note", "%s", b.Bridged)
	case b.Version != cli.Version():
		d.ok("versions", "monitor %s, this program %s; both speak protocol %v", measure.Printable(b.Version), cli.Version(),
			b.Protocol)
	default:
		d.ok("versions", "monitor and this program are %s, protocol %v", cli.Version(), b.Protocol)
	}
	d.calibration(b.Notes)
}

// calibration adds one warning per note of the monitor on its calibration records.
func (d *doctor) calibration(notes []string) {
	for _, n := range notes {
		d.warn("calibration", "wattmark calibrate show; docs/calibration.md", "%s", n)
	}
}

// silent adds the finding for an address without an answer of wattmark. A service that refuses this user, or fails the
// TLS handshake, is known by its text alone: gRPC has no code for it. Else trying to listen there separates a free
// port, a foreign program, and another machine. A free port is a failure only if the service is wanted here.
func (d *doctor) silent(name, address string, wanted bool, err error, remedy string) {
	text, bound := cli.FirstLineOf(err), d.bindable(address)
	text, _ = wire.Lost(text, "")
	switch {
	case strings.Contains(text, "not signed in"):
		d.failed(name, "give a token (--token-file, WATTMARK_TOKEN) or a certificate (--tls-cert, --tls-key); wattmark auth "+
			"token makes one", "answers at %s, and asks who you are: %s", address, text)
	case strings.Contains(text, "handshake failed"), strings.Contains(text, "server preface"):
		d.failed(name, "name the CA of its certificate (--tls-ca), and dial a name that is in it; without TLS leave "+
			"--tls-ca out", "somebody answers at %s, but not as we speak: %s", address, text)
	case strings.Contains(text, "unknown host"), strings.Contains(text, "no gRPC"):
		d.failed(name, "look at the address", "%s: %s", address, text)
	case bound == nil && wanted:
		d.failed(name, remedy, "nothing listens at %s; the port is free", address)
	case bound == nil:
		d.warn(name, remedy, "nothing listens at %s; the port is free", address)
	case errors.Is(bound, errInUse):
		d.failed(name, "find out who has it (ss -ltnp), stop it, or choose another --listen",
			"another program listens at %s", address)
	case errors.Is(bound, errNotLocal):
		d.failed(name, "start the service there, and look at the network and firewall between the two",
			"%s does not answer", address)
	default:
		d.failed(name, "look at the address", "%s: %s", address, cli.FirstLineOf(bound))
	}
}

// instrument checks the meter through the monitor, or by opening it from the bench
// file if no monitor answers: b is nil then.
func (d *doctor) instrument(ctx context.Context, b *session.Bench) {
	const check = "instrument"
	if err := d.serviceBench(); err != nil {
		d.failed("bench file", "correct it: the installed monitor does not start with it, and a reload does not take it; then "+
			"systemctl reload wattmark-monitor", "%s", bench.OneLine(err))
	}
	switch {
	case b == nil && d.bench == (sessioncmd.BenchFlags{}):
		d.warn(check, "start the monitor, or name the meter with --instrument and --port, or --bench", "not tried: no monitor answers")
	case b == nil:
		found, notes, err := d.tryBench(ctx, d.bench)
		if err != nil {
			d.failed(check, "look at its cable, its power and the bench file; wattmark instruments finds meters", "%s",
				cli.FirstLineOf(err))
			return
		}
		d.calibration(notes)
		d.ok(check, "%s", found)
	case b.Trouble != "":
		d.failed(check, "look at its cable and power, and at wattmark instruments", "the monitor cannot use it: %s",
			cli.FirstLine(b.Trouble))
	default:
		text := fmt.Sprintf("%s, %v, %s, %s", out.InstrumentText(b.Instrument),
			out.RateText(b.Setup.Timebase.SampleRate()), measure.Plural(len(b.Setup.Rails), "rail"),
			sessioncmd.RecordsText(&b.Setup))
		if b.Holder != "" {
			text += "; no trouble in the capture that runs"
		} else if b.Version == cli.Version() { // an earlier one reports from memory, not from a probe
			text = "answers: " + text
		}
		d.ok(check, "%s", text)
		d.rails(ctx, b)
	}
}

// rails looks at one live average, if there is one: whatever instruments check calls a fault of
// a rail's supply is one here.
func (d *doctor) rails(ctx context.Context, b *session.Bench) {
	values, err := d.askRails(ctx, d.monitor)
	if err != nil || len(values) != len(b.Setup.Rails) {
		return // nothing is sampled now: an oscilloscope, or a bench that was changed
	}
	volts := lists.Map(values, func(v session.RailValue) measure.Volt { return v.Voltage })
	for _, f := range checkup.Supplies(&b.Setup, volts) {
		if f.Level == checkup.Fault {
			d.failed("rails", f.Remedy, "%s %s", f.Subject, f.Text)
		}
	}
}

// serialPorts checks whether this user may open the meters' ports.
func (d *doctor) serialPorts() {
	ports, err := d.ports()
	if err != nil {
		d.warn("ports", "look at /dev", "they cannot be listed: %v", err)
		return
	}
	const udevRule = "60-wattmark.rules" // which gives serial meters to group dialout
	meters, free := 0, 0
	udev := "; or install packaging/udev/" + udevRule + ", which comes with the Debian package"
	for _, dir := range []string{"/etc/udev/rules.d/", "/usr/lib/udev/rules.d/", "/lib/udev/rules.d/"} {
		if d.exists(dir + udevRule) {
			udev = "; the udev rule is installed: plug the meter in again"
		}
	}
	for _, p := range ports {
		what := p.Address
		if len(p.Kinds) > 0 {
			what += " (" + strings.Join(p.Kinds, " or ") + ")"
			meters++
		}
		hint, denied := strings.CutPrefix(p.Trouble, "permission denied: ")
		switch {
		case denied:
			closed := d.failed
			if len(p.Kinds) == 0 { // a port of something else, maybe
				closed = d.warn
			}
			closed("ports", hint+udev, "%s may not be opened by this user", what)
		case p.Trouble != "":
			d.ok("ports", "%s: %s", what, p.Trouble)
		default:
			free++
			if len(p.Kinds) > 0 {
				d.ok("ports", "%s may be opened", what)
			}
		}
	}
	if meters == 0 {
		d.ok("ports", "no meter that is known by its USB number is plugged in; %s may be opened",
			measure.Plural(free, "port"))
	}
}
