package trial

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	_ "modernc.org/sqlite" // the driver
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite offers a layer for this: a VFS. Ours delegates to the system's and wraps write, truncate, sync, close and
// delete. It becomes the default for databases that are opened later; files of unwatched ones keep their methods.

// under is the system's VFS; over has the wrapped method table for each original one.
var (
	under *sqlite3.Tsqlite3_vfs
	over  sync.Map // *sqlite3.Tsqlite3_io_methods → methods
	opens sync.Map // uintptr of an open file → *opened
)

// methods are the original methods of a kind of file, and the address of the table that wraps them.
type methods struct {
	was *sqlite3.Tsqlite3_io_methods
	now uintptr
}

// opened is an open file of a watched database.
type opened struct {
	disk *Disk
	path string
	was  *sqlite3.Tsqlite3_io_methods
}

// The types of the wrapped methods.
type (
	openFunc   = func(tls *libc.TLS, vfs, path, file uintptr, flags int32, out uintptr) int32
	deleteFunc = func(tls *libc.TLS, vfs, path uintptr, dirSync int32) int32
	closeFunc  = func(tls *libc.TLS, file uintptr) int32
	readFunc   = func(tls *libc.TLS, file, buf uintptr, n int32, off int64) int32
	writeFunc  = func(tls *libc.TLS, file, buf uintptr, n int32, off int64) int32
	truncFunc  = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFunc   = func(tls *libc.TLS, file uintptr, flags int32) int32
)

// pointer converts an address of SQLite's memory, which Go's collector does not manage.
func pointer(p uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)) // #nosec G103 -- SQLite gave the address
}

// function converts a function pointer of SQLite's to a Go function.
func function[F any](p uintptr) F {
	v := struct{ p uintptr }{p}
	return *(*F)(unsafe.Pointer(&v)) // #nosec G103 -- as the driver turns them
}

// address is the inverse of function.
func address[F any](f F) uintptr {
	return *(*uintptr)(unsafe.Pointer(&f)) // #nosec G103 -- as above
}

// register makes the layer SQLite's default VFS, once.
var register = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	if sqlite3.Xsqlite3_initialize(tls) != sqlite3.SQLITE_OK {
		return errors.New("power cut: SQLite cannot be initialized")
	}
	found := sqlite3.Xsqlite3_vfs_find(tls, 0)
	name, err := libc.CString("wattmark-powercut")
	if found == 0 || err != nil {
		return errors.Join(errors.New("power cut: SQLite has no VFS"), err)
	}
	under = (*sqlite3.Tsqlite3_vfs)(pointer(found))
	p := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	mine := (*sqlite3.Tsqlite3_vfs)(pointer(p))
	*mine = *under
	mine.FpNext, mine.FzName = 0, name
	mine.FxOpen, mine.FxDelete = address[openFunc](open), address[deleteFunc](remove)
	if sqlite3.Xsqlite3_vfs_register(tls, p, 1) != sqlite3.SQLITE_OK {
		return errors.New("power cut: SQLite takes no VFS")
	}
	return nil
})

// open opens a file, and wraps its methods where its database is watched.
func open(tls *libc.TLS, vfs, path, id uintptr, flags int32, out uintptr) int32 {
	name := ""
	if path != 0 {
		name = filepath.Clean(libc.GoString(path))
	}
	d := diskOf(name)
	if path == 0 || d == nil {
		return function[openFunc](under.FxOpen)(tls, vfs, path, id, flags, out)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	size, there := sizeOf(name)
	rc := function[openFunc](under.FxOpen)(tls, vfs, path, id, flags, out)
	if rc != sqlite3.SQLITE_OK {
		return rc
	}
	delete(d.gone, name)
	if d.files[name] == nil {
		d.files[name] = &file{size: size, made: !there}
	}
	f := (*sqlite3.Tsqlite3_file)(pointer(id))
	m := takeOver(tls, f.FpMethods)
	opens.Store(id, &opened{d, name, m.was})
	f.FpMethods = m.now
	return rc
}

func sizeOf(path string) (size int64, there bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	return info.Size(), true
}

// takeOver returns the table that wraps a file's methods; it allocates one table for each kind of file.
func takeOver(tls *libc.TLS, was uintptr) methods {
	if m, known := over.Load(was); known {
		return m.(methods)
	}
	p := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_io_methods{})))
	t := (*sqlite3.Tsqlite3_io_methods)(pointer(p))
	*t = *(*sqlite3.Tsqlite3_io_methods)(pointer(was))
	t.FxClose, t.FxWrite = address[closeFunc](closeFile), address[writeFunc](write)
	t.FxTruncate, t.FxSync = address[truncFunc](truncate), address[syncFunc](syncFile)
	m, _ := over.LoadOrStore(was, methods{(*sqlite3.Tsqlite3_io_methods)(pointer(was)), p})
	return m.(methods)
}

func openedOf(id uintptr) *opened {
	o, _ := opens.Load(id)
	return o.(*opened)
}

func closeFile(tls *libc.TLS, id uintptr) int32 {
	o := openedOf(id)
	opens.Delete(id) // the memory may hold another file soon
	return function[closeFunc](o.was.FxClose)(tls, id)
}

func write(tls *libc.TLS, id, buf uintptr, n int32, off int64) int32 {
	o := openedOf(id)
	switch ask(o.disk.o.Write) {
	case NoSpace:
		return sqlite3.SQLITE_FULL
	case DeviceError:
		return sqlite3.SQLITE_IOERR_WRITE
	}
	o.disk.mu.Lock()
	defer o.disk.mu.Unlock()
	f := o.disk.files[o.path]
	p := op{off: off, old: o.old(tls, id, off, min(int64(n), f.size-off)), oldSize: f.size}
	p.new = append(make([]byte, 0, n), unsafe.Slice((*byte)(pointer(buf)), n)...) // #nosec G103 -- n is SQLite's length
	rc := function[writeFunc](o.was.FxWrite)(tls, id, buf, n, off)
	if rc == sqlite3.SQLITE_OK {
		f.size = max(f.size, off+int64(n))
		f.pending = append(f.pending, p)
	}
	return rc
}

// old reads the bytes that a write is about to replace. The disk is locked.
func (o *opened) old(tls *libc.TLS, id uintptr, off, n int64) []byte {
	if n <= 0 {
		return nil
	}
	b := make([]byte, n)
	to := uintptr(unsafe.Pointer(&b[0])) // #nosec G103 -- kept alive below
	rc := function[readFunc](o.was.FxRead)(tls, id, to, int32(n), off)
	runtime.KeepAlive(b)
	if rc != sqlite3.SQLITE_OK {
		panic("power cut: the bytes to be replaced cannot be read: " + o.path)
	}
	return b
}

func truncate(tls *libc.TLS, id uintptr, size int64) int32 {
	o := openedOf(id)
	o.disk.mu.Lock()
	defer o.disk.mu.Unlock()
	f := o.disk.files[o.path]
	p := op{off: size, old: o.old(tls, id, size, f.size-size), oldSize: f.size}
	rc := function[truncFunc](o.was.FxTruncate)(tls, id, size)
	if rc == sqlite3.SQLITE_OK {
		f.size = size
		f.pending = append(f.pending, p)
	}
	return rc
}

// syncFile counts all writes so far as durable. It does not sync the real disk, whose power stays on.
func syncFile(_ *libc.TLS, id uintptr, _ int32) int32 {
	o := openedOf(id)
	if ask(o.disk.o.Sync) != NoFault {
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	o.disk.mu.Lock()
	defer o.disk.mu.Unlock()
	if !o.disk.o.NoSync {
		f := o.disk.files[o.path]
		f.pending, f.made = nil, false
	}
	return sqlite3.SQLITE_OK
}

func ask(f func() DiskFault) DiskFault {
	if f == nil {
		return NoFault
	}
	return f()
}

// remove deletes a file, as SQLite does with a log after folding it into the database.
func remove(tls *libc.TLS, vfs, path uintptr, dirSync int32) int32 {
	name := filepath.Clean(libc.GoString(path))
	d := diskOf(name)
	if d == nil {
		return function[deleteFunc](under.FxDelete)(tls, vfs, path, dirSync)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	was, err := os.ReadFile(name)
	rc := function[deleteFunc](under.FxDelete)(tls, vfs, path, dirSync)
	if delete(d.files, name); err == nil && rc == sqlite3.SQLITE_OK && dirSync == 0 {
		d.gone[name] = was
	}
	return rc
}

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
func broken(t *testing.T, seed uint64, synchronous string, o DiskOptions) string {
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
	cut := func() DiskFault {
		if left--; left != 0 {
			return NoFault
		}
		promised = acknowledged
		if err := d.Cut(copied, rng); err != nil {
			t.Error(err)
		}
		return NoFault
	}
	o.Write, o.Sync = cut, cut
	d, err := WatchDisk(path, o)
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
		if what := broken(t, seed, "FULL", DiskOptions{}); what != "" {
			t.Errorf("seed %d: %s", seed, what)
		}
	}
}

// What breaks the promise is seen: syncs that do nothing, and a weaker setting.
func TestBrokenPromisesAreCaught(t *testing.T) {
	for name, c := range map[string]struct {
		synchronous string
		o           DiskOptions
	}{
		"syncs that do nothing": {"FULL", DiskOptions{NoSync: true}}, "synchronous=OFF": {"OFF", DiskOptions{}},
		"synchronous=NORMAL": {"NORMAL", DiskOptions{}},
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
	d, err := WatchDisk(path, DiskOptions{})
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
	for f, at := range map[DiskFault]string{NoSpace: "write", DeviceError: "sync"} {
		path := filepath.Join(t.TempDir(), "a.db")
		bad := NoFault
		o := DiskOptions{Write: func() DiskFault { return bad }}
		if at == "sync" {
			o = DiskOptions{Sync: func() DiskFault { return bad }}
		}
		d, err := WatchDisk(path, o)
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
		bad = NoFault
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
