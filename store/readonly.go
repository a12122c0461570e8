package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/internal/files"
)

// A database file is read without writing anything, in one of three ways:
//
//   - With SQLite's locks, beside a program that writes. A file that its last program left
//     has no log (journal_mode=DELETE) and can be read like that from anywhere; one with a
//     log can where the log's index (-shm) is there, or may be made.
//   - As it is (immutable=1), where the file's head says that it may have a log, there
//     is none, and this program may not write. No lock keeps a writer away, so each query
//     checks that the file was not changed meanwhile.
//   - As a private copy, where there is a log that only a writer could bring into the file.

// sideSuffixes name what lies beside a file while it is written, or after a crash; withSides the file too.
var (
	sideSuffixes = []string{"-wal", "-journal"}
	withSides    = []string{"", "-wal", "-journal"}
)

// OpenReadOnly opens an existing database that is never changed through this handle, beside programs that
// write to it. It needs no right to write: not on the medium, nor in the folder, nor of the file. A file of
// an older version is ErrOlder; see OpenSource. Close must be called: it removes a private copy.
func OpenReadOnly(ctx context.Context, path string) (*DB, error) {
	return openReadOnly(ctx, path, false)
}

// openReadOnly is OpenReadOnly; short opens also a file that was cut off.
func openReadOnly(ctx context.Context, path string, short bool) (*DB, error) {
	d, version, err := openToRead(ctx, path, short)
	if err == nil && d.server == nil && version == 0 {
		err = fmt.Errorf("%w: it is empty: open it once for writing", ErrOlder)
		err = errors.Join(wrap("open database "+d.path, err), d.Close())
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// OpenSource opens a database as OpenReadOnly does, and an empty file as a database without
// tasks: in its place a private copy is read, which Close removes.
func OpenSource(ctx context.Context, path string) (*DB, error) {
	d, version, err := openToRead(ctx, path, false)
	if err != nil || d.server != nil || version != 0 {
		return d, err
	}
	if err := d.copyAside(ctx, func(string) error { return nil }); err != nil {
		return nil, errors.Join(wrap("open database "+path, err), d.Close())
	}
	return d, nil
}

// openToRead opens a database, and returns the version of its schema: 0 for an empty file.
func openToRead(ctx context.Context, path string, short bool) (d *DB, version int, err error) {
	op := "open database " + Conceal(path)
	if s, err := serverOf(path); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", op, err)
	} else if s != nil {
		d, err := openServer(ctx, s, path, true)
		return d, 0, err
	}
	abs, err := checkFile(path)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", op, err)
	}
	if _, err := os.Stat(abs); err != nil {
		return nil, 0, fmt.Errorf("%s: %w: %w", op, ErrCannotOpen, err)
	}
	d = &DB{path: path, short: short, logLoss: lookAtLog(abs, true)}
	if version, err = d.openFileToRead(ctx, abs, 1); err != nil {
		return nil, 0, errors.Join(wrap(op, err), d.Close())
	}
	return d, version, nil
}

// tries is how often a file that this program may write is put right before it is read without locks: meanwhile
// other programs may open it, and close it.
const tries = 5

// openFileToRead opens a file in the first of the three ways that works, and returns the version
// of its schema; try counts from 1.
func (d *DB) openFileToRead(ctx context.Context, abs string, try int) (version int, err error) {
	// With locks where SQLite leaves nothing beside the file that was not there: files that would keep the
	// owner of the file from writing. By its versions for writers and readers (bytes 18 and 19) the file may
	// have no log; with one and its index another program has it open, or was killed.
	head, opened, err := peek(abs)
	if opened || err != nil || len(head) < 20 || !slices.Contains(head[18:20], 2) ||
		exists(abs+"-wal") && exists(abs+"-shm") ||
		hasLog(abs) && files.MayWrite(abs) && files.MayWrite(filepath.Dir(abs)) {
		d.openReaders(dsn(abs, "ro", "_pragma=busy_timeout(10000)"))
		d.held = hold(abs)
		version, err = checkOurs(ctx, d.reader)
		d.held.ours = err == nil && version == schemaVersion
		if s := wrap("", err); !errors.Is(s, ErrCannotOpen) && !errors.Is(s, ErrReadOnly) && !errors.Is(s, ErrIO) {
			return version, err
		}
		d.closeReaders()
	}
	if !hasLog(abs) {
		was := stateOf(abs)
		if was == nil {
			return 0, fmt.Errorf("%w: %s is gone", ErrCannotOpen, abs)
		}
		d.still = still(abs, was)
		d.openReaders(dsn(abs, "ro", "immutable=1"))
		version, err = checkOurs(ctx, d.reader)
		// Two programs that closed one of ours at once leave it so; the next to open it puts it right, if it may.
		if h := (&held{abs: abs}); err == nil && version == schemaVersion && try < tries && h.writable() {
			d.closeReaders()
			h.setJournal("DELETE")
			return d.openFileToRead(ctx, abs, try+1)
		}
		return version, err
	}
	if err := d.copyAside(ctx, func(to string) error { return copyWithLog(ctx, abs, to) }); err != nil {
		name := filepath.Base(abs)
		return 0, fmt.Errorf("%w: what its log holds cannot be read in place without the right to write, and no copy "+
			"could be made to read: copy %s and what begins with %s- into a folder that you may write to, and name "+
			"that one: %w",
			ErrCannotOpen, name, name, err)
	}
	return checkOurs(ctx, d.reader)
}

// closeReaders leaves a file, to read it in another way.
func (d *DB) closeReaders() {
	if d.reader != nil {
		d.reader.Close() // which only read
	}
	if d.held != nil {
		d.held.release()
	}
	d.reader, d.held, d.still = nil, nil, nil
}

// exists reports whether there is a file of this name.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hasLog reports whether a log or journal with content lies beside a file.
func hasLog(abs string) bool {
	return slices.ContainsFunc(sideSuffixes, func(suffix string) bool {
		st, err := os.Stat(abs + suffix)
		return err == nil && st.Size() > 0
	})
}

// copyAside reads, in place of the file, a copy that this program alone has. It is brought
// up to date, and what its log holds into it.
func (d *DB) copyAside(ctx context.Context, fill func(to string) error) error {
	dir, err := TempDir()
	if err != nil {
		return err
	}
	d.temporary = dir
	to := filepath.Join(dir, "power.db")
	if err := fill(to); err != nil {
		return err
	}
	d.closeReaders()
	copied, err := Open(ctx, to)
	if err != nil {
		return err
	}
	if err := copied.Close(); err != nil {
		return err
	}
	d.openReaders(dsn(to, "ro"))
	return nil
}

// copyTries is how often a file is copied that changes meanwhile.
const copyTries = 3

// copyWithLog copies a file with its log and journal, as they stood at one moment. A file that
// changes meanwhile is copied again, at most copyTries times; then it is ErrBusy.
func copyWithLog(ctx context.Context, from, to string) error {
	for range copyTries {
		before := statesOf(from)
		for _, suffix := range withSides {
			if err := copyFile(ctx, from+suffix, to+suffix); err != nil &&
				!(suffix != "" && errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		}
		if slices.EqualFunc(before, statesOf(from), sameState) {
			return nil
		}
		if err := dropPart(to); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: it is being written", ErrBusy)
}

// copyFile copies a file until the context ends.
func copyFile(ctx context.Context, from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.Close() }) // which ends the copy
	defer stop()
	_, err = io.Copy(w, r)
	return errors.Join(ctx.Err(), err, w.Close())
}

// stateOf identifies a version of a file by inode, size and time; nil where there is no file.
func stateOf(path string) os.FileInfo {
	st, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return st
}

// sameState reports whether two states are of one version of a file. Two missing files are the same.
func sameState(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// statesOf returns the states of a database file and its side files.
func statesOf(abs string) []os.FileInfo {
	return lists.Map(withSides, func(suffix string) os.FileInfo { return stateOf(abs + suffix) })
}

// still returns the check of a file that is read without locks: ErrBusy where it was written since it was as was. Rows
// that were read may then be of two moments.
func still(path string, was os.FileInfo) func() error {
	return func() error {
		if sameState(was, stateOf(path)) {
			return nil
		}
		return fmt.Errorf("%w: it was written while it was read, and may not be locked: ask again", ErrBusy)
	}
}

// longRead is the size of a file, in bytes, that takes longer to read than a writer waits.
var longRead int64 = 128 << 20

// beside lets others write while a large file is read as a whole. A reader of a file without
// a log keeps writers out, so it is given a log until Close, where that may be done.
func (d *DB) beside() {
	if d.writer != nil || d.held == nil || !d.held.ours {
		return
	}
	if st := stateOf(d.held.abs); st != nil && st.Size() >= longRead && d.held.writable() {
		d.held.setJournal("WAL")
	}
}

// logPatience is how long a reader may keep the log from being emptied, in milliseconds.
const logPatience = "200"

// emptyLog writes the write-ahead log into the file, synced, and truncates the log. What a damaged log
// holds is lost, and so it holds no task that has ended: a monitor's capture is released behind this. A log
// that was only copied to the file would not do: of one that is damaged later, the pages before the damage
// would hide newer ones of the file. While others read or write for longer than logPatience, the log stays
// for the next task that ends, or the last handle that closes.
func (d *DB) emptyLog(ctx context.Context) {
	if d.server != nil || d.writer == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	conn, err := d.writer.Conn(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.ExecContext(ctx, "PRAGMA busy_timeout="+logPatience+"; PRAGMA wal_checkpoint(TRUNCATE)")
	_, _ = conn.ExecContext(ctx, "PRAGMA busy_timeout=10000")
}

// damagedLog is where a log is kept that was found damaged.
func damagedLog(abs string) string { return abs + "-wal-damaged" }

// LogLoss describes the missing part of the log that Open found after a program was killed;
// empty where nothing is missing. SQLite itself drops such a part without an error.
func (d *DB) LogLoss() string { return d.logLoss }

// lookAtLog describes the missing part of the log beside a file that no program has open. With
// keep it copies such a log aside before SQLite drops it; Check reports the copy for as long as
// it is there. Files that cannot be read or copied are left to SQLite's own errors.
func lookAtLog(abs string, keep bool) string {
	holding.Lock() // to close -shm would lose this program's locks of it
	defer holding.Unlock()
	if isHeld(abs) || files.InUse(abs) {
		return ""
	}
	loss := files.Loss(abs)
	if loss == "" || !keep {
		return loss
	}
	from, err := os.Open(abs + "-wal")
	if err != nil {
		return loss
	}
	defer from.Close()
	to, err := os.OpenFile(damagedLog(abs), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return loss // one is there already: it has more
	}
	_, err = io.Copy(to, from)
	_ = errors.Join(err, to.Close()) // the copy is for later inspection, and may be partial
	return loss
}

// log reports a log that was damaged when this handle, or an earlier one, opened the file.
func (c *checker) log(s *session) {
	abs, err := filepath.Abs(c.d.path)
	if s.fail(err); err != nil || c.d.server != nil {
		return
	}
	what := c.d.logLoss
	if kept := damagedLog(abs); exists(kept) {
		what = cmp.Or(what, "what it held was lost") + ", and it is kept as " + kept
	}
	if what != "" {
		c.found(BadLog, 0, "tasks that ended before are whole; look for what was measured last in the monitor "+
			"(wattmark doctor) or measure again, then remove the copy",
			"the write-ahead log of a program that was killed is damaged: %s", what).Mendable = false
	}
}

// readWithin bounds the check of a database file that another machine made.
const readWithin = 5 * time.Minute

// Accept stores the ended tasks of a database file that another program made. The file is
// checked first as by Check, and refused as a whole with ErrCorrupt; each task is then copied
// and verified as by CopyTask, under the user that user returns for the one in the file. Tasks
// that are here already stay as they are. Errors wrap ErrRunning for a task without an end,
// ErrLabel for a name, tag or note that could not be stored by itself, ErrOlder and ErrNewer for a
// file of another version.
func (d *DB) Accept(ctx context.Context, path string, user func(string) string) (out []CopiedTask, err error) {
	from, err := OpenReadOnly(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	reading, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	ids, err := from.sound(reading)
	if err != nil {
		return nil, wrap("accept tasks", err)
	}
	for _, id := range ids {
		t, err := from.Task(ctx, id)
		if err != nil {
			return out, err
		}
		done, err := from.CopyTask(ctx, d, id, CopyOptions{User: user(t.User)})
		if err != nil {
			return out, err
		}
		out = append(out, done)
	}
	return out, nil
}

// sound returns the tasks of a database that has the schema of this program and nothing beside
// it, in which Check finds nothing, and whose texts are as BeginTask, SetTags and AddNote take
// them.
func (d *DB) sound(ctx context.Context) ([]TaskID, error) {
	if err := d.foreign(ctx); err != nil {
		return nil, err
	}
	r, err := d.Check(ctx, CheckOptions{})
	if err != nil {
		return nil, err
	}
	if n := len(r.Findings); n > 0 {
		f := r.Findings[0]
		return nil, fmt.Errorf("%w: %s, the first: task %d: %s", ErrCorrupt, measure.Plural(n, "finding"), f.Task, f.What)
	}
	if err := d.checkTexts(ctx); err != nil {
		return nil, err
	}
	return d.TaskIDs(ctx)
}

// internals are SQLite's own tables, which no other text may define, by name.
var internals = map[string]string{
	"sqlite_sequence": "CREATE TABLE sqlite_sequence(name,seq)",
	"sqlite_stat1":    "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
	"sqlite_stat4":    "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}

// foreign returns ErrCorrupt for a file with an object that a new database does not have, or has
// otherwise. Views, indexes, constraints and generated columns hold expressions that whoever made
// the file chose, and that a check or a copy would compute.
func (d *DB) foreign(ctx context.Context) error {
	want, err := reference()
	if err != nil {
		return err
	}
	s := d.reading(ctx)
	for rows := range s.rows(`SELECT type, name, coalesce(sql,'') FROM main.sqlite_master`) {
		var o object
		s.fail(rows.Scan(&o.kind, &o.name, &o.sql))
		w, own := want[o.name]
		own = own && o.kind == w.kind && canonicalSQL(o.sql) == canonicalSQL(w.sql) ||
			o.kind == "table" && o.sql != "" && o.sql == internals[o.name] ||
			// The index of a PRIMARY KEY or UNIQUE column follows from its table.
			o.kind == "index" && o.sql == "" && strings.HasPrefix(o.name, "sqlite_autoindex_")
		if s.err == nil && !own {
			s.fail(fmt.Errorf("%w: %s %s is not one of a task database", ErrCorrupt, o.kind, o.name))
		}
	}
	return s.err
}

// ErrLabel: a name, job, tag or note is longer than allowed, or not printable.
var ErrLabel = errors.New("a name, tag or note that cannot be stored")

// checkTexts refuses names, tags and notes of tasks that could not be stored one by one.
func (d *DB) checkTexts(ctx context.Context) error {
	s := d.reading(ctx)
	check := func(query string, f func(id TaskID, key, value string) error) {
		for rows := range s.rows(query) {
			var id TaskID
			var key, value string
			if s.fail(rows.Scan(&id, &key, &value)); s.err == nil {
				s.failed(f(id, key, value), "%w: task %d", ErrLabel, id)
			}
		}
	}
	check(`SELECT task_id, name, coalesce(job,'') FROM task`, func(_ TaskID, name, job string) error {
		if name == "" || len(name) > maxText || len(job) > maxText {
			return fmt.Errorf("a name has 1 to %d bytes", maxText)
		}
		return errors.Join(measure.CheckText("name", name), measure.CheckText("job", job))
	})
	tags, notes := map[TaskID]int{}, map[TaskID]int{}
	check(`SELECT task_id, key, value FROM task_tag`, func(id TaskID, key, value string) error {
		if tags[id]++; tags[id] > maxTags {
			return fmt.Errorf("more than %d tags", maxTags)
		}
		return CheckTags(map[string]string{key: value})
	})
	check(`SELECT task_id, '', text FROM task_note`, func(id TaskID, _, text string) error {
		if notes[id]++; notes[id] > maxNotes {
			return fmt.Errorf("more than %d notes", maxNotes)
		}
		return CheckNote(text)
	})
	return s.err
}

// OpenReceived opens, for reading, a database file that receive writes at a path. It lies in a
// private folder, which Close removes.
func OpenReceived(ctx context.Context, receive func(path string) error) (*DB, error) {
	dir, err := TempDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "power.db")
	var d *DB
	if err = receive(path); err == nil {
		d, err = OpenReadOnly(ctx, path)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.temporary = dir
	return d, nil
}
