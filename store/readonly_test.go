//go:build linux

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// another runs the test program as another program, by user and group id.
func another(t *testing.T, binary string, id uint32, words ...any) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), binary)
	c.Env = append(os.Environ(), programEnv+"="+strings.TrimSpace(fmt.Sprintln(words...)), "TMPDIR="+filepath.Dir(binary))
	if id != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	}
	return c
}

// readOnly mounts a folder read-only over itself for the rest of the test.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("mount", "--bind", "-o", "ro", dir, dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a folder read-only here: %s", bytes.TrimSpace(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
}

// stockSays asks the stock sqlite3 program.
func stockSays(t *testing.T, path, query string) string {
	t.Helper()
	name, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("the program sqlite3 is not installed")
	}
	out, err := exec.Command(name, path, query).CombinedOutput()
	if err != nil {
		t.Errorf("sqlite3 %s: %v: %s", filepath.Base(path), err, out)
	}
	return strings.TrimSpace(string(out))
}

func begun(t *testing.T, path string, n int) {
	t.Helper()
	d := must(Open(t.Context(), path))(t)
	for range n {
		must(d.BeginTask(t.Context(), newTask("a", "b")))(t)
	}
	ok(t, d.Close())
}

// look reads how many tasks there are, by OpenReadOnly.
func look(t *testing.T, path string) int {
	t.Helper()
	d, err := OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Errorf("open: %v", err)
		return -1
	}
	defer func() { ok(t, d.Close()) }()
	list, err := d.TaskIDs(t.Context())
	if err != nil {
		t.Errorf("read: %v", err)
	}
	return len(list)
}

// files are what is in a folder, with their contents.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, e := range must(os.ReadDir(dir))(t) {
		out[e.Name()] = string(must(os.ReadFile(filepath.Join(dir, e.Name())))(t))
	}
	return out
}

func unchanged(t *testing.T, when string, before, after map[string]string) {
	t.Helper()
	for name := range after {
		if _, was := before[name]; !was {
			t.Errorf("%s: %s was made", when, name)
		}
	}
	for name, content := range before {
		if now, is := after[name]; !is || now != content {
			t.Errorf("%s: %s was changed or is gone (%v)", when, name, is)
		}
	}
}

// What is left when the last program has closed a database is one file that reads
// anywhere, and reading changes nothing of it.
func TestAtRestReadsAnywhere(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	path, backup, trip := filepath.Join(dir, "power.db"), filepath.Join(dir, "backup.db"), filepath.Join(dir, "trip.db")
	d := must(Open(ctx, path))(t)
	id := must(d.BeginTask(ctx, newTask("a", "b")))(t)
	ok(t, d.Finish(ctx, id, Outcome{State: Complete}))
	ok(t, d.Backup(ctx, backup, nil))
	must(d.Detach(ctx, trip, []TaskID{id}, nil))(t)
	ok(t, d.Close())
	all := []string{path, backup, trip}
	before := filesOf(t, dir)
	if len(before) != len(all) {
		t.Errorf("beside the files lie others: %d", len(before))
	}
	for _, p := range all {
		if n := look(t, p); n != 1 {
			t.Errorf("%s: %d tasks", filepath.Base(p), n)
		}
		r := must(OpenReadOnly(ctx, p))(t)
		must(r.Check(ctx, CheckOptions{}))(t)
		ok(t, r.Close())
	}
	unchanged(t, "read", before, filesOf(t, dir))
	readOnly(t, dir)
	for _, p := range all {
		if n := look(t, p); n != 1 {
			t.Errorf("%s on a medium that cannot be written: %d tasks", filepath.Base(p), n)
		}
		if got := stockSays(t, p, "SELECT count(*) FROM task; SELECT count(*) FROM data; PRAGMA journal_mode"); got != "1\n0\ndelete" {
			t.Errorf("%s in sqlite3: %q", filepath.Base(p), got)
		}
		r := must(OpenReadOnly(ctx, p))(t)
		if f := must(r.Check(ctx, CheckOptions{}))(t).Findings; len(f) > 0 {
			t.Errorf("%s: %+v", filepath.Base(p), f)
		}
		ok(t, r.Backup(ctx, filepath.Join(t.TempDir(), "copy.db"), nil))
		ok(t, r.Close())
	}
}

// The last to close leaves no log, whoever that is: a second writer, or a reader that came
// while another wrote.
func TestLastToCloseFoldsTheLog(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	path := filepath.Join(dir, "power.db")
	for name, second := range map[string]func(context.Context, string) (*DB, error){"writer": Open, "reader": OpenReadOnly} {
		a := must(Open(ctx, path))(t)
		b := must(second(ctx, path))(t)
		must(b.TaskIDs(ctx))(t)
		id := must(a.BeginTask(ctx, newTask("a", "b")))(t)
		ok(t, a.Close())
		if name == "writer" {
			id = must(b.BeginTask(ctx, newTask("a", "b")))(t)
		}
		if list := must(b.TaskIDs(ctx))(t); !slices.Contains(list, id) {
			t.Errorf("%s: task %d is not in %v", name, id, list)
		}
		ok(t, b.Close())
		if got := filesOf(t, dir); len(got) != 1 {
			t.Errorf("%s: left beside the file: %d", name, len(got)-1)
		}
		if got := stockSays(t, path, "PRAGMA journal_mode"); got != "delete" {
			t.Errorf("%s: left in journal mode %s", name, got)
		}
	}
}

// Programs that open, write and close all the time lose nothing of each other's, and
// readers see no error.
func TestManyProgramsOpenAndClose(t *testing.T) {
	noRaces(t)
	path := filepath.Join(t.TempDir(), "power.db")
	begun(t, path, 1)
	binary := must(os.Executable())(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if out, err := another(t, binary, 0, "add", path, 8).CombinedOutput(); err != nil {
				t.Errorf("a writer: %v: %s", err, out)
			}
		})
	}
	all.Go(func() {
		last := 0
		for range 8 {
			out, err := another(t, binary, 0, "look", path).CombinedOutput()
			n, _ := strconv.Atoi(string(out))
			if err != nil || n < last {
				t.Errorf("a reader: %v: %s after %d", err, out, last)
			}
			last = n
		}
	})
	all.Wait()
	if n := look(t, path); n != 25 {
		t.Errorf("%d tasks of 25", n)
	}
	if got := stockSays(t, path, "PRAGMA integrity_check"); got != "ok" {
		t.Error(got)
	}
}

// A crash, or a copy of a folder in use, leaves a log that belongs to the file: it is read
// with it where nothing can be written, and stays.
func TestLogOnAReadOnlyMedium(t *testing.T) {
	ctx := t.Context()
	for _, with := range [][]string{{"-wal"}, {"-wal", "-shm"}, {"-journal"}, nil} {
		t.Run(fmt.Sprint(with), func(t *testing.T) {
			from, dir := t.TempDir(), t.TempDir()
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			d := must(Open(ctx, filepath.Join(from, "power.db")))(t)
			must(d.BeginTask(ctx, newTask("a", "b")))(t)
			must(d.writer.Exec("PRAGMA wal_checkpoint(TRUNCATE)"))(t)
			want := 1
			if slices.Contains(with, "-wal") {
				must(d.BeginTask(ctx, newTask("in the log", "b")))(t)
				want = 2
			}
			if slices.Contains(with, "-journal") { // a change that did not end
				must(d.writer.Exec("PRAGMA journal_mode=DELETE"))(t)
				must(d.writer.Exec("PRAGMA cache_size=1; PRAGMA cache_spill=1"))(t)
				tx := must(d.writer.Begin())(t)
				defer tx.Rollback()
				must(tx.Exec("DELETE FROM task"))(t)
				must(tx.Exec("CREATE TABLE filler(x); INSERT INTO filler SELECT randomblob(20000) FROM _seq LIMIT 500"))(t)
			}
			for _, suffix := range append([]string{""}, with...) {
				ok(t, os.WriteFile(filepath.Join(dir, "power.db"+suffix), must(os.ReadFile(filepath.Join(from, "power.db"+suffix)))(t), 0o644))
			}
			before := filesOf(t, dir)
			readOnly(t, dir)
			path := filepath.Join(dir, "power.db")
			if n := look(t, path); n != want {
				t.Errorf("%d tasks, want %d", n, want)
			}
			r := must(OpenReadOnly(ctx, path))(t)
			if r.Path() != path {
				t.Errorf("it is called %s", r.Path())
			}
			ok(t, r.Backup(ctx, filepath.Join(temporary, "copy.db"), nil))
			ok(t, r.Close())
			if n := look(t, filepath.Join(temporary, "copy.db")); n != want {
				t.Errorf("%d tasks in a backup, want %d", n, want)
			}
			unchanged(t, "read", before, filesOf(t, dir))
			if left := filesOf(t, temporary); len(left) != 1 {
				t.Errorf("left behind: %d files", len(left)-1)
			}
			t.Setenv("TMPDIR", "/nowhere")
			if d, err := OpenReadOnly(ctx, path); err == nil {
				ok(t, d.Close()) // no copy was needed
			} else if !errors.Is(err, ErrCannotOpen) || !strings.Contains(err.Error(), "copy power.db and what begins with power.db-") {
				t.Errorf("without room for a copy: %v", err)
			}
		})
	}
}

// Who sees a folder read-only reads what another program is just writing there.
func TestReadOnlyViewOfAFolderInUse(t *testing.T) {
	ctx := t.Context()
	dir, view := t.TempDir(), t.TempDir()
	if out, err := exec.Command("mount", "--bind", "-o", "ro", dir, view).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a folder read-only here: %s", bytes.TrimSpace(out))
	}
	t.Cleanup(func() { _ = exec.Command("umount", view).Run() })
	binary := must(os.Executable())(t)
	d := must(Open(ctx, filepath.Join(dir, "power.db")))(t)
	seen := func(want int) {
		t.Helper()
		out, err := another(t, binary, 0, "look", filepath.Join(view, "power.db")).CombinedOutput()
		if err != nil || string(out) != fmt.Sprint(want) {
			t.Errorf("%v %s, want %d", err, out, want)
		}
	}
	for i := range 3 {
		must(d.BeginTask(ctx, newTask("a", "b")))(t)
		seen(i + 1)
	}
	ok(t, d.Close())
	seen(3)
}

// Somebody who may read a file, and not write it nor its folder, or the folder and not the
// file, reads it while its owner writes and after, and is never in the owner's way.
func TestReadersOfAnothersFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	ctx := t.Context()
	const nobody = 65534
	base := must(os.MkdirTemp("", "wattmark-users"))(t)
	t.Cleanup(func() { ok(t, os.RemoveAll(base)) })
	ok(t, os.Chmod(base, 0o777|os.ModeSticky))
	binary := filepath.Join(base, "program")
	ok(t, os.WriteFile(binary, must(os.ReadFile(must(os.Executable())(t)))(t), 0o755))
	for _, mode := range []os.FileMode{0o755, 0o777} {
		dir := filepath.Join(base, fmt.Sprintf("%o", mode))
		ok(t, os.Mkdir(dir, mode))
		ok(t, os.Chmod(dir, mode))
		path := filepath.Join(dir, "power.db")
		seen := func(when string, want int) {
			t.Helper()
			out, err := another(t, binary, nobody, "look", path).CombinedOutput()
			if err != nil || string(out) != fmt.Sprint(want) {
				t.Errorf("folder %o, %s: %v %s, want %d", mode, when, err, out, want)
			}
			for _, e := range must(os.ReadDir(dir))(t) {
				st := must(e.Info())(t).Sys().(*syscall.Stat_t)
				if st.Uid != 0 {
					t.Errorf("folder %o, %s: the reader made %s", mode, when, e.Name())
				}
			}
		}
		d := must(Open(ctx, path))(t)
		must(d.BeginTask(ctx, newTask("a", "b")))(t)
		seen("while it is written", 1)
		must(d.BeginTask(ctx, newTask("a", "b")))(t)
		seen("and again", 2)
		ok(t, d.Close())
		seen("after it", 2)
		// As an earlier version or another program leaves it.
		(&held{abs: path}).setJournal("WAL")
		if got := filesOf(t, dir); len(got) != 1 {
			t.Fatalf("%d files", len(got))
		}
		seen("with a mark of a log", 2)
		begun(t, path, 1)
		seen("at last", 3)
	}
}

// A file that is read without locks, and is written meanwhile, ends the query in an error:
// what was read may be of two moments.
func TestWrittenWhileReadWithoutLocks(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "power.db")
	begun(t, path, 3)
	(&held{abs: path}).setJournal("WAL")
	// As by a reader who may not write.
	r := &DB{path: path}
	must(r.openFileToRead(ctx, path, tries))(t)
	defer r.Close()
	if r.still == nil {
		t.Fatal("it is read with locks")
	}
	must(r.TaskIDs(ctx))(t)
	rows := must(r.SQL().QueryContext(ctx, "SELECT task_id FROM task"))(t)
	defer rows.Close()
	if !rows.Next() {
		t.Fatal("no rows")
	}
	if out, err := another(t, must(os.Executable())(t), 0, "add", path, 1).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for rows.Next() {
	}
	if err := wrap("", rows.Err()); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("the query that was under way: %v", err)
	}
	if _, err := r.TaskIDs(ctx); !errors.Is(err, ErrBusy) {
		t.Errorf("the next: %v", err)
	}
	if n := look(t, path); n != 4 {
		t.Errorf("asked again: %d tasks of 4", n)
	}
}

// Two programs that close a file at once leave it with the mark of a log: who may write it reads it with locks all the
// same, and nothing stays beside it.
func TestMarkOfALogIsPutRight(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "power.db")
	begun(t, path, 3)
	(&held{abs: path}).setJournal("WAL")
	r := must(OpenReadOnly(ctx, path))(t)
	if out, err := another(t, must(os.Executable())(t), 0, "add", path, 1).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if ids := must(r.TaskIDs(ctx))(t); len(ids) != 4 {
		t.Errorf("%d tasks of 4", len(ids))
	}
	ok(t, r.Close())
	if got := filesOf(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("%d files", len(got))
	}
}

// A writer comes while somebody checks or copies a large file that had no log: it does not
// wait for the end of that.
func TestWriterBesideALongReader(t *testing.T) {
	defer func(was int64) { longRead = was }(longRead)
	longRead = 0
	ctx := t.Context()
	dir := t.TempDir()
	path := filepath.Join(dir, "power.db")
	begun(t, path, 1)
	r := must(OpenReadOnly(ctx, path))(t)
	r.beside()
	tx := must(r.SQL().BeginTx(ctx, nil))(t)
	var n int
	ok(t, tx.QueryRow("SELECT count(*) FROM task").Scan(&n))
	began := time.Now()
	if out, err := another(t, must(os.Executable())(t), 0, "add", path, 1).CombinedOutput(); err != nil {
		t.Errorf("after %v: %v: %s", time.Since(began), err, out)
	}
	ok(t, tx.QueryRow("SELECT count(*) FROM task").Scan(&n))
	if n != 1 {
		t.Errorf("the reader's moment has %d tasks", n)
	}
	ok(t, tx.Rollback())
	ok(t, r.Close())
	if n := look(t, path); n != 2 {
		t.Errorf("%d tasks of 2", n)
	}
	if got := filesOf(t, dir); len(got) != 1 {
		t.Errorf("left beside the file: %d", len(got)-1)
	}
}

// Looking into a file does not take the locks away that this program has of it.
func TestLooksKeepLocks(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "power.db")
	d := must(Open(ctx, path))(t)
	defer d.Close()
	must(d.BeginTask(ctx, newTask("a", "b")))(t)
	look(t, path) // opens it once more, and closes that
	// Another program that takes itself for the last one would delete the log.
	if out, err := another(t, must(os.Executable())(t), 0, "add", path, 1).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(path + "-wal"); err != nil {
		t.Fatalf("the log under an open database: %v", err)
	}
	must(d.BeginTask(ctx, newTask("a", "b")))(t)
	ok(t, d.Close())
	if n := look(t, path); n != 3 {
		t.Errorf("%d tasks of 3", n)
	}
}

// descriptorsOf counts the descriptors of this process that are of a database.
func descriptorsOf(t *testing.T, path string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	ok(t, err)
	for _, f := range fds {
		if at, err := os.Readlink(filepath.Join("/proc/self/fd", f.Name())); err == nil && strings.HasPrefix(at, path) {
			n++
		}
	}
	return n
}

// However many ask at once, no more files are open than were from the start.
func TestOpenAllOpensWhatReadersWillNeed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "power.db")
	d := must(Open(t.Context(), path))(t)
	defer d.Close()
	few := descriptorsOf(t, path)
	ok(t, d.OpenAll(t.Context()))
	all := descriptorsOf(t, path)
	if all <= few {
		t.Fatalf("%d files before, %d after", few, all)
	}
	connections := d.reader.Stats().MaxOpenConnections
	var ready, done sync.WaitGroup
	ready.Add(connections)
	for range connections {
		done.Go(func() {
			c, err := d.reader.Conn(t.Context())
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			ready.Wait() // all of them at once
			var tasks int
			if err := c.QueryRowContext(t.Context(), "SELECT count(*) FROM task").Scan(&tasks); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if n := descriptorsOf(t, path); n != all {
		t.Errorf("%d files with readers, %d before", n, all)
	}
}
