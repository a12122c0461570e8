package powercut

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver
)

// opendb opens a database as store does, with a log that is folded in again and again.
func opendb(t *testing.T, path, synchronous string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for _, p := range []string{
		"journal_mode=WAL", "synchronous=" + synchronous, "wal_autocheckpoint=7",
		"journal_size_limit=30000",
	} {
		if _, err := db.Exec("PRAGMA " + p); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// broken plays one power cut at a random write or sync, and describes an acknowledged
// row that it broke; empty for none.
func broken(t *testing.T, seed uint64, synchronous string, o Options) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	dir := t.TempDir()
	path, copied := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	made := opendb(t, path, synchronous)
	if _, err := made.Exec(`CREATE TABLE x(n INTEGER PRIMARY KEY, b BLOB)`); err != nil {
		t.Fatal(err)
	}
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	var d *Disk
	acknowledged, promised := 0, -1
	left := 1 + rng.IntN(180)
	cut := func() Fault {
		if left--; left != 0 {
			return None
		}
		promised = acknowledged
		if err := d.Cut(copied, rng); err != nil {
			t.Error(err)
		}
		return None
	}
	o.Write, o.Sync = cut, cut
	d, err := Watch(path, o)
	if err != nil {
		t.Fatal(err)
	}
	db := opendb(t, path, synchronous)
	for n := 0; promised < 0; n++ {
		if _, err := db.Exec(`INSERT INTO x VALUES(?,randomblob(?))`, n, 10+rng.IntN(9000)); err != nil {
			t.Fatal(err)
		}
		acknowledged = n + 1
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	d.Forget()
	return examine(t, copied, promised)
}

func examine(t *testing.T, path string, promised int) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var sound string
	var n int
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&sound); err != nil || sound != "ok" {
		return fmt.Sprintf("not sound: %q, %v", sound, err)
	}
	if err := db.QueryRow(`SELECT count(*) FROM x WHERE n<?`, promised).Scan(&n); err != nil || n != promised {
		return fmt.Sprintf("%d of %d rows that were acknowledged, %v", n, promised, err)
	}
	return ""
}

// A commit that SQLite acknowledged under synchronous=FULL is there after a power cut
// at any moment, also one while the log is folded in.
func TestCommitsSurvive(t *testing.T) {
	n := 200
	if testing.Short() {
		n = 40
	}
	for seed := range uint64(n) {
		if what := broken(t, seed, "FULL", Options{}); what != "" {
			t.Errorf("seed %d: %s", seed, what)
		}
	}
}

// What breaks the promise is seen: syncs that do nothing, and a weaker setting.
func TestBrokenPromisesAreCaught(t *testing.T) {
	for name, c := range map[string]struct {
		synchronous string
		o           Options
	}{
		"syncs that do nothing": {"FULL", Options{NoSync: true}}, "synchronous=OFF": {"OFF", Options{}},
		"synchronous=NORMAL": {"NORMAL", Options{}},
	} {
		caught := uint64(0)
		for seed := uint64(0); seed < 100 && caught == 0; seed++ {
			if what := broken(t, seed, c.synchronous, c.o); what != "" {
				t.Logf("%s: caught by seed %d: %s", name, seed, what)
				caught = seed + 1
			}
		}
		if caught == 0 {
			t.Errorf("%s: not caught", name)
		}
	}
}

// A killed process leaves all that it wrote, and SQLite goes on from there.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	path, copied := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	d, err := Watch(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	db := opendb(t, path, "FULL")
	if _, err := db.Exec(`CREATE TABLE x(n INTEGER); INSERT INTO x VALUES(0),(1),(2)`); err != nil {
		t.Fatal(err)
	}
	if err := d.Kill(copied); err != nil {
		t.Fatal(err)
	}
	if what := examine(t, copied, 3); what != "" {
		t.Error(what)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	d.Forget()
}

// A full or failing disk is reported as such, and earlier rows stay.
func TestFaults(t *testing.T) {
	for f, at := range map[Fault]string{Full: "write", Fail: "sync"} {
		path := filepath.Join(t.TempDir(), "a.db")
		bad := None
		o := Options{Write: func() Fault { return bad }}
		if at == "sync" {
			o = Options{Sync: func() Fault { return bad }}
		}
		d, err := Watch(path, o)
		if err != nil {
			t.Fatal(err)
		}
		db := opendb(t, path, "FULL")
		if _, err := db.Exec(`CREATE TABLE x(n INTEGER); INSERT INTO x VALUES(0)`); err != nil {
			t.Fatal(err)
		}
		bad = f
		if _, err := db.Exec(`INSERT INTO x VALUES(1)`); err == nil {
			t.Errorf("a %s that fails was not told", at)
		}
		bad = None
		if what := examine(t, path, 1); what != "" {
			t.Error(what)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		d.Forget()
	}
}

// Unsynced bytes that are present lie where they were written.
func TestCutKeepsWhatWasSynced(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		now := bytes.Repeat([]byte{1}, 3*SectorSize)
		f := file{size: int64(len(now))}
		was := bytes.Clone(now)
		for range rng.IntN(4) {
			off, n := rng.Int64N(f.size+300), 1+rng.Int64N(2*SectorSize)
			p := op{off: off, old: bytes.Clone(now[min(off, f.size):min(off+n, f.size)]), oldSize: f.size}
			if rng.IntN(5) == 0 && off < f.size { // a truncation
				p.old = bytes.Clone(now[off:])
				now = now[:off]
			} else {
				p.new = bytes.Repeat([]byte{2}, int(n))
				now = resize(now, max(f.size, off+n))
				copy(now[off:], p.new)
			}
			f.size = int64(len(now))
			f.pending = append(f.pending, p)
		}
		if got := f.durable(now); !bytes.Equal(got, was) {
			t.Fatalf("after %+v: %d bytes were durable, want %d", f.pending, len(got), len(was))
		}
		got := f.cut(now, rng)
		for i, b := range got {
			touched := b == 1
			for _, p := range f.pending { // also what lies between the end and a write behind it
				touched = touched || int64(i) >= min(p.off, p.oldSize) && (p.new == nil || int64(i) < p.off+int64(len(p.new)))
			}
			if !touched {
				t.Fatalf("byte %d is %d, and nobody wrote there", i, b)
			}
		}
	}
}
