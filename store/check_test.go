package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
)

// whole makes a complete task of several chunks with a window, a pyramid and events.
func whole(t testing.TB, d *DB, seed uint64) TaskID {
	t.Helper()
	id := begin(t, d, threeRails(evenly))
	rng := rand.New(rand.NewPCG(seed, 21))
	for part := range uint64(2) {
		b := ripple(rng, 6, 4000, 4)
		b.FirstScan = part * 4100
		b.FirstTick = int64(b.FirstScan) * 50
		var lost []measure.Event
		if part > 0 {
			lost = []measure.Event{{Kind: measure.EventGap, FirstScan: 4000, Scans: 100, Exact: true, Channel: -1}}
		}
		ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, b, 1000, 4*part), lost))
	}
	found := []marker.Found{
		{Kind: marker.Start, T: 0.01, U: 1e-6, Begin: 0.01, End: 0.02, TagOK: true, Edges: []marker.Edge{{Chip: 0, T: 0.01, U: 2e-6}, {Chip: 1, T: 0.012, U: 2e-6}}},
		{Kind: marker.Stop, T: 0.39, U: 1e-6, Begin: 0.39, End: 0.4, TagOK: true},
	}
	ok(t, d.Finish(t.Context(), id, Outcome{State: Complete, Markers: found, Result: summed(t, d, id, 0.025, 0.33)}))
	return id
}

// summed is the result of a task over a window.
func summed(t testing.TB, d *DB, id TaskID, from, to measure.Seconds) *measure.Result {
	t.Helper()
	x := must(d.Task(t.Context(), id))(t)
	g := must(measure.NewIntegrator(&x.Setup, from, to))(t)
	for b, err := range chunk.DecodeAll(d.Chunks(t.Context(), id, 0), &x.Setup) {
		ok(t, err)
		ok(t, g.Add(b))
	}
	// The rate is what markers show of the clock: more than the setup states.
	r := must(g.Result(measure.Edges{UFrom: 1e-5, UTo: 1e-5, Rate: 1e-3}))(t)
	return &r
}

// Lone readings that the meter does not make at rest count for less than the chunks of the window alone show: no damage.
func TestCheckOfPulses(t *testing.T) {
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(3, 21)), 6, 8000, 4)
	for i := 3000; i < 6000; i += 97 {
		b.Counts[0][i] += 2000
		if i%2 == 0 {
			b.Counts[0][i+1] += 2000
		}
	}
	ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, b, 1000, 0), nil))
	plain := summed(t, d, id, 0.125, 0.33)
	x := must(d.Task(t.Context(), id))(t)
	g := must(measure.NewIntegrator(&x.Setup, 0.125, 0.33))(t)
	g.Rest(0.12, 0.34)
	ok(t, g.Add(&b))
	r := must(g.Result(measure.Edges{UFrom: 1e-5, UTo: 1e-5, Rate: 1e-3}))(t)
	tail := func(r *measure.Result) (u measure.Joule) {
		for _, c := range r.Budget {
			if strings.HasPrefix(c.Source, "heavy tail ") {
				u = max(u, c.U)
			}
		}
		return u
	}
	if !(tail(&r) < 0.8*tail(plain)) {
		t.Fatalf("heavy tails of %v and %v", tail(&r), tail(plain))
	}
	ok(t, d.Finish(t.Context(), id, Outcome{State: Complete, Result: &r}))
	if f := check(t, d); len(f) > 0 {
		t.Errorf("%+v", f)
	}
}

func check(t testing.TB, d *DB) []Finding {
	t.Helper()
	return must(d.Check(t.Context(), CheckOptions{}))(t).Findings
}

func harm(t testing.TB, d *DB, q string, args ...any) {
	t.Helper()
	conn := must(d.writer.Conn(t.Context()))(t)
	defer conn.Close()
	for _, s := range []string{"PRAGMA foreign_keys=0", q, "PRAGMA foreign_keys=1"} {
		a := args
		if s != q {
			a = nil
		}
		_, err := conn.ExecContext(t.Context(), s, a...)
		ok(t, err)
	}
}

func TestCheckFindsNothingInWhatIsSound(t *testing.T) {
	noRaces(t)
	d := open(t)
	for seed := range uint64(6) {
		randomTask(t, d, rand.New(rand.NewPCG(seed, 14)), false)
	}
	whole(t, d, 1)
	must(d.BeginTask(t.Context(), NewTask{Name: "no header", User: "lab"}))(t)
	for _, f := range check(t, d) {
		// randomTask leaves gaps without telling, and has results that nobody measured.
		if f.Kind != Hole && (f.Kind != BadResult || f.Task > 6) {
			t.Errorf("%+v", f)
		}
	}
	r := must(d.Check(t.Context(), CheckOptions{Task: 7}))(t)
	if r.Tasks != 1 || r.Chunks != 8 || r.Scans != 8000 || r.Pages == 0 || len(r.Findings) > 0 {
		t.Errorf("%+v", r)
	}
	if _, err := d.Check(t.Context(), CheckOptions{Task: 99}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a task that is not there: %v", err)
	}
}

// Every damage is named, with its task and chunk; what can be mended is, and the
// rest of the file stays as it was.
func TestCheckNamesDamageAndRepairMendsIt(t *testing.T) {
	coverage.Long(t)
	noRaces(t)
	for name, c := range map[string]struct {
		harm  string
		kind  Kind
		chunk ChunkNo
		cut   bool // samples are lost
	}{
		"a flipped bit":       {`UPDATE chunk_column SET data=CAST(x'a1'||substr(data,2) AS BLOB) WHERE task_id=1 AND chunk_no=2 AND col=3`, BadChunk, 2, true},
		"a column missing":    {`DELETE FROM chunk_column WHERE task_id=1 AND chunk_no=6 AND col=0`, BadChunk, 6, true},
		"no columns":          {`DELETE FROM chunk_column WHERE task_id=1 AND chunk_no=0`, BadChunk, 0, true},
		"another head":        {`UPDATE chunk SET first_tick=first_tick+1 WHERE task_id=1 AND chunk_no=5`, BadChunk, 5, true},
		"a chunk missing":     {`DELETE FROM chunk WHERE task_id=1 AND chunk_no=3`, Hole, 4, true},
		"a loss not recorded": {`DELETE FROM event WHERE task_id=1`, Hole, 4, true},
		"an overlap":          {`UPDATE chunk SET n=n+200 WHERE task_id=1 AND chunk_no=1`, Overlap, 2, true},
		"wrong counts":        {`UPDATE task SET chunks=3, scans=7 WHERE task_id=1`, BadCount, NoChunk, false},
		"another energy":      {`UPDATE task SET energy_j=99 WHERE task_id=1`, BadResult, NoChunk, false},
		"a torn page":         {`UPDATE pyramid SET data=CAST(substr(data,1,100) AS BLOB) WHERE task_id=1 AND level=0`, BadPyramid, NoChunk, false},
		"a wrong page":        {`UPDATE pyramid SET data=(SELECT data FROM pyramid WHERE task_id=2 AND level=1) WHERE task_id=1 AND level=1`, BadPyramid, NoChunk, false},
		"rows of no task":     {`INSERT INTO reading VALUES(77,'nvml.instant',5,1.5)`, Dangling, NoChunk, false},
		"columns of no chunk": {`INSERT INTO chunk_column VALUES(1,90,0,x'00',x'0102')`, Dangling, NoChunk, false},
		"no view":             {`DROP VIEW data`, BadSchema, NoChunk, false},
		"another view":        {`DROP VIEW data; CREATE VIEW data AS SELECT 1 taskID`, BadSchema, NoChunk, false},
		"no index":            {`DROP INDEX task_user`, BadSchema, NoChunk, false},
		"a wrong look-up":     {`UPDATE _u16 SET v=9 WHERE b=x'0700'`, BadSchema, NoChunk, false},
		"not to be found":     {`DELETE FROM task_text WHERE rowid=1`, BadSearch, NoChunk, false},
		"other tags":          {`UPDATE task SET tags='{"a":"b"}' WHERE task_id=1`, BadTags, NoChunk, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			whole(t, d, 1)
			whole(t, d, 2)
			sound := payloads(t, d, 2, 0)
			harm(t, d, c.harm)
			look := func() []Finding { return must(d.Check(t.Context(), CheckOptions{Task: 1}))(t).Findings }
			switch c.kind {
			case Dangling, BadSchema, BadSearch, BadTags: // of the file
				look = func() []Finding { return check(t, d) }
			}
			found := look()
			if !slices.ContainsFunc(found, func(f Finding) bool {
				return f.Kind == c.kind && f.Chunk == c.chunk && f.What != "" && f.Remedy != "" && f.Mendable
			}) {
				t.Fatalf("no %s of chunk %d in %+v", c.kind, c.chunk, found)
			}
			r := must(d.Repair(t.Context(), found))(t)
			if len(r.Left) > 0 || (len(r.Cut) > 0) != c.cut {
				t.Errorf("repair left %+v and cut %v", r.Left, r.Cut)
			}
			if left := look(); len(left) > 0 {
				t.Errorf("after the repair: %+v", left)
			}
			task := must(d.Task(t.Context(), 1))(t)
			if c.cut != (task.State == Incomplete && strings.Contains(task.Reason, "damaged")) {
				t.Errorf("it is %v: %s", task.State, task.Reason)
			}
			if !slices.EqualFunc(sound, payloads(t, d, 2, 0), bytes.Equal) {
				t.Error("the other task was changed")
			}
		})
	}
}

// What is set aside can be put back: nothing of it is lost.
func TestDamagedChunkIsKept(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := whole(t, d, 1)
	var want string
	ok(t, d.SQL().QueryRow(`SELECT quote(data) FROM chunk_column WHERE task_id=1 AND chunk_no=2 AND col=4`).Scan(&want))
	harm(t, d, `UPDATE chunk SET crc=crc+1 WHERE task_id=1 AND chunk_no=2`)
	must(d.Repair(t.Context(), check(t, d)))(t)
	var text string
	ok(t, d.SQL().QueryRow(`SELECT content FROM damage WHERE task_id=? AND chunk_no=2`, int64(id)).Scan(&text))
	var kept map[string][]map[string]string
	ok(t, json.Unmarshal([]byte(text), &kept))
	if len(kept["chunk_column"]) != 6 || kept["chunk_column"][4]["data"] != want || kept["chunk"][0]["first_scan"] != "2000" {
		t.Errorf("kept: %.300s", text)
	}
	task := must(d.Task(t.Context(), id))(t)
	if e := task.Events[0]; e.Kind != measure.EventGap || e.FirstScan != 2000 || e.Scans != 1000 || !e.Exact {
		t.Errorf("the loss is %+v", e)
	}
}

func TestRepairLeavesARunningTask(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, ripple(rand.New(rand.NewPCG(1, 1)), 6, 900, 4), 300, 0), nil))
	harm(t, d, `UPDATE chunk SET crc=crc+1 WHERE chunk_no=1`)
	r := must(d.Repair(t.Context(), check(t, d)))(t)
	if len(r.Left) != 1 || len(r.Mended) != 0 || !strings.Contains(r.Left[0].Remedy, "runs") {
		t.Errorf("%+v", r)
	}
}

// harmed copies a closed database and changes a page of a table or index.
func harmed(t *testing.T, d *DB, tree string, change func(page []byte)) string {
	t.Helper()
	var root, size int64
	ok(t, d.SQL().QueryRow(`SELECT rootpage FROM main.sqlite_master WHERE name=?`, tree).Scan(&root))
	ok(t, d.SQL().QueryRow(`PRAGMA main.page_size`).Scan(&size))
	path := filepath.Join(t.TempDir(), "broken.db")
	ok(t, d.Backup(t.Context(), path, nil))
	file := must(os.ReadFile(path))(t)
	change(file[(root-1)*size : root*size])
	ok(t, os.WriteFile(path, file, 0o644))
	return path
}

// A page that cannot be read is named; what does not lie on it is salvaged, to the
// byte, into a file that is sound but for what it says.
func TestSalvage(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	d := open(t)
	for seed := range uint64(3) {
		whole(t, d, seed)
	}
	want := payloads(t, d, 2, 0)
	trees := []string{"chunk_column", "event", "task_user"}
	if testing.Short() {
		trees = trees[:1]
	}
	for _, tree := range trees {
		path := harmed(t, d, tree, func(p []byte) {
			for i := range p[:200] {
				p[i] = 0xff
			}
		})
		broken := must(OpenReadOnly(t.Context(), path))(t)
		found := must(broken.Check(t.Context(), CheckOptions{}))(t).Findings
		ok(t, broken.Close())
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == BadPage }) {
			t.Errorf("%s: not found: %+v", tree, found)
		}
		fresh := filepath.Join(t.TempDir(), "new.db")
		in := must(Salvage(t.Context(), path, fresh, nil))(t)
		n := must(Open(t.Context(), fresh))(t)
		if len(in.Tasks) != 3 || must(n.Task(t.Context(), 2))(t).Name != "gemm" {
			t.Errorf("%s: salvaged %+v", tree, in)
		}
		if tree != "chunk_column" && !slices.EqualFunc(want, payloads(t, n, 2, 0), bytes.Equal) {
			t.Errorf("%s: the samples are not the same", tree)
		}
		if (tree != "task_user") != (len(in.Lost) > 0) { // an index has nothing of its own
			t.Errorf("%s: lost: %+v", tree, in.Lost)
		}
		if task := must(n.Task(t.Context(), 2))(t); (tree == "chunk_column") != (task.State == Incomplete && len(in.Cut) > 0 && strings.Contains(task.Reason, "salvaged")) {
			t.Errorf("%s: it is %v: %q", tree, task.State, task.Reason)
		}
		must(n.Repair(t.Context(), check(t, n)))(t)
		if left := check(t, n); len(left) > 0 {
			t.Errorf("%s: after the salvage: %+v", tree, left)
		}
		ok(t, n.Close())
	}
}

// Of a file that was cut off, also within a page, all tasks are salvaged with what lies before the cut.
func TestSalvageOfACutFile(t *testing.T) {
	t.Parallel()
	noRaces(t)
	d := open(t)
	whole(t, d, 1)
	whole(t, d, 2)
	path := filepath.Join(t.TempDir(), "whole.db")
	ok(t, d.Backup(t.Context(), path, nil))
	file := must(os.ReadFile(path))(t)
	for _, off := range []int{16384, 100, 3*16384 + 100} {
		cut := file[:len(file)-off]
		broken, fresh := filepath.Join(t.TempDir(), "cut.db"), filepath.Join(t.TempDir(), "new.db")
		ok(t, os.WriteFile(broken, cut, 0o644))
		in := must(Salvage(t.Context(), broken, fresh, nil))(t)
		if len(in.Tasks) != 2 {
			t.Errorf("%d bytes off: salvaged %+v", off, in)
		}
		if !bytes.Equal(must(os.ReadFile(broken))(t), cut) {
			t.Errorf("%d bytes off: the file was changed", off)
		}
		n := must(Open(t.Context(), fresh))(t)
		must(n.Repair(t.Context(), check(t, n)))(t)
		if left := check(t, n); len(left) > 0 {
			t.Errorf("%d bytes off: after the salvage: %+v", off, left)
		}
		ok(t, n.Close())
	}
}

// A byte that is flipped anywhere in the file is found, unless nothing reads it.
func TestFlippedBytesDoNotPassForData(t *testing.T) {
	t.Parallel()
	noRaces(t)
	d := open(t)
	whole(t, d, 1)
	want := payloads(t, d, 1, 0)
	sound := filepath.Join(t.TempDir(), "sound.db")
	ok(t, d.Backup(t.Context(), sound, nil))
	file := must(os.ReadFile(sound))(t)
	rng := rand.New(rand.NewPCG(7, 7))
	// The look-up table for the view is most of an empty file: flip behind it.
	at := bytes.Index(file, []byte("gemm"))
	named, flips := 0, 6
	if testing.Short() {
		flips = 3
	}
	for range flips {
		i := at + rng.IntN(len(file)-at)
		path := filepath.Join(t.TempDir(), "flipped.db")
		bad := slices.Clone(file)
		bad[i] ^= 1 << rng.IntN(8)
		ok(t, os.WriteFile(path, bad, 0o644))
		b, err := OpenReadOnly(t.Context(), path)
		if err != nil {
			named++
			continue
		}
		found := len(must(b.Check(t.Context(), CheckOptions{}))(t).Findings) > 0
		if found {
			named++
		} else if !slices.EqualFunc(want, payloads(t, b, 1, 0), bytes.Equal) {
			t.Errorf("byte %d: other samples, and nothing was found", i)
		}
		ok(t, b.Close())
	}
	t.Logf("%d of %d were named; the others are not read by anything", named, flips)
}

// A second writer waits, or is told; neither loses what was acknowledged.
func TestTwoWriters(t *testing.T) {
	noRaces(t)
	d := open(t)
	begin(t, d, threeRails(evenly))
	second := must(Open(t.Context(), d.path))(t)
	defer second.Close()
	errs := make(chan error, 2)
	for w, db := range []*DB{d, second} {
		go func() {
			errs <- func() error {
				for no := uint64(w); no < 20; no += 2 {
					c, _, err := crashChunk(no)
					if err == nil {
						err = db.AppendChunks(context.WithoutCancel(t.Context()), 1, []*chunk.Chunk{c}, nil)
					}
					if err != nil {
						return fmt.Errorf("chunk %d: %w", no, err)
					}
				}
				return nil
			}()
		}()
	}
	ok(t, <-errs)
	ok(t, <-errs)
	if n := len(payloads(t, d, 1, 0)); n != 20 {
		t.Errorf("%d chunks of 20", n)
	}
	for _, f := range check(t, d) {
		if f.Kind != Hole { // their events were left out
			t.Errorf("%+v", f)
		}
	}
	var n int
	if err := second.SQL().QueryRow(`SELECT count(*) FROM chunk`).Scan(&n); err != nil || n != 20 {
		t.Errorf("the other sees %d: %v", n, err)
	}
}

// Each number that is changed by hand is found, and told with its task, its table or
// column, and what to do. What can be made anew from what is sound is; where the calibration or the
// markers are not what they were, nothing is made anew by them.
func TestCheckFindsEachChangedNumber(t *testing.T) {
	coverage.Long(t)
	noRaces(t)
	const energies = `UPDATE task SET energy_j=energy_j*2 WHERE task_id=1; UPDATE result SET energy_j=energy_j*2 WHERE task_id=1;
		UPDATE rail_result SET energy_j=energy_j*2 WHERE task_id=1; UPDATE result_rail SET energy_j=energy_j*2 WHERE task_id=1`
	for name, c := range map[string]struct {
		harm string
		kind Kind
		says string // the table or column
		left bool   // it cannot be mended
		cut  bool   // the results are computed anew
		old  bool   // found without the seal
	}{
		"a rail's slope":          {`UPDATE rail SET ix=ix*1.05 WHERE calibration_id=1 AND ordinal=0`, BadCalibration, "rail.ix of rail aux_12v", false, false, true},
		"a rail's offset":         {`UPDATE rail SET i0=i0+1 WHERE calibration_id=1 AND ordinal=1`, BadCalibration, "rail.i0 of rail pcie_3v3", false, false, true},
		"the number of channels":  {`UPDATE calibration SET channels=7`, BadCalibration, "calibration.channels", false, false, true},
		"one rail a role":         {`UPDATE calibration SET one_a_role=0`, BadCalibration, "calibration.one_a_role", false, false, true},
		"the tick rate":           {`UPDATE calibration SET tick_hz=tick_hz*1.001`, BadCalibration, "table calibration", true, false, true},
		"a channel's skew":        {`UPDATE channel SET skew_s=skew_s+1e-6 WHERE ordinal=2`, BadCalibration, "skew_s", true, false, true},
		"a channel's gain":        {`UPDATE channel SET gain=gain*1.05 WHERE ordinal=0`, BadCalibration, "channel (gain", true, false, true},
		"a shunt":                 {`UPDATE rail SET shunt_ohm=0.006 WHERE ordinal=1`, BadCalibration, "or rail", true, false, true},
		"a digest":                {`UPDATE calibration SET digest=zeroblob(32)`, BadCalibration, "digest", true, false, true},
		"a rail's energy":         {`UPDATE rail_result SET energy_j=energy_j*2 WHERE task_id=1 AND ordinal=0`, BadResult, "rail_result.energy_j of rail aux_12v", false, false, true},
		"the kept rail's energy":  {`UPDATE result_rail SET energy_j=energy_j*2 WHERE task_id=1 AND ordinal=0`, BadResult, "result_rail says", false, false, true},
		"a budget":                {`UPDATE budget SET u_j=u_j*10 WHERE task_id=1 AND rail=-1`, BadResult, "budget.u_j of ", false, false, true},
		"a peak":                  {`UPDATE task SET peak_w=peak_w+1 WHERE task_id=1`, BadResult, "task.peak_w", false, false, true},
		"both energies":           {`UPDATE task SET energy_j=energy_j*2 WHERE task_id=1; UPDATE result SET energy_j=energy_j*2 WHERE task_id=1`, BadResult, "result.energy_j", false, true, true},
		"all energies":            {energies, BadResult, "result.energy_j", false, true, true},
		"a window":                {`UPDATE task SET to_s=to_s-0.1 WHERE task_id=1; UPDATE result SET to_s=to_s-0.1 WHERE task_id=1`, BadResult, "result.samples", false, true, true},
		"no such result":          {`UPDATE task SET result=7 WHERE task_id=1`, BadResult, "task.result", true, false, true},
		"a marker":                {`UPDATE marker SET t_s=t_s+0.1 WHERE task_id=1 AND ordinal=0`, BadSeal, "table marker", true, false, false},
		"a marker's edge":         {`UPDATE marker_edge SET t_s=t_s+1e-4 WHERE task_id=1 AND edge=1`, BadSeal, "table marker_edge", true, false, false},
		"the meter's own clock":   {`UPDATE task SET clock_b=1.0001 WHERE task_id=1`, BadSeal, "table task", true, false, false},
		"a gap that is none":      {`INSERT INTO event(task_id, first_scan, kind, scans, exact, channel, detail) VALUES(1, 1010, 1, 50, 1, -1, '')`, FalseGap, "table event", false, false, true},
		"a user who is not there": {`UPDATE task SET user_id=99 WHERE task_id=1`, Dangling, "user_id 99", false, false, true},
		"no calibration":          {`UPDATE task SET calibration_id=99 WHERE task_id=1`, Dangling, "calibration_id 99", true, false, true},
		"a rail of no result":     {`INSERT INTO result_rail VALUES(1, 9, 0, 'x', 1, 1, 1, 1, 1)`, Dangling, "result_rail", false, false, true},
		"an edge of no marker":    {`INSERT INTO marker_edge VALUES(1, 9, 0, 0, 1, 1)`, Dangling, "marker_edge", false, false, true},
		"a member of no task":     {`INSERT INTO task_group(group_id, name, user) VALUES(1, 'g', 'lab'); INSERT INTO group_member VALUES(1, 0, '', '', '', 77, '')`, Dangling, "group_member", false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			whole(t, d, 1)
			if left := check(t, d); len(left) > 0 {
				t.Fatalf("before: %+v", left)
			}
			if c.old {
				harm(t, d, `UPDATE task SET seal=NULL`)
			}
			harm(t, d, c.harm)
			found := check(t, d)
			var told *Finding
			for i, f := range found {
				if f.Kind == c.kind && strings.Contains(f.What, c.says) {
					told = &found[i]
				}
				if c.left && f.Mendable {
					t.Errorf("it would be mended: %+v", f)
				}
			}
			if told == nil || told.Remedy == "" || told.Task != 1 && name != "a member of no task" {
				t.Fatalf("no %s of %q in %+v", c.kind, c.says, found)
			}
			r := must(d.Repair(t.Context(), found))(t)
			if (len(r.Left) > 0) != c.left || (len(r.Cut) > 0) != c.cut {
				t.Errorf("repair left %+v and cut %v", r.Left, r.Cut)
			}
			if c.cut {
				ok(t, d.Finish(t.Context(), 1, Outcome{State: Complete, Result: summed(t, d, 1, 0.025, 0.33)}))
			}
			if again := check(t, d); c.left != (len(again) > 0) {
				t.Errorf("after the repair: %+v", again)
			}
		})
	}
}

// Nothing is made anew by a calibration that is not what it was: the pyramid stays.
func TestNothingIsMadeByAChangedCalibration(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := whole(t, d, 1)
	before := pagesOf(t, d, id, 0)
	harm(t, d, `UPDATE channel SET gain=gain*1.05 WHERE ordinal=0`)
	harm(t, d, `UPDATE chunk SET crc=crc+1 WHERE chunk_no=1`)
	r := must(d.Repair(t.Context(), check(t, d)))(t)
	if len(r.Mended) > 0 || len(r.Left) != 2 {
		t.Errorf("%+v", r)
	}
	harm(t, d, `UPDATE chunk SET crc=crc-1 WHERE chunk_no=1`)
	if err := d.BuildPyramid(t.Context(), id); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "calibration 1") {
		t.Errorf("%v", err)
	}
	if !bytes.Equal(before, pagesOf(t, d, id, 0)) {
		t.Error("the pyramid was changed")
	}
	was := must(d.Task(t.Context(), id))(t).Result.Total.Energy
	anew := Outcome{State: Complete, Result: &measure.Result{FirstScan: 500, Samples: 6000, Total: measure.Estimate{Energy: 99, U: 1}}}
	if err := d.Finish(t.Context(), id, anew); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "calibration 1") {
		t.Errorf("another result: %v", err)
	}
	if x := must(d.Task(t.Context(), id))(t); x.Result.Total.Energy != was {
		t.Errorf("the result is %v", x.Result.Total)
	}
}

// The integrity_check of every SQLite from 3.40 on finds the file sound: in a table without
// rowid the columns of the key come first, for some of them take one between for NULL.
func TestStockProgramFindsEventsSound(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := whole(t, d, 1) // with a gap
	ok(t, d.PutMethods(t.Context(), id, []MethodResult{{Method: "method.sma", From: epoch, To: epoch.Add(1)}, {Method: "method.ema", From: epoch, To: epoch.Add(1)}}))
	if got := stockSays(t, d.path, `PRAGMA integrity_check; PRAGMA foreign_key_check`); got != "ok" {
		t.Error(got)
	}
	later := namesOf(t, d.SQL(), `SELECT m.name || '.' || c.name FROM main.sqlite_master m, pragma_table_info(m.name, 'main') c
		WHERE m.type='table' AND m.sql LIKE '%WITHOUT ROWID' AND c.pk>0 AND c.cid>=(SELECT count(*) FROM pragma_table_info(m.name, 'main') k WHERE k.pk>0)`)
	if len(later) > 0 {
		t.Errorf("keys behind other columns: %q", later)
	}
}

// Damage within a task's samples is named when they are read, and everything else of
// the file stays readable: the chunks before, other tasks, lists.
func TestDamageLeavesTheRestReadable(t *testing.T) {
	noRaces(t)
	d := open(t)
	whole(t, d, 1)
	whole(t, d, 2)
	want := [2][][]byte{payloads(t, d, 1, 0), payloads(t, d, 2, 0)}
	victim := must(chunkData(d, t, 1, 1))(t)
	path := filepath.Join(t.TempDir(), "damaged.db")
	ok(t, d.Backup(t.Context(), path, nil))
	file := must(os.ReadFile(path))(t)
	if !bytes.Contains(file, victim[:64]) {
		t.Fatal("the chunk's bytes are not in the file")
	}
	// Pages that were split keep a copy in what is free of them.
	file = bytes.ReplaceAll(file, victim[:64], make([]byte, 64))
	ok(t, os.WriteFile(path, file, 0o644))
	b := must(OpenReadOnly(t.Context(), path))(t)
	defer b.Close()
	n := 0
	var damage error
	for c, err := range b.Chunks(t.Context(), 1, 0) {
		if damage = err; err == nil && c.No == uint64(n) {
			n++
		}
	}
	if !errors.Is(damage, ErrCorrupt) || !strings.Contains(damage.Error(), "task 1") || !strings.Contains(damage.Error(), "chunk 1") || n != 1 {
		t.Errorf("%d chunks, then %v", n, damage)
	}
	if !slices.EqualFunc(payloads(t, b, 2, 0), want[1], bytes.Equal) {
		t.Error("the other task reads otherwise")
	}
	if got := payloads(t, b, 1, 2); !slices.EqualFunc(got, want[0][2:], bytes.Equal) {
		t.Error("the chunks behind the damage read otherwise")
	}
	if page := must(b.List(t.Context(), ListQuery{}))(t); len(page.Tasks) != 2 {
		t.Errorf("%d tasks are listed", len(page.Tasks))
	}
	if f := check(t, b); len(f) == 0 || f[0].Kind != BadChunk || f[0].Task != 1 || f[0].Chunk != 1 {
		t.Errorf("the check found %+v", f)
	}
}

// chunkData is the data of a chunk's first column.
func chunkData(d *DB, t *testing.T, id TaskID, no uint64) (b []byte, err error) {
	return b, d.reader.QueryRowContext(t.Context(), `SELECT data FROM chunk_column WHERE task_id=? AND chunk_no=? ORDER BY col LIMIT 1`, int64(id), int64(no)).Scan(&b)
}

// A file of somebody else's can have tables with any names. They are names, and no
// statements: not where it is read, not where it is mended.
func TestNamesOfAForeignFileAreNoStatements(t *testing.T) {
	const inject = `x"; DELETE FROM task; DELETE FROM marker; --`
	for _, name := range []string{inject, `x; DELETE FROM task; --`, `two words`, `'`} {
		t.Run(name, func(t *testing.T) {
			d, to := open(t), open(t)
			id := whole(t, d, 1)
			harm(t, d, `CREATE TABLE `+quotedName(name)+`(task_id INTEGER REFERENCES task ON DELETE CASCADE, v)`)
			harm(t, d, `INSERT INTO `+quotedName(name)+` VALUES(77,'of no task')`)

			found := check(t, d)
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == Dangling && f.refers.table == name }) {
				t.Errorf("the rows of no task were not found: %+v", found)
			}
			r := must(d.Repair(t.Context(), found))(t)
			if len(r.Left) > 0 {
				t.Errorf("left: %+v", r.Left)
			}
			var n int
			ok(t, d.reader.QueryRowContext(t.Context(), `SELECT count(*) FROM `+quotedName(name)).Scan(&n))
			if n != 0 {
				t.Errorf("%d rows are still there", n)
			}
			if _, err := d.CopyTask(t.Context(), to, id, CopyOptions{}); err == nil || !strings.Contains(err.Error(), "has no table") {
				t.Errorf("a table that the other has not: %v", err)
			}
			if must(d.Task(t.Context(), id))(t).State != Complete {
				t.Error("the task is no more what it was")
			}
		})
	}
}
