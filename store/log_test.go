package store

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wattmark/measure/chunk"
)

// fileAlone copies a database's file as it is now, without its log.
func fileAlone(t *testing.T, d *DB) string {
	t.Helper()
	b := must(os.ReadFile(d.Path()))(t)
	to := filepath.Join(t.TempDir(), "power.db")
	ok(t, os.WriteFile(to, b, 0o600))
	return to
}

// sameSamples compares a task's outcome and chunks.
func sameSamples(t *testing.T, a, b *DB, id TaskID) {
	t.Helper()
	x, y := must(a.Task(t.Context(), id))(t), must(b.Task(t.Context(), id))(t)
	if x.State != y.State || x.Result.Total != y.Result.Total || x.Chunks != y.Chunks || len(payloads(t, b, id, 0)) != int(x.Chunks) {
		t.Errorf("task %d: state %d, %v, %d chunks; want %d, %v, %d", id, y.State, y.Result.Total, y.Chunks, x.State, x.Result.Total, x.Chunks)
	}
}

// A task that has ended is in the file, whatever becomes of the log.
func TestEndedTasksDoNotDependOnTheLog(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := captured(t, d, "gemm", "ada", "c-1", 1)
	alone := must(Open(t.Context(), fileAlone(t, d)))(t)
	sameSamples(t, d, alone, id)
	ok(t, alone.Close())
	// While somebody reads, the log stays, and nobody waits long for that.
	rows := must(d.reader.QueryContext(t.Context(), "SELECT task_id FROM task"))(t)
	rows.Next()
	second := captured(t, d, "gemm", "ada", "c-2", 2)
	if st := must(os.Stat(d.Path() + "-wal"))(t); st.Size() == 0 {
		t.Error("the log was emptied under a reader")
	}
	ok(t, rows.Close())
	captured(t, d, "gemm", "ada", "c-3", 3)
	alone = must(Open(t.Context(), fileAlone(t, d)))(t)
	defer alone.Close()
	sameSamples(t, d, alone, second)
	var patience int
	if ok(t, d.writer.QueryRow("PRAGMA busy_timeout").Scan(&patience)); patience != 10000 {
		t.Errorf("the writer waits %d ms for others", patience)
	}
}

// killed copies a database as a program that was killed leaves it, with a log of several
// transactions.
func killed(t *testing.T) (path string, log []byte) {
	t.Helper()
	d := open(t)
	captured(t, d, "gemm", "ada", "c-1", 1)
	id := begin(t, d, threeRails(evenly))
	for _, c := range encode(t, evenly, ripple(rand.New(rand.NewPCG(4, 3)), 6, 3000, 4), 700, 0) {
		ok(t, d.AppendChunks(t.Context(), id, []*chunk.Chunk{c}, nil))
	}
	path = filepath.Join(t.TempDir(), "power.db")
	for _, end := range []string{"", "-wal", "-shm"} {
		ok(t, os.WriteFile(path+end, must(os.ReadFile(d.Path()+end))(t), 0o600))
	}
	return path, must(os.ReadFile(path + "-wal"))(t)
}

// A log that was damaged while no program had it open is told of at once, and by a check
// for as long as its copy is there; one that is whole is not.
func TestADamagedLogIsTold(t *testing.T) {
	noRaces(t)
	const frame = 24 + 16384
	for name, tc := range map[string]struct {
		spoil func(path string, log []byte) []byte
		told  string
	}{
		"whole":               {func(_ string, b []byte) []byte { return b }, ""},
		"whole, without -shm": {func(path string, b []byte) []byte { ok(t, os.Remove(path+"-shm")); return b }, ""},
		"a bit of a page":     {func(_ string, b []byte) []byte { b[32+24+999] ^= 1; return b }, "0 of"},
		"a bit of a page, without -shm": {func(path string, b []byte) []byte {
			ok(t, os.Remove(path+"-shm"))
			b[32+24+999] ^= 1
			return b
		}, "frame 1 is damaged"},
		"a salt":            {func(_ string, b []byte) []byte { b[32+frame+8] ^= 1; return b }, "1 of"},
		"the header":        {func(_ string, b []byte) []byte { b[13] ^= 1; return b }, "its header is damaged"},
		"cut":               {func(_ string, b []byte) []byte { return b[:32+3*frame] }, "3 of"},
		"cut to its header": {func(_ string, b []byte) []byte { return b[:32] }, "0 of"},
		"torn by a power cut": {func(path string, b []byte) []byte { // a transaction that was not synced
			ok(t, os.Remove(path+"-shm"))
			b[len(b)-9] ^= 1
			return b
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path, log := killed(t)
			ok(t, os.WriteFile(path+"-wal", tc.spoil(path, log), 0o600))
			d := must(Open(t.Context(), path))(t)
			if got := d.LogLoss(); (got == "") != (tc.told == "") || !strings.Contains(got, tc.told) {
				t.Errorf("told %q, want %q", got, tc.told)
			}
			ok(t, d.Close())
			r := must(OpenReadOnly(t.Context(), path))(t) // the log is gone now
			defer r.Close()
			found := slices.DeleteFunc(check(t, r), func(f Finding) bool { return f.Kind != BadLog })
			if (len(found) == 1) != (tc.told != "") {
				t.Errorf("check says %+v", found)
			}
			sameSamples(t, r, r, 1)
		})
	}
}
