package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/db"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
)

// Each reading command prints of a host what it prints of the host's database.
func TestHostIsReadAsItsDatabase(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	dir, db := t.TempDir(), demoDB(t, demo)
	inside(t, "tag", "1", "run=1", "--db", db).ok(t)
	inside(t, "note", "1", "first", "--db", db).ok(t)
	makeTasks(t, db,
		made{name: "train", job: "J", gpu: "GPU-1", serial: "7", energy: 100, length: 10, gain: 0.01, noise: 0.01},
		made{name: "train*", job: "J", gpu: "GPU-2", serial: "8", energy: 110, length: 10, gain: 0.01, noise: 0.01},
		made{name: "cut", gpu: "GPU-1"})
	d, err := store.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	// The first group of a file would be 1: its number has to be kept.
	for range 2 {
		g, err := d.BeginGroup(t.Context(), store.NewGroup{Name: "both", User: "lab", Launched: noon, Members: []store.GroupMember{
			{GPU: "H200", GPUUUID: "GPU-1"}, {GPU: "H200", GPUUUID: "GPU-9", Reason: "its monitor is away"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		made{name: "both", gpu: "GPU-1", energy: 7, length: 1, gain: 0.01, noise: 0.01, group: store.GroupRef{Group: g}, at: time.Duration(g) * time.Hour}.put(t, d)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	address := serveTasks(t, db)
	host := store.HostScheme + address
	// Tables are as wide as the name of the database; the provenance of a task has its file.
	wide := regexp.MustCompile(`  +|──+`)
	lines := func(s string) []string {
		s = strings.NewReplacer(db, "DB", host, "DB").Replace(s)
		return strings.Split(wide.ReplaceAllString(s, "  "), "\n")
	}
	for _, args := range [][]string{
		{"tasks"},
		{"tasks", "--name", "tra*", "--user", "lab"},
		{"tasks", "--name", "train*", "--limit", "1"},
		{"tasks", "--before", "3", "--tag", "run"},
		{"tasks", "--sort", "-energy", "--limit", "2"},
		{"tasks", "--verdict", "usable,doubtful", "--sort", "energy", "--limit", "3"},
		{"tasks", "--verdict", "void"},
		{"tasks", "--columns", allColumns(t)},
		{"tasks", "--sort", "gpu", "--columns", "task,gpu,energy,tags,job"},
		{"tasks", "--format", "csv", "--sort", "launched"},
		{"tasks", "--format", "markdown", "--sort", "-mean"},
		{"tasks", "--json", "--columns", "task,energy", "--sort", "name"},
		{"tasks", "--without-tag", "run=1", "--search", "cut"},
		{"users"},
		{"users", "--json"},
		{"show", "1"},
		{"show", "1", "--json"},
		{"show", "train", "--json"},
		{"show", "latest"},
		{"show", "1", "--budget", "--no-plot"},
		{"show", "--group", "2"},
		{"show", "4", "--json"},
		{"export", "1"},
		{"export", "1", "--raw"},
		{"compare", "2", "3"},
		{"compare", "train", "3", "--json"},
		{"validate", "1"},
		{"validate", "--user", "ada", "--json"},
		{"total", "--job", "J"},
		{"correct", "1", "--tau", "100ms", "--no-store", "--field", "instant"},
		{"correct", "fit", "1", "--field", "instant"}, // the demo is too short for it
		{"sensor", "identify", "--task", "1"},
	} {
		want, got := inside(t, append(args, "--db", db)...), inside(t, append(args, "--host", address)...)
		if diff := cmp.Diff(lines(want.out), lines(got.out)); diff != "" || want.code != got.code {
			t.Errorf("%v: exit codes %d and %d\n%s%s (-database +host):\n%s", args, want.code, got.code, want.err, got.err, diff)
		}
		if len(want.out) < 20 && (args[0] != "sensor" && args[1] != "fit" || want.err != got.err) {
			t.Errorf("%v prints nothing: %s", args, want.err)
		}
	}
	// --db takes the host, as the client configuration does; the file stays the default.
	if got := inside(t, "tasks", "--db", host).ok(t).out; !strings.Contains(got, "train") {
		t.Error(got)
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("host: "+address+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside(t, "tasks", "--host", address, "--db", db).fails(t, cli.ExitUsage, "--db and --host")
	inside(t, "tasks", "--watch", "--db", db).fails(t, cli.ExitUsage, "--host")
	inside(t, "takeover", "--reason", "x", "--monitor", address).fails(t, cli.ExitFailed, "no wattmark monitor, which has port 7551")
	inside(t, "show", "99", "--host", address).fails(t, cli.ExitNotFound, address, "99")
	inside(t, "show", "--group", "99", "--host", address).fails(t, cli.ExitNotFound, "no group 99")
	inside(t, "show", "1", "--host", "127.0.0.1:1").fails(t, cli.ExitFailed, "127.0.0.1:1", "wattmark host")
	for _, args := range [][]string{{"recalculate", "1"}, {"db", "check"}, {"sensor", "list"}, {"export", "--all-tasks"}} {
		if r := inside(t, append(args, "--db", host)...); r.code != cli.ExitUsage || !strings.Contains(r.err, "wattmark host") {
			t.Errorf("%v: %d %s", args, r.code, r.err)
		}
	}
}

// Changes over a host are those of a file: labels, notes, pins, deletions by number, name and user.
func TestHostIsChangedAsItsDatabase(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	var at [2][]string // how to name the database, and the host
	var dbs [2]string
	for i := range at {
		db := filepath.Join(dir, string(rune('a'+i))+".db")
		for range 2 {
			makeTasks(t, db, made{name: "x"}, made{name: "x*"}, made{name: "y", energy: 1, length: 1}, made{name: "z"})
		}
		at[i], dbs[i] = []string{"--db", db}, db
	}
	address := serveTasks(t, dbs[1])
	at[1] = []string{"--host", address}
	for _, args := range [][]string{
		{"tag", "1", "a=b", "c=d"},
		{"tag", "1", "-a"},
		{"note", "1", "hello", "there"},
		{"note", "1", "again", "--json"},
		{"note", "1", "--remove", "1"},
		{"note", "1", "--remove", "7"},
		{"pin", "2"},
		{"pin", "1"},
		{"tag", "latest", "e=f"},
		{"delete", "1", "3", "--yes"}, // one is pinned; below, a host keeps no copy, and a database none by --purge
		{"unpin", "1"},
		{"delete", "3", "--yes", "--json", "--purge"},
		{"delete", "99", "--yes"},
		{"delete", "--name", "x*", "--yes", "--purge"},
		{"delete", "--name", "x*", "--yes", "--force", "--purge"},
		{"delete", "--user", "lab", "--yes", "--json", "--purge"},
		{"tasks"},
	} {
		want, got := inside(t, append(slices.Clone(args), at[0]...)...), inside(t, append(slices.Clone(args), at[1]...)...)
		plain := func(s string) string {
			return strings.NewReplacer(dbs[0], "DB", store.HostScheme+address, "DB").Replace(s)
		}
		// Notes have the time of their making.
		clock := func(s string) string { return regexp.MustCompile(`"at": "[^"]*"`).ReplaceAllString(s, "") }
		if clock(plain(want.out)) != clock(plain(got.out)) || want.code != got.code {
			t.Errorf("%v: the database\n%s%s the host, exit code %d\n%s%s", args, want.out, want.err, got.code, got.out, got.err)
		}
	}
	inside(t, "tag", "1", "a=b", "--host", address).fails(t, cli.ExitNotFound, "1")
}

// What was deleted from a host, or from a server, can come back from the copy that delete names.
func TestDeletedComesBack(t *testing.T) {
	coverage.Long(t)
	noRaces(t)
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	file := filepath.Join(t.TempDir(), "host.db")
	c := pgtest.Own(t, "fsync=off")
	c.Make(t, "lab")
	makeTasks(t, file, made{name: "x"}, made{name: "y"})
	inside(t, "db", "copy", file, c.URL("lab")).ok(t)
	for _, where := range []string{store.HostScheme + serveTasks(t, file), c.URL("lab")} {
		before := inside(t, "tasks", "--format", "csv", "--columns", "name,user,energy,mean", "--db", where).ok(t).out
		var gone struct {
			Deleted int
			Pinned  []int64
			Undo    string
		}
		object(t, inside(t, "delete", "1", "2", "--yes", "--json", "--db", where).ok(t).out, &gone)
		if gone.Deleted != 2 || !strings.HasPrefix(gone.Undo, state) || !strings.HasSuffix(gone.Undo, "-deleted-1") {
			t.Fatalf("%s: %+v", where, gone)
		}
		if got := listed(t, where); got != nil {
			t.Errorf("%s: left: %v", where, got)
		}
		inside(t, "db", "copy", gone.Undo, where).ok(t)
		if after := inside(t, "tasks", "--format", "csv", "--columns", "name,user,energy,mean", "--db", where).ok(t).out; after != before {
			t.Errorf("%s: before\n%safter\n%s", where, before, after)
		}
		if got := inside(t, "delete", "3", "--yes", "--db", where, "--purge").ok(t).out; strings.Contains(got, "come back") {
			t.Error(got)
		}
	}
}

// A task is measured for a host: the host has it as its owner's, and the outbox and the monitor
// are empty. What the host did not take stays in the outbox, with its capture at the monitor.
func TestRunForAHost(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	dir, state := secured(t), filepath.Join(t.TempDir(), "state")
	measures := func(args []string) *process { return startEnv(t, []string{"XDG_STATE_HOME=" + state}, args...) }
	monitor := r.address
	r.monitor.stop(t)
	r.startMonitor(monitor, "--auth", dir)
	listen := freeAddress(t)
	serve := func() *process {
		h := start(t, "host", "--db", r.db, "--auth", dir, "--listen", listen, "--socket", "none", "--monitor", monitor, "--tls-ca", filepath.Join(dir, "ca.crt"), "--token-file", filepath.Join(dir, "operator.token"))
		h.await(t, "serving the task database")
		return h
	}
	h := serve()
	as := func(user string, args ...string) []string {
		return append(args, "--host", strings.Replace(listen, "127.0.0.1", "localhost", 1), "--tls-ca", filepath.Join(dir, "ca.crt"), "--token-file", filepath.Join(dir, user+".token"))
	}
	run := func(user, length string) []string {
		return as(user, "run", "--benchmark", "half", "--duration", length, "--gpu", "sim:"+r.socket, "--monitor", strings.Replace(monitor, "127.0.0.1", "localhost", 1))
	}
	measures(run("viewer", "100ms")).result(t).fails(t, cli.ExitFailed, "viewer", "measurer", "Nothing was measured")
	got := measures(run("measurer", "100ms")).result(t).ok(t)
	if !strings.Contains(got.out, "Task 1") || !strings.Contains(got.out, "by measurer") {
		t.Errorf("%s%s", got.out, got.err)
	}
	outbox := filepath.Join(state, "wattmark", "outbox-localhost_"+listen[strings.LastIndex(listen, ":")+1:]+".db")
	waiting := func(want int) {
		t.Helper()
		var list struct {
			Tasks []report.Report `json:"tasks"`
		}
		object(t, inside(t, "tasks", "--db", outbox, "--json").ok(t).out, &list)
		captures, err := filepath.Glob(filepath.Join(r.spool, "*"))
		if err != nil {
			t.Fatal(err)
		}
		kept := slices.DeleteFunc(captures, func(p string) bool { i, err := os.Stat(p); return err != nil || !i.IsDir() })
		if len(list.Tasks) != want || len(kept) != want {
			t.Errorf("%d tasks in the outbox, %v at the monitor, want %d", len(list.Tasks), kept, want)
		}
	}
	waiting(0)
	inside(t, "takeover", "--reason", "x", "--monitor", strings.Replace(monitor, "127.0.0.1", "localhost", 1), "--tls-ca", filepath.Join(dir, "ca.crt"),
		"--token-file", filepath.Join(dir, "operator.token")).fails(t, cli.ExitFailed, "capture")

	// Another user may read it, and neither change nor delete it.
	if err := os.Rename(filepath.Join(dir, "viewer.token"), filepath.Join(dir, "vic.token")); err != nil {
		t.Fatal(err)
	}
	issued(t, dir, "", "token", "bob", "--auth", dir, "-o", filepath.Join(dir, "bob.token"))
	for _, args := range [][]string{{"tag", "1", "a=b"}, {"note", "1", "mine"}, {"pin", "1"}, {"delete", "1", "--yes"}} {
		for _, user := range []string{"bob", "vic"} {
			inside(t, as(user, args...)...).fails(t, cli.ExitFailed, "role")
		}
	}
	if got := inside(t, as("vic", "show", "1", "--no-plot")...).ok(t).out; !strings.Contains(got, "by measurer") {
		t.Error(got)
	}
	watch := start(t, as("vic", "tasks", "--watch", "--json")...)
	watch.await(t, `"watching"`)
	inside(t, as("measurer", "tag", "1", "a=b")...).ok(t)
	var event task.Watched
	if err := json.Unmarshal([]byte(watch.await(t, `\{"event":"changed".*\}`)[0]), &event); err != nil || event.Task.Tags["a"] != "b" {
		t.Errorf("%+v %v", event, err)
	}
	watch.stop(t)

	// The host goes away while the measurement runs.
	p := measures(run("measurer", "2s"))
	p.await(t, "running the work")
	h.kill(t)
	if code := p.wait(t); code == 0 || !strings.Contains(p.err.String(), "kept in "+outbox) || !strings.Contains(p.err.String(), "wattmark db copy") {
		t.Errorf("exit code %d\n%s", code, &p.err)
	}
	waiting(1)
	h = serve()
	send := as("measurer", "db", "copy", outbox, store.HostScheme+strings.Replace(listen, "127.0.0.1", "localhost", 1))
	send = slices.DeleteFunc(send, func(s string) bool { return s == "--host" || s == strings.Replace(listen, "127.0.0.1", "localhost", 1) })
	if got := measures(send).result(t).ok(t).out; !strings.Contains(got, "Copied 1 task") || !strings.Contains(got, "1 were deleted here") {
		t.Error(got)
	}
	if got := measures(send).result(t).ok(t).out; !strings.Contains(got, "Copied 0 tasks") {
		t.Error(got)
	}
	if got := inside(t, as("vic", "users")...).ok(t).out; !strings.Contains(got, "measurer") || !strings.Contains(got, "2") {
		t.Error(got)
	}
	inside(t, as("measurer", "delete", "1", "2", "--yes", "--purge")...).ok(t)
	h.stop(t)
}

// Whole databases are copied to a host and from it, by pages. A task that the host has already is sent without being
// counted as copied, and leaves its outbox as one that is new there.
func TestTasksAreCopiedToAHostAndBack(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	power, hosted := filepath.Join(t.TempDir(), "power.db"), filepath.Join(t.TempDir(), "host.db")
	all := filepath.Join(t.TempDir(), "all.db")
	goldenDatabase(t, all)
	inside(t, "db", "detach", power, "--task", "1", "--task", "2", "--db", all).ok(t)
	inside(t, "db", "detach", hosted, "--task", "1", "--db", power).ok(t)
	address := serveTasks(t, hosted)
	host := store.HostScheme + address
	outbox := filepath.Join(state, "wattmark", "outbox-"+strings.ReplaceAll(address, ":", "_")+".db")
	if err := os.MkdirAll(filepath.Dir(outbox), 0o700); err != nil {
		t.Fatal(err)
	}
	inside(t, "db", "backup", outbox, "--db", power).ok(t)
	var sent, again, back db.TransferReport
	object(t, inside(t, "db", "copy", power, host, "--json").ok(t).out, &sent)
	object(t, inside(t, "db", "copy", outbox, host, "--json").ok(t).out, &again)
	n := len(sent.Tasks)
	if n < 2 || sent.Copied != n-1 || sent.Known != 1 || sent.Deleted != 0 || sent.Samples == 0 || sent.Tasks[0].Scans != 0 {
		t.Errorf("sent %+v", sent)
	}
	if again.Known != n || again.Samples != 0 || again.Deleted != n {
		t.Errorf("sent again from the outbox %+v", again)
	}
	var left struct {
		Tasks []report.Report `json:"tasks"`
	}
	object(t, inside(t, "tasks", "--db", outbox, "--json").ok(t).out, &left)
	object(t, inside(t, "db", "copy", host, filepath.Join(state, "all.db"), "--json").ok(t).out, &back)
	if len(left.Tasks) != 0 || back.Copied != n || back.Samples < sent.Samples {
		t.Errorf("%d tasks in the outbox; copied back %+v", len(left.Tasks), back)
	}
	inside(t, "db", "copy", host, power, "--name", "none").fails(t, cli.ExitNotFound, "no task in "+host)
}

// allColumns returns the names of the columns of tasks, as its help lists them.
func allColumns(t *testing.T) string {
	help := inside(t, "tasks", "--help").ok(t).out
	_, list, _ := strings.Cut(strings.Join(strings.Fields(help), " "), "print these columns: ")
	list, _, _ = strings.Cut(list, " --")
	return strings.ReplaceAll(list, " ", "")
}
