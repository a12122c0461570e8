package powercut

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"unsafe"

	"modernc.org/libc"
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
	case Full:
		return sqlite3.SQLITE_FULL
	case Fail:
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
	if ask(o.disk.o.Sync) != None {
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

func ask(f func() Fault) Fault {
	if f == nil {
		return None
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
