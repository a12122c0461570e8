package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// childEnv names the database that a copy of the test program fills until it
// is killed.
const childEnv = "WATTMARK_STORE_CRASH_CHILD"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(programEnv)); len(words) > 0 {
		program(words)
	}
	if path := os.Getenv(childEnv); path != "" {
		work := fillUntilKilled
		if strings.HasSuffix(path, packSuffix) {
			work = packUntilKilled
		}
		fmt.Println("ended:", work(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// crashChunk is chunk no of the crash tests, the same in every process. Two
// chunks in three follow each other; before the third a scan is lost.
func crashChunk(no uint64) (*chunk.Chunk, []measure.Event, error) {
	const scans = 5000
	rng := rand.New(rand.NewPCG(no, 5))
	first := no*scans + no/3
	b := measure.Block{FirstScan: first, FirstTick: int64(first) * 50}
	for range 6 {
		b.Counts = append(b.Counts, randomCounts(rng, scans))
	}
	e, err := chunk.NewEncoder(evenly, 6, scans)
	if err != nil {
		return nil, nil, err
	}
	if _, err := e.Append(&b); err != nil {
		return nil, nil, err
	}
	var events []measure.Event
	if no > 0 && no%3 == 0 {
		events = append(events, measure.Event{Kind: measure.EventGap, FirstScan: first - 1, Scans: 1, Exact: true, Channel: -1})
	}
	return e.Flush(no), events, nil
}

func fillUntilKilled(path string) error {
	ctx := context.Background()
	d, err := Open(ctx, path)
	if err != nil {
		return err
	}
	for {
		no, _, err := d.NextChunk(ctx, 1)
		if err != nil {
			return err
		}
		c, events, err := crashChunk(no)
		if err != nil {
			return err
		}
		if err := d.AppendChunks(ctx, 1, []*chunk.Chunk{c}, events); err != nil {
			return err
		}
		fmt.Println("stored", no)
	}
}

// TestKilledWhileStoring kills the writing program in the middle of its work,
// again and again. What it had acknowledged must be there, byte for byte, and
// what is there must be whole.
func TestKilledWhileStoring(t *testing.T) {
	path := filepath.Join(t.TempDir(), "power.db")
	d := must(Open(t.Context(), path))(t)
	begin(t, d, threeRails(evenly))
	ok(t, d.Close())
	rng := rand.New(rand.NewPCG(6, 6))
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		acknowledged := runAndKill(t, path, 3+rng.IntN(25))
		d := must(Open(t.Context(), path))(t)
		n, gaps := uint64(0), 0
		for c, err := range d.Chunks(t.Context(), 1, 0) {
			ok(t, err)
			want, events, err := crashChunk(n)
			ok(t, err)
			if c.No != n || c.CRC != want.CRC {
				t.Fatalf("round %d: chunk %d is not what was stored", round, n)
			}
			gaps += len(events)
			n++
		}
		if n <= acknowledged {
			t.Fatalf("round %d: chunk %d was acknowledged, %d are there", round, acknowledged, n)
		}
		task := must(d.Task(t.Context(), 1))(t)
		if task.Chunks != n || task.Scans != 5000*n || len(task.Events) != gaps {
			t.Errorf("round %d: the task says %d chunks, %d scans, %d events; there are %d, %d, %d",
				round, task.Chunks, task.Scans, len(task.Events), n, 5000*n, gaps)
		}
		if f := check(t, d); len(f) > 0 {
			t.Fatalf("round %d: %+v", round, f)
		}
		ok(t, d.Close())
	}
}

// runAndKill runs the child until it has acknowledged a number of chunks, and
// kills it while it stores the next. It returns the last acknowledged number.
func runAndKill(t *testing.T, path string, acks int) (last uint64) {
	t.Helper()
	child := exec.Command(must(os.Executable())(t))
	child.Env = append(os.Environ(), childEnv+"="+path)
	out := must(child.StdoutPipe())(t)
	ok(t, child.Start())
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "stored %d", &last); err != nil {
			t.Errorf("the child says: %s", lines.Text())
			break
		}
		if n++; n == acks {
			ok(t, child.Process.Kill())
		}
		// What it still acknowledged before the signal arrived counts as well.
	}
	child.Wait() // it was killed
	return last
}

// fillDisk stores chunks until there is no room, and checks that the last call
// failed cleanly.
func fillDisk(t *testing.T, d *DB) (stored uint64) {
	t.Helper()
	for no := uint64(0); no < 1000; no++ {
		c, events, err := crashChunk(no)
		ok(t, err)
		err = d.AppendChunks(t.Context(), 1, []*chunk.Chunk{c}, events)
		if errors.Is(err, ErrFull) {
			if !strings.Contains(err.Error(), "free some space") {
				t.Errorf("the error does not say what to do: %v", err)
			}
			return no
		}
		ok(t, err)
	}
	t.Fatal("the disk was never full")
	return 0
}

// checkAfterFull verifies that exactly the acknowledged chunks are there.
func checkAfterFull(t *testing.T, d *DB, stored uint64) {
	t.Helper()
	if n := uint64(len(payloads(t, d, 1, 0))); n != stored || stored == 0 {
		t.Errorf("%d chunks are there, %d were acknowledged", n, stored)
	}
	task := must(d.Task(t.Context(), 1))(t)
	if task.Chunks != stored {
		t.Errorf("the task says %d chunks of %d", task.Chunks, stored)
	}
	if f := check(t, d); len(f) > 0 {
		t.Errorf("%+v", f)
	}
}

func TestDatabaseFull(t *testing.T) {
	d := open(t)
	begin(t, d, threeRails(evenly))
	_, err := d.writer.Exec("PRAGMA max_page_count=300")
	ok(t, err)
	stored := fillDisk(t, d)
	checkAfterFull(t, d, stored)
	_, err = d.writer.Exec("PRAGMA max_page_count=100000")
	ok(t, err)
	c, events, err := crashChunk(stored)
	ok(t, err)
	ok(t, d.AppendChunks(t.Context(), 1, []*chunk.Chunk{c}, events))
	checkAfterFull(t, d, stored+1)
}

func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small disk here; TestDatabaseFull stands in: %s", strings.TrimSpace(string(out)))
	}
	defer exec.Command("umount", dir).Run() // nothing to be done about it
	d := must(Open(t.Context(), filepath.Join(dir, "power.db")))(t)
	begin(t, d, threeRails(evenly))
	stored := fillDisk(t, d)
	checkAfterFull(t, d, stored)
	ok(t, exec.Command("mount", "-o", "remount,size=64m", dir).Run())
	c, events, err := crashChunk(stored)
	ok(t, err)
	ok(t, d.AppendChunks(t.Context(), 1, []*chunk.Chunk{c}, events))
	checkAfterFull(t, d, stored+1)
	ok(t, d.Close())
}

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
