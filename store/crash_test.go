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
	"strings"
	"testing"

	"wattmark/measure"
	"wattmark/measure/chunk"
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
