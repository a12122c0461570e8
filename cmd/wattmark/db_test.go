package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/db"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// A damaged chunk is named and said to be mended; --yes fences it off, and the
// result is computed anew over what is left.
func TestDBCheckAndRepair(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db_ := demoDB(t, longDemo)
	var sound db.SoundReport
	object(t, inside(t, "db", "check", "--db", db_, "--json").ok(t).out, &sound)
	if !sound.Sound || sound.Tasks != 1 || sound.Chunks == 0 || len(sound.Findings) != 0 {
		t.Fatalf("%+v", sound)
	}
	var before report.Report
	object(t, inside(t, "show", "1", "--json", "--db", db_).ok(t).out, &before)
	// A chunk inside of the window.
	execSQL(t, db_, `UPDATE chunk SET crc=crc+1 WHERE chunk_no=(SELECT min(c.chunk_no) FROM chunk c, task t WHERE c.first_scan>t.first_scan AND c.first_scan+c.n<t.end_scan)`)
	found := inside(t, "db", "check", "--db", db_, "--json")
	found.fails(t, cli.ExitDamaged, "damaged")
	object(t, found.out, &sound)
	if f := sound.Findings[0]; sound.Sound || f.Kind != "chunk" || f.Task != 1 || !strings.Contains(found.out, `"chunk": `) || !f.Mendable || !strings.Contains(f.Remedy, "repair") {
		t.Errorf("%+v", sound.Findings)
	}
	inside(t, "db", "check", "--db", db_, "--quick").ok(t) // it does not read the chunks, and says so
	inside(t, "db", "repair", "--db", db_).fails(t, cli.ExitDamaged, "damaged")
	inside(t, "db", "check", "--db", db_, "--task", "1").fails(t, cli.ExitDamaged, "damaged")
	for _, args := range [][]string{{"export", "1", "-o", filepath.Join(t.TempDir(), "x.csv")}, {"validate", "1"}} {
		inside(t, append(args, "--db", db_)...).fails(t, cli.ExitDamaged, "chunk", "wattmark db repair")
	}
	var r db.RepairReport
	object(t, inside(t, "db", "repair", "--db", db_, "--yes", "--json").ok(t).out, &r)
	if !r.Done || len(r.Left) != 0 || len(r.Marked) != 0 || !slices.Equal(r.Recomputed, []store.TaskID{1}) {
		t.Errorf("%+v", r)
	}
	inside(t, "db", "check", "--db", db_).ok(t)
	var after report.Report
	object(t, inside(t, "show", "1", "--json", "--db", db_).ok(t).out, &after)
	if after.State != "incomplete" || after.Samples >= before.Samples || after.EnergyJ == nil || *after.EnergyJ == *before.EnergyJ {
		t.Errorf("before %d samples, after %d, %d gaps, %s", before.Samples, after.Samples, after.Gaps, after.State)
	}
}

func TestDBCopies(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	db_ := twoTasks(t)
	dir := filepath.Dir(db_)
	backup, trip, other := filepath.Join(dir, "backup.db"), filepath.Join(dir, "trip.db"), filepath.Join(dir, "other.db")
	var b db.BackupReport
	object(t, inside(t, "db", "backup", backup, "--db", db_, "--json").ok(t).out, &b)
	if !b.Sound || b.Bytes == 0 || b.Verified != "full" {
		t.Errorf("%+v", b)
	}
	inside(t, "db", "backup", backup, "--db", db_).fails(t, cli.ExitFailed, "there already")
	var d, in db.MergeReport
	object(t, inside(t, "db", "detach", trip, "--user", "bob", "--db", db_, "--json").ok(t).out, &d)
	if len(d.Tasks) != 1 || d.Tasks[0].To != 2 {
		t.Errorf("%+v", d)
	}
	inside(t, "db", "detach", filepath.Join(dir, "x.db"), "--db", db_).fails(t, cli.ExitUsage, "--task or by --user")
	inside(t, "db", "detach", filepath.Join(dir, "x.db"), "--db", db_, "--task", "9").fails(t, cli.ExitNotFound, "no task 9")
	for round := range 2 {
		object(t, inside(t, "db", "import", trip, "--db", other, "--json").ok(t).out, &in)
		if len(in.Tasks) != 1 || in.Tasks[0].Known != (round > 0) || len(in.Findings) != 0 {
			t.Errorf("round %d: %+v", round, in)
		}
	}
	inside(t, "db", "import", other, "--db", other).fails(t, cli.ExitUsage, "one file")
	if got := listed(t, other, "--user", "bob"); !equal(got, []int64{1}) {
		t.Errorf("imported: %v", got)
	}
	salvaged := filepath.Join(dir, "salvaged.db")
	inside(t, "db", "repair", "--salvage", salvaged, "--db", db_).ok(t)
	if got := listed(t, salvaged); !equal(got, []int64{2, 1}) {
		t.Errorf("salvaged: %v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*part*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A host names the tasks that it deletes by age or size.
func TestHostNamesWhatItRetires(t *testing.T) {
	t.Parallel()
	noRaces(t)
	h := start(t, "host", "--db", twoTasks(t), "--listen", "127.0.0.1:0", "--socket", "none", "--retain-keep-size", "1B")
	h.await(t, `msg="deleted old tasks" tasks=2 numbers="1 2"`)
	h.stop(t)
}

func TestDBRetainPinAndPack(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db_ := twoTasks(t)
	inside(t, "pin", "1", "--db", db_).ok(t)
	var r db.RetainReport
	// The age counts from the storing: a recording of years ago came today.
	execSQL(t, db_, `UPDATE task SET launched_ns=launched_ns-1000*86400000000000`)
	object(t, inside(t, "db", "retain", "--older-than", "90d", "--yes", "--db", db_, "--json").ok(t).out, &r)
	if !r.Done || len(r.Tasks) != 0 {
		t.Errorf("%+v", r)
	}
	execSQL(t, db_, `UPDATE task SET stored_ns=stored_ns-100*86400000000000`)
	for _, dry := range [][]string{nil, {"--dry-run"}} {
		object(t, inside(t, append([]string{"db", "retain", "--older-than", "90d", "--db", db_, "--json"}, dry...)...).ok(t).out, &r)
		if r.Done || len(r.Tasks) != 1 || r.Tasks[0].Task != 2 || r.Kept != 1 || r.Free == 0 || r.Tasks[0].Stored.IsZero() {
			t.Errorf("%+v", r)
		}
	}
	if got := inside(t, "db", "retain", "--older-than", "90d", "--db", db_).ok(t).out; !strings.Contains(got, "Would delete 1 task") || !strings.Contains(got, "Nothing was deleted; --yes does it") {
		t.Error(got)
	}
	inside(t, "db", "retain", "--older-than", "90d", "--yes", "--dry-run", "--db", db_).fails(t, cli.ExitUsage, "dry-run")
	if got := listed(t, db_); !equal(got, []int64{2, 1}) {
		t.Fatalf("left by what only looks: %v", got)
	}
	var p db.PackReport
	object(t, inside(t, "db", "compact", "--older-than", "30d", "--db", db_, "--json").ok(t).out, &p)
	if len(p.Tasks) != 2 || p.After >= p.Before {
		t.Errorf("%+v", p)
	}
	inside(t, "export", "2", "--db", db_, "-o", filepath.Join(t.TempDir(), "x.csv")).ok(t)
	inside(t, "db", "expand", "1", "2", "--db", db_).ok(t)
	inside(t, "db", "retain", "--older-than", "13w", "--yes", "--db", db_).ok(t)
	if got := listed(t, db_); !equal(got, []int64{1}) {
		t.Errorf("left: %v", got)
	}
	inside(t, "db", "vacuum", "--db", db_, "--json").ok(t)
	inside(t, "db", "retain", "--db", db_).fails(t, cli.ExitUsage, "say what to keep")
	inside(t, "db", "retain", "--keep-size", "0", "--db", db_).fails(t, cli.ExitUsage, "say what to keep")
	for _, bad := range []string{"--older-than 90", "--older-than -3d", "--older-than d", "--keep-size many", "--older-than 1e9d"} {
		inside(t, append([]string{"db", "retain", "--db", db_}, strings.Fields(bad)...)...).fails(t, cli.ExitUsage, "write")
	}
}

// Whatever only reads works where nothing can be written, and changes nothing where it can.
func TestReadingNeedsNoRightToWrite(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	db := twoTasks(t)
	dir, out := filepath.Dir(db), t.TempDir()
	read := func(when string) {
		t.Helper()
		for i, args := range []string{
			"tasks", "users", "show 1", "export 1 -o OUT/N.csv", "validate 1", "compare 1 2", "correct 1 --tau 100ms --no-store", "correct 1 --tau 100ms", "calibrate show --task 1",
			"db check", "db repair", "db repair --yes", "db retain --older-than 1h", "db backup OUT/N.db", "db detach OUT/N.db --task 1", "db copy DB OUT/N.db", "db import DB --db OUT/N.db",
			"sensor list", "model list", "predict list", "instructions campaigns",
		} {
			if when == "writable" && strings.HasSuffix(args, "100ms") {
				continue // stores what comes out
			}
			words := strings.Fields(strings.NewReplacer("OUT", out, "N.", fmt.Sprintf("%s-%d.", when, i), "DB", db).Replace(args))
			if !slices.Contains(words, "--db") {
				words = append(words, "--db", db)
			}
			inside(t, words...).ok(t)
		}
	}
	before, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	read("writable")
	if after, err := os.ReadFile(db); err != nil || !bytes.Equal(before, after) {
		t.Errorf("reading changed the file (%v)", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the file: %v %v", left, err)
	}
	if text, err := exec.Command("mount", "--bind", "-o", "ro", dir, dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a folder read-only here: %s", text)
	}
	defer exec.Command("umount", dir).Run() // else the folder stays
	read("mounted")
	for _, args := range [][]string{{"tag", "1", "a=b"}, {"delete", "1", "--yes"}, {"db", "vacuum"}, {"db", "retain", "--older-than", "1h", "--yes"}} {
		inside(t, append(args, "--db", db)...).fails(t, cli.ExitFailed, "read-only", "folder that you may write to")
	}
}

// Without a terminal nothing is deleted unless --yes says so; pinned tasks stay, and are
// named; of several numbers all go or none.
func TestDeleteAsksAndLeavesPinned(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := twoTasks(t)
	inside(t, "delete", "1", "--db", db).fails(t, cli.ExitUsage, "--yes", "1 gemm")
	inside(t, "delete", "--name", "gemm*", "--yes", "--db", db).ok(t) // no pattern, and no such name
	inside(t, "pin", "1", "--db", db).ok(t)
	inside(t, "delete", "1", "--yes", "--db", db).fails(t, cli.ExitFailed, "pinned, and nothing was deleted: 1 gemm-ada (ada)", "unpin 1", "--force")
	inside(t, "delete", "2", "1", "--yes", "--db", db).fails(t, cli.ExitFailed, "pinned")
	inside(t, "delete", "2", "8", "9", "--yes", "--db", db).fails(t, cli.ExitNotFound, "no task 8, 9", "nothing was deleted")
	inside(t, "delete", "2", "x", "--yes", "--db", db).fails(t, cli.ExitNotFound, `no task "x"`)
	if got := listed(t, db); !equal(got, []int64{2, 1}) {
		t.Fatalf("left: %v", got)
	}
	var gone struct {
		Deleted int
		Pinned  []int64
		Undo    string
	}
	object(t, inside(t, "delete", "--user", "ada", "--yes", "--db", db, "--json").ok(t).out, &gone)
	if gone.Deleted != 0 || !equal(gone.Pinned, []int64{1}) || gone.Undo != "" {
		t.Errorf("%+v", gone)
	}
	if got := inside(t, "delete", "2", "1", "2", "--force", "--yes", "--db", db).ok(t).out; !strings.Contains(got, "Deleted 2 tasks") {
		t.Error(got)
	}
	if got := listed(t, db); got != nil {
		t.Errorf("left: %v", got)
	}
}

func TestLabelsOnTheCommandLine(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	db := demoDB(t, demoOf{name: "gemm-fp16", user: "ada", length: demo.length})
	inside(t, "tag", "1", "node=a3", "cooler=water", "--db", db).ok(t)
	inside(t, "--db", db, "tag", "1", "-cooler", "psu=x y").ok(t)
	inside(t, "note", "1", "fan at 40 %", "--db", db).ok(t)
	var r report.Report
	object(t, inside(t, "show", "1", "--json", "--db", db).ok(t).out, &r)
	if len(r.Tags) != 2 || r.Tags["psu"] != "x y" || len(r.Notes) != 1 || r.Notes[0].Text != "fan at 40 %" {
		t.Errorf("%+v %+v", r.Tags, r.Notes)
	}
	p := r.Provenance
	if host, _ := os.Hostname(); p == nil || p.Host != host || p.Version == "" || p.MonitorVersion == "" || p.Command[1] != "demo" {
		t.Errorf("%+v", p)
	}
	for args, want := range map[string]int{"--search fp16": 1, "--search fan": 1, "--search water": 0, "--tag node=a3": 1, "--tag node": 1, "--tag node=b": 0, "--without-tag node": 0, "--without-tag node=b": 1} {
		if got := listed(t, db, strings.Fields(args)...); len(got) != want {
			t.Errorf("tasks %s: %v", args, got)
		}
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	inside(t, "db", "copy", db, copied).ok(t)
	inside(t, "note", "1", "another", "--db", db).ok(t)
	inside(t, "unpin", "1", "--db", db).ok(t) // no change
	for _, c := range []struct{ update, says string }{
		{"", "differs: notes"}, {"", "1 of them differ and were left as they are: --update"}, {"--update", "updated: notes"}, {"", "was there"},
	} {
		if got := inside(t, strings.Fields("db copy "+db+" "+copied+" "+c.update)...).ok(t).out; !strings.Contains(got, c.says) {
			t.Errorf("copied again: %s, want %q", got, c.says)
		}
	}
	inside(t, "tag", "1", "--db", db).fails(t, cli.ExitUsage, "name a task and its tags")
	inside(t, "tag", "1", "word", "--db", db).fails(t, cli.ExitUsage, "write key=value")
	inside(t, "tag", "9", "a=b", "--db", db).fails(t, cli.ExitNotFound, "no task 9")
	inside(t, "note", "1", "--db", db).fails(t, cli.ExitUsage, "give the remark's text")
	inside(t, "note", "1", "--remove", "5", "--db", db).fails(t, cli.ExitNotFound, "task 1 has no note 5")
	inside(t, "tag", "--help").ok(t)
	// One line says what a change made.
	for args, want := range map[string]string{
		"tag 1 -node": "Task 1  gemm-fp16: tags psu=x y\n", "note 1 third": "Task 1  gemm-fp16: note 3, third\n",
		"delete --name gone --yes": "No task matches: nothing was deleted from " + db + "\n",
		"tasks --name gemm":        "No such tasks in " + db + "\nwattmark tasks --name 'gemm*' lists those whose names begin so.\n",
	} {
		if got := inside(t, append(strings.Fields(args), "--db", db)...).ok(t).out; got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

func TestRedactedCommandLine(t *testing.T) {
	t.Parallel()
	noRaces(t)
	a := &cli.App{Args: []string{"run", "--name", "x", "--", "./train", "--token", "secret"}}
	if got := strings.Join(report.CommandLine(a, true), " "); got != "wattmark run --name x -- ./train "+"…" {
		t.Error(got)
	}
	if got := strings.Join(report.CommandLine(a, false), " "); !strings.HasSuffix(got, "--token secret") {
		t.Error(got)
	}
	a.Args = []string{"run", "--name", "x", "./no-such-program", "--token", "secret"} // without -- too
	c := root(a)
	c.SetArgs(a.Args)
	if err := c.Execute(); cli.ExitCode(err) != cli.ExitNoProgram {
		t.Error(err)
	}
	if got := strings.Join(report.CommandLine(a, true), " "); got != "wattmark run --name x -- ./no-such-program "+"…" {
		t.Error(got)
	}
	if got := cli.ShellWords([]string{"a b", "it's", "", "c"}); got != `'a b' 'it'\''s' '' c` {
		t.Error(got)
	}
}

// Commands about a file say so of a server, before they ask it.
func TestServersAreNoFiles(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"check"}, {"repair", "--yes"}, {"backup", filepath.Join(t.TempDir(), "b.db")}, {"vacuum"}, {"retain", "--older-than", "1d"},
	} {
		for db, kind := range map[string]string{
			"postgres://nobody@127.0.0.1:1/none": "a database server", "host://127.0.0.1:1": "a wattmark host",
		} {
			args = append([]string{"db"}, append(args, "--db", db)...)
			inside(t, args...).fails(t, cli.ExitUsage, db+" is "+kind, "wattmark db "+args[1]+" is for SQLite files", "db copy "+db)
			args = args[1 : len(args)-2]
		}
	}
}
