package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

const benchHead = "instruments:\n- kind: pmd\n  port: /dev/null\nrails:\n"

// Every fault of a bench file is told with its place, before anything is opened.
func TestBadBenchFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		words []string
	}{
		"unknown instrument": {"instruments:\n- kind: scope\n", []string{":2:9:", `unknown instrument "scope"`, "want one of powersensor3, pmd"}},
		"unknown channel":    {benchHead + "- name: a\n  clamp: {current: eps9.current, voltage: eps1.voltage}\n", []string{":6:20:", `unknown channel "eps9.current"`, "the pmd has pcie1.voltage"}},
		"two rails on one channel": {
			benchHead + "- name: a\n  clamp: {current: eps1.current, voltage: eps1.voltage}\n- name: b\n  clamp: {current: eps2.current, voltage: eps1.voltage}\n",
			[]string{":8:43:", "already used by rail a"},
		},
		"a shunt of nothing": {benchHead + "- name: a\n  shunt: {source: eps1.voltage, ground: eps2.voltage, ohm: 0}\n", []string{":6:60:", "shunt in Ω of 0", "must be positive"}},
		"NaN calibration":    {"instruments:\n- kind: pmd\n  port: /dev/null\n  channels:\n    eps1.current: {gain: .nan}\n", []string{":5:26:", "gain is NaN"}},
		"no port":            {"instruments:\n- kind: pmd\n", []string{":2:3:", "port is missing", "/dev/ttyUSB0"}},
	} {
		file := filepath.Join(t.TempDir(), "bench.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			inside(t, "monitor", "--bench", file, "--spool", t.TempDir(), "--listen", "127.0.0.1:0").fails(t, cli.ExitUsage, append(c.words, file)...)
		})
	}
	dir := t.TempDir()
	inside(t, "monitor", "--bench", filepath.Join(dir, "none.yaml"), "--spool", dir).fails(t, cli.ExitUsage, "none.yaml", "docs/bench-file.md")
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	inside(t, "monitor", "--instrument", "powersensor3", "--port", "/dev/null", "--spool", open, "--listen", "127.0.0.1:0").fails(t, cli.ExitUsage, "chmod o-w")
	inside(t, "monitor", "--instrument", "scope", "--spool", dir).fails(t, cli.ExitUsage, `unknown instrument "scope"`, "want one of")
	inside(t, "monitor", "--instrument", "pmd", "--port", "meter", "--spool", dir).fails(t, cli.ExitFailed, `bad address "meter"`, "/dev/ttyUSB0")
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "power.db")
	for _, c := range []struct{ args, want string }{
		{"taskz", "did you mean tasks"},
		{"taskz --by ada", "did you mean tasks"},
		{"help tsks", "did you mean tasks"},
		{"help config show", "it has set, unset, use"},
		{"config show", "it has set, unset, use"},
		{"config st", "did you mean set"},
		{"show", "show wants TASK | --group N, not 0 arguments\nSee: wattmark show --help"},
		{"show 0", "not a task number"},
		{"show 1 2", "show wants TASK | --group N, not 2 arguments\n"},
		{"version x", "version wants no arguments, not 1 argument\n"},
		{"tasks --nope", "wattmark tasks --help"},
		{"run --benchmrk memory", "unknown flag: --benchmrk (did you mean --benchmark?)\n"},
		{"run --benchmark memory --duration 2", "--duration 2: want a time with its unit, such as 500ms"},
		{"trim 1 --from 0.5", "--from 0.5: want a time with its unit"},
		{"auth token ada --valid 2y", "--valid 2y: want a time in days or hours, such as 365d"},
		{"run --times x -- true", "--times x: want a whole number"},
		{"run --buffer x -- true", "--buffer x: want a whole number"},
		{"tasks --since yesterday", "write 2026-01-31"},
		{"run --instrument pmd --monitor lab -- true", "keep one of them"},
		{"run --instrument pmd --bench b.yaml -- true", "name a bench file with --bench, or a meter"},
		{"run --instrument pmd --gpus all -- true", "--instrument nvml"},
		{"run --instrument nvml --port /dev/ttyACM0 -- true", "--gpu"},
		{"run --port /dev/ttyACM0 -- true", "--instrument"},
		{"demo --benchmark most", "half, compute or memory"},
		{"monitor", "--bench"},
		{"run", "--benchmark"},
		{"run --benchmark half -- true", "one piece of work"},
		{"show --group 0", "number of a group"},
		{"show --group 1 2", "no task beside it"},
		{"emulate scope", "want one of powersensor3, pmd"},
		{"emulate powersensor3 --play x", "only pmd"},
		{"delete", "exactly one of"},
		{"export 0", "not a task number"},
		{"delete -- -1", "not a task number"},
		{"trim -- -1", "not a task number"},
		{"export 1 --format hdf5", "csv, parquet, arrow"},
		{"export 1 --format sqlite", "name a file with -o"},
		{"export 1 2", "holds one task"},
		{"export", "--all-tasks"},
		{"export 1 -o x.pftrace --raw", "no place for counts"},
		{"export 1 -o x.db --rail eps", "no columns of single rails"},
		{"export 1 --json", "name one with -o"},
		{"export 1 --from 2s --to 1s", "--to must lie after --from"},
		{"trim 1 --from 2s --to 1s", "--to must lie after --from"},
		{"bench quickly", "no command"},
		{"pulse --on 0s", "--on must be positive"},
		{"pulse --duration 10ms", "holds no pulse"},
		{"import nvidia", "did you mean nvidia-smi"},
		{"import nvidia-smi x.csv", "--task"},
		{"import nvidia-smi x.csv --task 1 --utc-offset 1h --zone UTC", "not both"},
		{"import nvidia-smi x.csv --task 1 --utc-offset 100h", "--utc-offset"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := inside(t, append(strings.Fields("--db "+db), strings.Fields(c.args)...)...)
			if r.fails(t, cli.ExitUsage, c.want); r.out != "" {
				t.Errorf("on standard output:\n%s", r.out)
			}
		})
	}
}

// A busy bench: who holds it, and since when.
func TestBusyBench(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, end := r.measuring(1)
	holder := r.captures()[0].Holder
	second := r.run("--benchmark", "half")
	code := second.wait(t)
	got := result{second.out.String(), second.err.String(), code}
	got.fails(t, cli.ExitBusy, "bench is busy", "held by "+holder, "--wait")
	for _, once := range []string{"bench is busy", "--wait"} {
		if n := strings.Count(got.err, once); n != 1 {
			t.Errorf("%q is said %d times:\n%s", once, n, got.err)
		}
	}
	if !regexp.MustCompile(`since 20\d\d-\d\d-\d\dT`).MatchString(got.err) {
		t.Errorf("since when is not told:\n%s", got.err)
	}
	inside(t, "tasks", "--host", r.address).fails(t, cli.ExitFailed, "no wattmark host, which has port 7552")
	// One that waits gets its turn, and the first is not disturbed.
	third := r.run("--benchmark", "half", "--duration", "100ms", "--wait", "1m")
	third.await(t, "held by "+holder+": waiting for it, 1m0s at most")
	end()
	if a, b := p.wait(t), third.wait(t); a != 0 || b != 0 {
		t.Errorf("exit codes %d and %d\n%s%s", a, b, &p.err, &third.err)
	}
}

// No marker: the capture is kept whole and can be trimmed by hand.
func TestNoMarkerFound(t *testing.T) {
	t.Parallel()
	r, other := newRig(t), newRig(t)
	r.socket = other.socket // a GPU that this meter does not see
	p := r.run("--benchmark", "half", "--duration", "300ms")
	code := p.wait(t)
	result{p.out.String(), p.err.String(), code}.fails(t, cli.ExitIncomplete, "no start marker", "trim")
	var before report.Report
	object(t, p.out.String(), &before)
	if before.State != "untrimmed" || before.EnergyJ != nil || before.Stored < 5000 {
		t.Fatalf("%s with %d scans: %s", before.State, before.Stored, before.Reason)
	}
	inside(t, "trim", "1", "--db", r.db, "--from", "1h", "--to", "2h").fails(t, cli.ExitFailed, "task 1")
	var after report.Report
	object(t, inside(t, "trim", "1", "--db", r.db, "--json", "--from", "100ms", "--to", "300ms").ok(t).out, &after)
	idle := float64(r.live.MeanPower(before.Launched, before.Launched.Add(1e8)))
	if after.State != "complete" || after.Reason != "window set by hand" || after.Window.From != 0.1 || after.Window.To != 0.3 ||
		relative(*after.EnergyJ, 0.2*idle) > 0.02 {
		t.Errorf("%s: %s; window %+v, %v J, the card draws %v W", after.State, after.Reason, after.Window, *after.EnergyJ, idle)
	}
	address := serveTasks(t, r.db)
	inside(t, "trim", "1", "--host", address, "--from", "1h", "--to", "2h").fails(t, cli.ExitFailed, address, "window outside the data")
	object(t, inside(t, "trim", "1", "--host", address, "--json", "--from", "50ms", "--to", "150ms").ok(t).out, &after)
	if after.State != "complete" || after.Window.From != 0.05 || after.Window.To != 0.15 || relative(*after.EnergyJ, 0.1*idle) > 0.02 {
		t.Errorf("over a host: %s; window %+v, %v J, the card draws %v W", after.State, after.Window, *after.EnergyJ, idle)
	}
}

// smallDisk mounts a file system of few bytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullSpool(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	dir := smallDisk(t, "160k")
	r := newRig(t)
	r.monitor.stop(t)
	r.spool = filepath.Join(dir, "spool")
	r.startMonitor(freeAddress(t), "--spool-free", "0")
	p := r.run("--benchmark", "half", "--duration", "2s")
	code := p.wait(t)
	result{p.out.String(), p.err.String(), code}.fails(t, cli.ExitIncomplete, "the spool's disk is full", "make room", "no samples after scan")
	var got report.Report
	object(t, p.out.String(), &got)
	all := chunks(t, r.db, 1)
	if got.State != "incomplete" || len(all) == 0 {
		t.Errorf("%s with %d chunks: %s", got.State, len(all), got.Reason)
	}
	r.free() // what was fetched was released
}

func TestFullDatabase(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "16m")
	r := newRig(t)
	r.db = filepath.Join(dir, "power.db")
	r.free()
	// To begin a task takes a page of 16 KiB of the log for its row and for each index, 22 in
	// all, and the log's own index 32 KiB.
	ballast := fillDisk(t, dir, 416<<10)
	p := r.run("--benchmark", "half", "--duration", "1s")
	if code := p.wait(t); code == 0 {
		t.Fatalf("a task fitted in no room\n%s", &p.out)
	}
	if s := p.err.String(); !strings.Contains(s, "disk full") || !strings.Contains(s, "free some space") {
		t.Errorf("not told:\n%s", s)
	}
	cs := r.captures()
	if len(cs) != 1 || !cs[0].State.Ended() {
		t.Fatalf("the monitor must keep what the host could not: %+v\n%s", cs, &p.err)
	}
	// With room again, what the monitor kept is fetched.
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	h := start(t, "host", "--db", r.db, "--listen", "127.0.0.1:0", "--socket", "none")
	h.await(t, `msg="finished a task that was interrupted" task=2`)
	chunks(t, r.db, 2)
	if x, _ := onlyTask(t, r.db, 2); x.State == store.Running || x.Scans < 20000 {
		t.Errorf("state %v with %d scans: %s", x.State, x.Scans, x.Reason)
	}
	if cs := r.captures(); len(cs) != 0 {
		t.Errorf("captures left: %+v", cs)
	}
}

// fillDisk leaves so many bytes of a disk and returns the file that holds the rest.
func fillDisk(t *testing.T, dir string, leave int64) string {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ballast")
	if err := os.WriteFile(path, make([]byte, int64(s.Bavail)*s.Bsize-leave), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDatabaseThatIsNotOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	foreign, text := filepath.Join(dir, "foreign.db"), filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte("a letter, no database"), 0o644); err != nil {
		t.Fatal(err)
	}
	inside(t, "tasks", "--db", text).fails(t, cli.ExitFailed, text, "not a database", "name another")
	inside(t, "demo", "--db", filepath.Join(dir, "no", "folder.db")).fails(t, cli.ExitFailed, "cannot open the database", "check that the folder exists")
	inside(t, "tasks", "--db", filepath.Join(dir, "none.db")).fails(t, cli.ExitNotFound, "no task database at", "--db")
	if _, err := os.Stat(filepath.Join(dir, "none.db")); err == nil {
		t.Error("a database was made where one was only to be read")
	}
	execSQL(t, foreign, "create table letters(text); pragma application_id = 7")
	for _, args := range [][]string{{"demo", "--db", foreign}, {"tasks", "--db", foreign}, {"host", "--db", foreign, "--listen", "127.0.0.1:0"}} {
		inside(t, args...).fails(t, cli.ExitFailed, foreign, "another application", "name another file")
	}
}

func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken, dir := l.Addr().String(), t.TempDir()
	for _, args := range [][]string{
		{"monitor", "--instrument", "pmd", "--port", "/dev/null", "--spool", filepath.Join(dir, "spool"), "--listen", taken},
		{"host", "--db", filepath.Join(dir, "power.db"), "--listen", taken},
		{"emulate", "pmd", "--listen", taken},
	} {
		inside(t, args...).fails(t, cli.ExitFailed, taken, "address already in use", "choose another --listen")
	}
}

func TestNoCUDA(t *testing.T) {
	t.Parallel()
	r := inside(t, "run", "--db", filepath.Join(t.TempDir(), "power.db"), "--", "true")
	if !strings.Contains(r.err, "libcuda") {
		t.Skip("there is a CUDA driver on this machine")
	}
	r.fails(t, cli.ExitFailed, "no CUDA driver", "libcuda.so.1", "nvidia-smi", "wattmark demo")
	inside(t, "run", "--gpu", "sim:/no/socket", "--", "true").fails(t, cli.ExitFailed, "/no/socket", "wattmark emulate --gpu")
}

func TestMonitorThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.monitor.stop(t)
	p := r.run("--benchmark", "half")
	code := p.wait(t)
	result{p.out.String(), p.err.String(), code}.fails(t, cli.ExitFailed, r.address, "is wattmark monitor running there?")
	// Neither is the meter: told when the monitor starts, and to who wants to measure.
	r.unplug()
	defer r.plug()
	r.startMonitor(freeAddress(t))
	r.monitor.await(t, `level=WARN msg="instrument cannot be used now".*`+regexp.QuoteMeta(r.link))
	p = r.run("--benchmark", "half")
	code = p.wait(t)
	result{p.out.String(), p.err.String(), code}.fails(t, cli.ExitFailed, r.link, "no such file")
}
