package store

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

// older makes a database as the program left it before calibration records: the
// first two migrations, one task with a result, one without.
func older(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "power.db")
	db := must(sql.Open("sqlite", path))(t)
	defer db.Close()
	for _, m := range migrations[:2] {
		_, err := db.Exec(m.sql)
		ok(t, err)
	}
	_, err := db.Exec(`PRAGMA application_id=1465994603; PRAGMA user_version=2; PRAGMA foreign_keys=1;
		INSERT INTO user VALUES(1,'lab');
		INSERT INTO calibration VALUES(1,x'00','0123456789abcdef','bench',5,1e6,1e-4,50,0,2,0,0,0,'[]',1);
		INSERT INTO channel VALUES(1,0,'a.current','A',0.01,-0.5,0.01,0.02,0.05,0,0,0),(1,1,'a.voltage','V',0.1,0,0.005,0.1,0.1,0,0,0);
		INSERT INTO rail VALUES(1,0,'a',1,2,0,1,0,0,0,0,-0.5,0.01,0,0,0.1);
		INSERT INTO task(task_id,user_id,name,state,monitor,capture_id,gpu,gpu_uuid,driver,marker_code,marker_chip_s,marker_guard,marker_tag_bits,marker_tag,
			calibration_id,has_result,from_s,to_s,samples,first_scan,gaps,lost,end_scan,energy_j,energy_u_j,mean_w,peak_w)
		VALUES(7,1,'gemm',2,'m','c','g','u','d',0,0,0,0,0, 1,1,0.5,1.5,20000,10000,0,0,30000,100,2,100,120),
			(8,1,'lost',4,'m','c','g','u','d',0,0,0,0,0, 1,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
		INSERT INTO rail_result VALUES(7,0,'a',1,100,2,100,120);
		INSERT INTO budget VALUES(7,0,0,'gain a.current',1,1),(7,-1,0,'gain a.current',1,1);`)
	ok(t, err)
	return path
}

func TestAnOlderDatabaseComesAlong(t *testing.T) {
	path := older(t)
	if _, err := OpenReadOnly(t.Context(), path); err == nil || !strings.Contains(err.Error(), "open it once for writing") {
		t.Errorf("to read before it was brought up to date: %v", err)
	}
	d := must(Open(t.Context(), path))(t)
	x := must(d.Task(t.Context(), 7))(t)
	want := []ResultInfo{{Number: 1, CalibrationID: "0123456789abcdef", Total: measure.Estimate{Energy: 100, U: 2}, InUse: true}}
	if diff := cmp.Diff(want, x.Results); diff != "" || x.ResultNumber != 1 || x.Setup.Records != nil {
		t.Errorf("%s, %+v", diff, x)
	}
	first := must(d.TaskResult(t.Context(), 7, 1))(t)
	if diff := cmp.Diff(x, first); diff != "" {
		t.Errorf("result 1 is not the one that was there: %s", diff)
	}
	if y := must(d.Task(t.Context(), 8))(t); y.ResultNumber != 0 || y.Results != nil {
		t.Errorf("a task without a window has results: %+v", y)
	}
	if _, err := d.TaskResult(t.Context(), 7, 2); !errors.Is(err, ErrNotFound) {
		t.Errorf("a result that is not there: %v", err)
	}
	ok(t, d.DeleteTask(t.Context(), 7))
	ok(t, d.Close())
	d = must(Open(t.Context(), path))(t) // nothing is left to do
	for _, table := range []string{"result", "result_rail", "result_budget"} {
		var n int
		ok(t, d.SQL().QueryRow("SELECT count(*) FROM "+table).Scan(&n))
		if n != 0 {
			t.Errorf("%d rows of a deleted task are left in %s", n, table)
		}
	}
	ok(t, d.Close())
}

// A migration that is cut short leaves the older database as it was.
func TestAMigrationIsWholeOrNot(t *testing.T) {
	path := older(t)
	db := must(sql.Open("sqlite", path))(t)
	_, err := db.Exec("CREATE TABLE result_budget(x)") // in the way of the last table
	ok(t, err)
	ok(t, db.Close())
	if d, err := Open(t.Context(), path); err == nil {
		d.Close()
		t.Fatal("the migration went over another table")
	}
	db = must(sql.Open("sqlite", path))(t)
	defer db.Close()
	var version, tables int
	ok(t, db.QueryRow("SELECT (SELECT user_version FROM pragma_user_version), count(*) FROM sqlite_master WHERE name='result'").Scan(&version, &tables))
	if version != 2 || tables != 0 {
		t.Errorf("version %d, and %d new tables are left of a migration that failed", version, tables)
	}
}

// recalibrated is a setup with other numbers and a record of them.
func recalibrated(s measure.Setup, by float64) measure.Setup {
	s.Channels = append([]measure.Channel{}, s.Channels...)
	for i := range s.Channels {
		s.Channels[i].Gain *= by
	}
	s.Records = []measure.CalibrationRecord{{ID: "abc", Text: `{"id":"abc"}`}}
	return s
}

func resultOf(r measure.Result, by float64) *measure.Result {
	r.Total.Energy *= measure.Joule(by)
	r.Rails = append([]measure.RailResult{}, r.Rails...)
	r.Rails[0].Energy.Energy *= measure.Joule(by)
	return &r
}

func TestResultsUnderTwoCalibrations(t *testing.T) {
	d, ctx := open(t), t.Context()
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 1000, 4)
	ok(t, d.AppendChunks(ctx, id, encode(t, evenly, b, 300, 0), nil))
	o := fullOutcome()
	o.Result.FirstScan, o.Result.Samples = 100, 500
	power := func() (p float64) {
		ok(t, d.SQL().QueryRow("SELECT avg(power) FROM data WHERE taskID=?", int64(id)).Scan(&p))
		return p
	}
	s := recalibrated(threeRails(evenly), 1.1)
	if _, _, err := d.AddResult(ctx, id, s, o.Result); !errors.Is(err, ErrConflict) {
		t.Errorf("a result for a task that runs: %v", err)
	}
	ok(t, d.Finish(ctx, id, o))
	before := must(d.Task(ctx, id))(t)
	was := power()

	no, added, err := d.AddResult(ctx, id, s, resultOf(*o.Result, 1.21))
	if no != 2 || !added || err != nil {
		t.Fatal(no, added, err)
	}
	now := must(d.Task(ctx, id))(t)
	if now.Result.Total.Energy != 1.21*o.Result.Total.Energy || now.ResultNumber != 2 || len(now.Results) != 2 || now.Results[0].InUse || !now.Results[1].InUse {
		t.Errorf("%+v", now)
	}
	if diff := cmp.Diff(s, now.Setup); diff != "" {
		t.Error(diff)
	}
	if p := power(); !(p > 1.05*was) {
		t.Errorf("the view data still follows the old calibration: %v W, then %v W", was, p)
	}
	first := must(d.TaskResult(ctx, id, 1))(t)
	if diff := cmp.Diff(before.Result, first.Result); diff != "" {
		t.Errorf("the original is not what it was: %s", diff)
	}
	if diff := cmp.Diff(before.Setup, first.Setup); diff != "" {
		t.Error(diff)
	}

	// Again changes nothing, whatever is offered; and one can go back.
	for range 2 {
		if no, added, err = d.AddResult(ctx, id, s, resultOf(*o.Result, 7)); no != 2 || added || err != nil {
			t.Error(no, added, err)
		}
	}
	if diff := cmp.Diff(now, must(d.Task(ctx, id))(t), sameSeconds); diff != "" {
		t.Errorf("repeating it changed the task: %s", diff)
	}
	plain := *o.Result
	plain.From++
	if _, _, err := d.AddResult(ctx, id, s, &plain); !errors.Is(err, ErrConflict) {
		t.Errorf("another window: %v", err)
	}
	all := must(d.Calibrations(ctx))(t)
	if len(all) != 2 || len(all[1].Setup.Records) != 1 || all[1].Bench != "bench" || len(all[1].Instruments) != 1 || all[1].Instruments[0].Kind != "emulated" {
		t.Errorf("%+v", all)
	}

	// A task that is finished anew begins again with its own calibration.
	ok(t, d.Finish(ctx, id, o))
	again := must(d.Task(ctx, id))(t)
	if len(again.Results) != 1 || again.CalibrationID != before.CalibrationID || power() != was {
		t.Errorf("%+v", again.Results)
	}
	if program, err := exec.LookPath("sqlite3"); err == nil {
		out, err := exec.Command(program, d.Path(), "PRAGMA integrity_check; PRAGMA foreign_key_check;").CombinedOutput()
		if strings.TrimSpace(string(out)) != "ok" {
			t.Errorf("%s %v", out, err)
		}
	}
}
