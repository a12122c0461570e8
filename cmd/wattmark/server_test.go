package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/db"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
)

// TestLabOnAServer does a lab's work on a PostgreSQL server: measure, list, show,
// export, attribute, recalculate, delete, and copy to a file and back.
func TestLabOnAServer(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	c := pgtest.Own(t, "fsync=off")
	c.Make(t, "lab")
	c.Make(t, "other")
	db_ := strings.Replace(c.URL("lab"), "wattmark@", "wattmark:hush@", 1)
	for _, user := range []string{"ada", "bob"} {
		inside(t, "demo", "--db", db_, "--duration", "100ms", "--user", user, "--name", "gemm-"+user).ok(t)
	}
	if ids := listed(t, db_, "--name", "gemm*"); len(ids) != 2 || ids[0] != 2 {
		t.Fatalf("tasks %v are listed", ids)
	}
	shown := inside(t, "show", "1", "--budget", "--db", db_).ok(t)
	for _, w := range []string{"ada", "complete", "aux_12v_1"} {
		if !strings.Contains(shown.out, w) {
			t.Errorf("%q is not shown:\n%s", w, shown.out)
		}
	}
	var r report.Report
	whole := inside(t, "show", "1", "--json", "--db", db_).ok(t)
	if object(t, whole.out, &r); r.Database != "postgres://wattmark@/lab?"+strings.SplitN(db_, "?", 2)[1] || strings.Contains(whole.out, "hush") {
		t.Errorf("the database is said to be %s", r.Database)
	}
	csv := inside(t, "export", "1", "--db", db_).ok(t)
	file := filepath.Join(t.TempDir(), "power.db")
	var copied db.TransferReport
	object(t, inside(t, "db", "copy", db_, file, "--json").ok(t).out, &copied)
	if copied.Copied != 2 || copied.Samples == 0 || strings.Contains(copied.From, "hush") {
		t.Errorf("the copy says %+v", copied)
	}
	if again := inside(t, "export", "1", "--db", file).ok(t); again.out != csv.out {
		t.Error("the samples differ in the copy")
	}
	for _, sort := range []string{"-energy", "name", "user", "-task", "mean"} {
		args := []string{"tasks", "--format", "csv", "--columns", "name,user,energy,mean", "--sort", sort, "--db"}
		if onServer, inFile := inside(t, append(args, db_)...).ok(t).out, inside(t, append(args, file)...).ok(t).out; onServer != inFile {
			t.Errorf("--sort %s: %s on the server\n%s in the file", sort, onServer, inFile)
		}
	}
	object(t, inside(t, "db", "copy", file, c.URL("other"), "--user", "bob", "--json").ok(t).out, &copied)
	if copied.Copied != 1 || copied.Tasks[0].From != 2 || copied.Tasks[0].To != 1 {
		t.Errorf("the copy of bob's says %+v", copied)
	}
	inside(t, "db", "copy", file, c.URL("other"), "--task", "9").fails(t, cli.ExitNotFound, "no task 9")
	inside(t, "db", "copy", file, file).fails(t, cli.ExitUsage, "both the source and the target")
	inside(t, "db", "copy", file+"x", file).fails(t, cli.ExitNotFound, "the source comes first")
	inside(t, "show", "7", "--db", db_).fails(t, cli.ExitNotFound, "no task 7")
	inside(t, "delete", "1", "--yes", "--db", db_).ok(t)
	if ids := listed(t, db_); len(ids) != 1 || ids[0] != 2 {
		t.Errorf("after a deletion tasks %v are listed", ids)
	}
	c.Stop()
	r2 := inside(t, "tasks", "--db", db_).fails(t, cli.ExitFailed, "cannot be reached", "see that the server runs")
	if strings.Contains(r2.err, "hush") {
		t.Errorf("the password is told: %s", r2.err)
	}
}
