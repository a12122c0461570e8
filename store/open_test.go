package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/wattmark/wattmark/store/internal/data"
)

// foreign makes a database with the given statements, without our marks.
func foreign(t *testing.T, path, statements string) {
	t.Helper()
	db := must(sql.Open("sqlite", path))(t)
	_, err := db.Exec(statements)
	ok(t, err)
	ok(t, db.Close())
}

// A power cut while the file is made can leave its first page without the first sector,
// beside the journal that takes the page back.
func TestOpenAfterACutFirstWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "power.db")
	page := make([]byte, 16384)
	copy(page[8192:], "the second half")
	ok(t, os.WriteFile(path, page, 0o644))
	if _, err := Open(t.Context(), path); !errors.Is(err, ErrNotDatabase) {
		t.Fatalf("without a journal: %v", err)
	}
	journal := make([]byte, 512)
	copy(journal, "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7")
	copy(journal[20:], "\x00\x00\x02\x00\x00\x00\x40\x00") // sectors of 512 bytes, pages of 16384
	ok(t, os.WriteFile(path+"-journal", journal, 0o644))
	db := must(Open(t.Context(), path))(t)
	ok(t, db.Close())
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	ok(t, os.WriteFile(path("text"), []byte("this is a letter, not a database, and it is long enough"), 0o644))
	ok(t, os.WriteFile(path("short"), []byte("hi"), 0o644))
	foreign(t, path("app"), "CREATE TABLE a(b); PRAGMA application_id=77")
	foreign(t, path("nobody"), "CREATE TABLE task(a)")
	foreign(t, path("export"), "CREATE TABLE data(a); CREATE TABLE unit(a); CREATE TABLE wattmark(a)")
	foreign(t, path("version"), "PRAGMA user_version=1")
	foreign(t, path("newer"), "PRAGMA application_id=1465994603; PRAGMA user_version=99; CREATE TABLE a(b)")
	ok(t, os.Mkdir(path("folder"), 0o755))
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"a text":            {path("text"), ErrNotDatabase},
		"two bytes":         {path("short"), ErrNotDatabase},
		"a folder":          {path("folder"), ErrNotDatabase},
		"another program's": {path("app"), ErrForeign},
		"nobody's":          {path("nobody"), ErrForeign},
		"an export":         {path("export"), ErrForeign},
		"empty but marked":  {path("version"), ErrForeign},
		"a newer one":       {path("newer"), ErrNewer},
		"no folder":         {path("none/power.db"), ErrCannotOpen},
		"no name":           {"", ErrCannotOpen},
	} {
		before, _ := os.ReadFile(c.path)
		if _, err := Open(t.Context(), c.path); !errors.Is(err, c.want) || strings.Contains(err.Error(), "db detach") != (name == "an export") {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := os.ReadFile(c.path); !slices.Equal(before, after) {
			t.Errorf("%s: the file was changed", name)
		}
		if _, err := OpenReadOnly(t.Context(), c.path); !errors.Is(err, c.want) {
			t.Errorf("%s, to read: %v", name, err)
		}
	}
	if _, err := OpenReadOnly(t.Context(), path("new")); !errors.Is(err, ErrCannotOpen) {
		t.Errorf("to read what is not there: %v", err)
	}
	if _, err := os.Stat(path("new")); err == nil {
		t.Error("opening to read made a file")
	}
}

func TestOpenMakesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ünusual name? #1 %41.db")
	d := must(Open(t.Context(), path))(t)
	for pragma, want := range map[string]string{
		"page_size": "16384", "journal_mode": "wal", "application_id": "1465994603", "user_version": strconv.Itoa(schemaVersion), "synchronous": "3", "foreign_keys": "1",
	} {
		var got string
		ok(t, d.writer.QueryRow("PRAGMA "+pragma).Scan(&got))
		if got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
	id := begin(t, d, threeRails(evenly))
	ok(t, d.Close())
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	d = must(Open(t.Context(), path))(t)
	must(d.Task(t.Context(), id))(t)
	ok(t, d.Close())
}

// TestOpenTogether lets several handles make the same file at once.
func TestOpenTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "power.db")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			d, err := Open(context.WithoutCancel(t.Context()), path)
			if err != nil {
				t.Error(err)
				return
			}
			defer d.Close()
			if _, err := d.BeginTask(t.Context(), newTask("a", "b")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	d := must(Open(t.Context(), path))(t)
	defer d.Close()
	if n := len(must(d.Tasks(t.Context(), Query{}))(t)); n != 4 {
		t.Errorf("%d tasks of 4", n)
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "power.db")
	d := must(Open(t.Context(), path))(t)
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 500, 4)
	ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, b, 300, 0), nil))
	look := func(when string) {
		t.Helper()
		r := must(OpenReadOnly(t.Context(), path))(t)
		defer r.Close()
		var n int
		ok(t, r.SQL().QueryRow("SELECT count(power) FROM data").Scan(&n))
		if n != 500 || len(payloads(t, r, id, 0)) != 2 {
			t.Errorf("%s: %d scans", when, n)
		}
		if _, err := r.BeginTask(t.Context(), newTask("a", "b")); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: begin a task: %v", when, err)
		}
	}
	look("beside a writer")
	ok(t, d.Close())
	look("after it")
	// On a medium that cannot be written: a bind mount that is read-only.
	if out, err := exec.Command("mount", "--bind", "-o", "ro", dir, dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a folder read-only here, so that case is not tested: %s", strings.TrimSpace(string(out)))
	}
	defer exec.Command("umount", dir).Run() // nothing to be done about it
	look("on a read-only medium")
	if _, err := Open(t.Context(), path); !errors.Is(err, ErrReadOnly) && !errors.Is(err, ErrCannotOpen) {
		t.Errorf("open for writing on a read-only medium: %v", err)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "new.db")); !errors.Is(err, ErrReadOnly) && !errors.Is(err, ErrCannotOpen) {
		t.Errorf("make a database on a read-only medium: %v", err)
	}
}

func TestStockProgramFindsTheFileSound(t *testing.T) {
	program, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("the program sqlite3 is not installed: its check of the file is not done")
	}
	d := open(t)
	for seed := range uint64(3) {
		randomTask(t, d, rand.New(rand.NewPCG(seed, 13)), false)
	}
	ok(t, d.DeleteTask(t.Context(), 2))
	out, err := exec.Command(program, d.Path(), "PRAGMA integrity_check; PRAGMA foreign_key_check; SELECT count(*)>0 FROM data;").CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || !slices.Equal(got, []string{"ok", "1"}) {
		t.Errorf("%v %q", err, out)
	}
}

// A database that is made in a folder of a group is the group's, as the umask says, with
// its log.
func TestOpenKeepsToTheUmask(t *testing.T) {
	if path := os.Getenv("STORE_UMASK"); path != "" {
		db := must(Open(t.Context(), path))(t)
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if mode := must(os.Stat(path + suffix))(t).Mode().Perm(); mode != 0o660 {
				t.Errorf("power.db%s: %v", suffix, mode)
			}
		}
		ok(t, db.Close())
		return
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", `umask 007; exec "$0" -test.run '^TestOpenKeepsToTheUmask$'`, os.Args[0])
	c.Env = append(os.Environ(), "STORE_UMASK="+filepath.Join(t.TempDir(), "power.db"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A database that is made in a folder that a group shares (setgid) is the group's, whatever the umask is.
func TestOpenForTheGroupOfTheFolder(t *testing.T) {
	for mode, shared := range map[os.FileMode]bool{os.ModeSetgid | 0o770: true, os.ModeSetgid | 0o755: false, 0o775: false} {
		dir := t.TempDir()
		ok(t, os.Chmod(dir, mode))
		usual := filepath.Join(dir, "usual")
		ok(t, os.WriteFile(usual, nil, 0o666))
		want := must(os.Stat(usual))(t).Mode().Perm() // as the umask says
		if shared {
			want = 0o660
		}
		path := filepath.Join(dir, "power.db")
		db := must(Open(t.Context(), path))(t)
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if got := must(os.Stat(path + suffix))(t).Mode().Perm(); got != want {
				t.Errorf("power.db%s in a folder of mode %v: %v", suffix, mode, got)
			}
		}
		ok(t, db.Close())
	}
}

// The error of a file that may only be read names the file, its owner and its mode.
func TestMayNotWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "power.db")
	ok(t, os.WriteFile(path, nil, 0o640))
	err := mayNotWrite(path)
	if who := must(user.Current())(t).Username; !errors.Is(err, ErrReadOnly) ||
		!strings.Contains(err.Error(), path+" belongs to "+who+" and has mode 0640") {
		t.Error(err)
	}
}

// lock takes the file's write lock as another program would.
func lock(t *testing.T, d *DB) (release func()) {
	t.Helper()
	other := sql.OpenDB(data.Connector(dsn(d.path, "rw", "_txlock=immediate")))
	tx := must(other.BeginTx(t.Context(), nil))(t)
	return func() {
		ok(t, tx.Rollback())
		ok(t, other.Close())
	}
}

func TestWriterWaitsForAnotherProgram(t *testing.T) {
	d := open(t)
	release := lock(t, d)
	done := make(chan error)
	go func() {
		_, err := d.BeginTask(t.Context(), newTask("a", "b"))
		done <- err
	}()
	must(d.Tasks(t.Context(), Query{}))(t) // readers do not wait
	release()
	ok(t, <-done)
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	d := open(t)
	release := lock(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.BeginTask(ctx, newTask("a", "b")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	release()
	must(d.BeginTask(t.Context(), newTask("a", "b")))(t)
}

func TestLockHeldTooLong(t *testing.T) {
	d := open(t)
	defer lock(t, d)()
	_, err := d.writer.Exec("PRAGMA busy_timeout=10")
	ok(t, err)
	if _, err := d.BeginTask(t.Context(), newTask("a", "b")); !errors.Is(err, ErrBusy) {
		t.Errorf("behind a lock that stays: %v", err)
	}
}

func TestLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "power.db")
	db, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	begin := func() error {
		_, err := db.BeginTask(t.Context(), NewTask{Name: "gemm", User: "ada", Launched: time.Unix(1e9, 0)})
		return err
	}
	for _, l := range []Limits{{}, {Bytes: 1 << 40}, {Free: 1}} {
		db.SetLimits(l)
		if err := begin(); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for want, l := range map[string]Limits{"its limit is 10 kB": {Bytes: 10_000}, "a task needs 1.0 EB": {Free: 1e18}} {
		db.SetLimits(l)
		if err := begin(); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	// What was begun goes on.
	if err := db.Finish(t.Context(), 1, Outcome{State: Incomplete, Reason: "x"}); err != nil {
		t.Error(err)
	}
}

// One that a later program wrote is refused by name of both versions, and not
// touched; neither is one whose upgrade fails.
func TestLaterVersionIsRefused(t *testing.T) {
	d := open(t)
	captured(t, d, "gemm", "ada", "c-1", 1)
	ok(t, d.Close())
	db := must(sql.Open("sqlite", d.Path()))(t)
	_, err := db.Exec(fmt.Sprintf("PRAGMA user_version=%d", schemaVersion+1))
	ok(t, err)
	ok(t, db.Close())
	before := must(os.ReadFile(d.Path()))(t)
	want := fmt.Sprintf("schema %d, this program knows %d: update the program", schemaVersion+1, schemaVersion)
	if _, err := Open(t.Context(), d.Path()); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	if !slices.Equal(before, must(os.ReadFile(d.Path()))(t)) {
		t.Error("it was changed")
	}
}

// keptFile unpacks the file that a command-line test keeps of an earlier version of the program, of
// schema 26: a database of that schema stays readable and writable.
func keptFile(t *testing.T) string {
	t.Helper()
	packed := must(os.ReadFile("../cmd/wattmark/testdata/golden/power.db.zst"))(t)
	path := filepath.Join(t.TempDir(), "power.db")
	r := must(zstd.NewReader(bytes.NewReader(packed)))(t)
	defer r.Close()
	ok(t, os.WriteFile(path, must(io.ReadAll(r))(t), 0o644))
	return path
}

func TestKeptFileStaysReadableAndWritable(t *testing.T) {
	noRaces(t)
	ctx, path := t.Context(), keptFile(t)
	d := must(OpenReadOnly(ctx, path))(t)
	ids := must(d.TaskIDs(ctx))(t)
	if len(ids) != 13 {
		t.Errorf("%d tasks", len(ids))
	}
	for _, id := range ids {
		must(d.Task(ctx, id))(t)
		for _, err := range d.Chunks(ctx, id, 0) {
			ok(t, err)
		}
	}
	ok(t, d.Close())
	d = must(Open(ctx, path))(t)
	defer d.Close()
	fresh := open(t)
	want, got := objects(fresh.reading(ctx)), objects(d.reading(ctx))
	for name, w := range want {
		w.sql = canonicalSQL(w.sql)
		g := got[name]
		g.sql = canonicalSQL(g.sql)
		if diff := cmp.Diff(w, g, cmp.AllowUnexported(object{})); diff != "" {
			t.Errorf("%s (-new +kept):\n%s", name, diff)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the kept file has %d objects, a new one %d", len(got), len(want))
	}
	id := captured(t, d, "new", "eve", "c-3", 1)
	same(t, d, id, d, id)
	if f := check(t, d); len(f) > 0 {
		t.Errorf("%+v", f)
	}
}

// A file of an older schema, of which there was no release, is refused and not touched.
func TestDevelopmentSchemaIsRefused(t *testing.T) {
	path := keptFile(t)
	db := must(sql.Open("sqlite", path))(t)
	_, err := db.Exec("PRAGMA user_version=25")
	ok(t, err)
	ok(t, db.Close())
	before := must(os.ReadFile(path))(t)
	for name, open := range map[string]func(context.Context, string) (*DB, error){"open": Open, "read": OpenReadOnly, "source": OpenSource} {
		_, err := open(t.Context(), path)
		if !errors.Is(err, ErrOlder) || !strings.Contains(err.Error(), "schema 25 of a development version, this program's is 26") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !slices.Equal(before, must(os.ReadFile(path))(t)) {
		t.Error("it was changed")
	}
}
