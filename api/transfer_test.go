package api_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/api/internal/testdb"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// site is a host whose caller is who, nil for a host that does not ask, and its temporary files.
type site struct {
	db        *store.DB
	c         *client.Client
	address   string
	who       *auth.Identity
	temporary string
}

func newSite(t *testing.T, filled bool) *site {
	t.Helper()
	s := &site{temporary: t.TempDir()}
	t.Setenv("TMPDIR", s.temporary)
	var err error
	if dir := t.TempDir(); filled {
		s.db, err = testdb.Open(t.Context(), dir)
	} else {
		s.db, err = store.Open(t.Context(), filepath.Join(dir, "power.db"))
	}
	check(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	named := func(_ any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		if s.who == nil {
			return h(nil, ss)
		}
		return h(nil, caller{ss, auth.With(ss.Context(), *s.who)})
	}
	server := grpc.NewServer(append(wire.ServerOptions(), grpc.StreamInterceptor(
		func(srv any, ss grpc.ServerStream, i *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return named(srv, ss, i, func(_ any, ss grpc.ServerStream) error { return h(srv, ss) })
		}))...)
	api.New(t.Context(), s.db, api.Options{}).Register(server)
	go func() { _ = server.Serve(l) }()
	s.address = l.Addr().String()
	s.c, err = client.Dial(s.address)
	check(t, err)
	t.Cleanup(func() {
		_ = s.c.Close()
		server.Stop()
		check(t, s.db.Close())
	})
	return s
}

type caller struct {
	grpc.ServerStream
	ctx context.Context
}

func (c caller) Context() context.Context { return c.ctx }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clean waits until no file of a call is left.
func (s *site) clean(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left, err := filepath.Glob(filepath.Join(s.temporary, "*", "tasks.db*"))
		check(t, err)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", left)
		}
	}
}

// fetched returns tasks of a site as a file.
func (s *site) fetched(t *testing.T, ids ...int64) []byte {
	t.Helper()
	var b bytes.Buffer
	check(t, s.c.Fetch(t.Context(), ids, &b))
	return b.Bytes()
}

// opened opens the bytes of a database.
func opened(t *testing.T, b []byte) *store.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fetched.db")
	check(t, os.WriteFile(path, b, 0o600))
	db, err := store.OpenReadOnly(t.Context(), path)
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	return db
}

// A fetched file has the tasks under their numbers, with all their samples, and passes the
// check of the database.
func TestFetchedTasksAreWhole(t *testing.T) {
	s := newSite(t, true)
	db := opened(t, s.fetched(t, 1, 3))
	r, err := db.Check(t.Context(), store.CheckOptions{})
	check(t, err)
	if len(r.Findings) > 0 || r.Tasks != 2 || r.Scans != 2*(testdb.Scans-testdb.GapScans) {
		t.Errorf("%+v", r)
	}
	for _, id := range []store.TaskID{1, 3} {
		want, err := s.db.Task(t.Context(), id)
		check(t, err)
		got, err := db.Task(t.Context(), id)
		check(t, err)
		if got.Name != want.Name || got.User != want.User || got.Result.Total != want.Result.Total {
			t.Errorf("task %d: %+v", id, got)
		}
	}
	s.clean(t)
	for _, c := range []struct {
		ids  []int64
		code codes.Code
	}{
		{nil, codes.InvalidArgument},
		{make([]int64, 1001), codes.InvalidArgument},
		{[]int64{-1}, codes.InvalidArgument},
		{[]int64{1, 9}, codes.NotFound},
	} {
		if err := s.c.Fetch(t.Context(), c.ids, io.Discard); status.Code(err) != c.code {
			t.Errorf("%d tasks: %v, want %v", len(c.ids), err, c.code)
		}
	}
	id, err := s.db.BeginTask(t.Context(), store.NewTask{Name: "x", User: "ada", Launched: time.Now()})
	check(t, err)
	if err := s.c.Fetch(t.Context(), []int64{int64(id)}, io.Discard); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a running task: %v", err)
	}
	s.clean(t)
}

// A client that leaves in the middle of a stream, of either direction, leaves nothing behind.
func TestBrokenTransfersLeaveNothing(t *testing.T) {
	s := newSite(t, true)
	b := s.fetched(t, 1)
	for range 6 { // more than the files that may be on their way at once
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := s.c.Fetch(ctx, []int64{1}, writer(func(part []byte) error { cancel(); n += len(part); return nil }))
		if err == nil && n != len(b) {
			t.Errorf("%d of %d bytes pass for the whole file", n, len(b))
		}
		cancel()
		broken := errors.New("broken")
		half := io.MultiReader(bytes.NewReader(b[:len(b)/2]), reader(func([]byte) (int, error) { return 0, broken }))
		if _, err := s.c.Store(t.Context(), half, false); !errors.Is(err, broken) {
			t.Errorf("a file that cannot be read: %v", err)
		}
	}
	s.clean(t)
	tasks, err := s.db.TaskIDs(t.Context())
	check(t, err)
	if len(tasks) != 3 {
		t.Errorf("%d tasks", len(tasks))
	}
}

type writer func([]byte) error

func (f writer) Write(b []byte) (int, error) { return len(b), f(b) }

type reader func([]byte) (int, error)

func (f reader) Read(b []byte) (int, error) { return f(b) }

// Stored tasks belong to the caller, an operator's to whom the file says; repeated, nothing
// is stored twice.
func TestStoredTasksAreTheCallers(t *testing.T) {
	coverage.Long(t)
	b := newSite(t, true).fetched(t, 1, 3)
	for _, c := range []struct {
		who  *auth.Identity
		keep bool
		want []string
	}{
		{nil, false, []string{"ada", "bob"}},
		{&auth.Identity{Name: "eve", Role: auth.Measurer}, false, []string{"eve", "eve"}},
		{&auth.Identity{Name: "eve", Role: auth.Measurer}, true, []string{"eve", "eve"}},
		{&auth.Identity{Name: "oona", Role: auth.Operator}, false, []string{"oona", "oona"}},
		{&auth.Identity{Name: "oona", Role: auth.Operator}, true, []string{"ada", "bob"}},
	} {
		s := newSite(t, false)
		s.who = c.who
		for again := range 2 {
			got, err := s.c.Store(t.Context(), bytes.NewReader(b), c.keep)
			check(t, err)
			want := []client.Stored{{FileTask: 1, Task: 1, Known: again > 0}, {FileTask: 3, Task: got[1].Task, Known: again > 0}}
			if !slices.Equal(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
			for i, x := range got {
				task, err := s.db.Task(t.Context(), store.TaskID(x.Task))
				check(t, err)
				if task.User != c.want[i] || task.State != store.Complete {
					t.Errorf("%v, keep %v: task %d of %s", c.who, c.keep, x.Task, task.User)
				}
			}
		}
		r, err := s.db.Check(t.Context(), store.CheckOptions{})
		check(t, err)
		if r.Tasks != 2 || len(r.Findings) > 0 {
			t.Errorf("%+v", r)
		}
		s.clean(t)
	}
}

// A file that is damaged, foreign, made to deceive or not ended is refused whole.
func TestUnsoundFilesAreRefused(t *testing.T) {
	s := newSite(t, true)
	whole := s.fetched(t, 1)
	changed := func(statement string) []byte {
		path := filepath.Join(t.TempDir(), "changed.db")
		check(t, os.WriteFile(path, whole, 0o600))
		db, err := sql.Open("sqlite", path)
		check(t, err)
		_, err = db.Exec(statement)
		check(t, errors.Join(err, db.Close()))
		b, err := os.ReadFile(path)
		check(t, err)
		return b
	}
	target := newSite(t, false)
	for name, c := range map[string]struct {
		b    []byte
		code codes.Code
	}{
		"no database":          {[]byte("hello"), codes.InvalidArgument},
		"cut":                  {whole[:len(whole)/2], codes.DataLoss},
		"another's database":   {changed("PRAGMA application_id=7"), codes.InvalidArgument},
		"of a later version":   {changed("PRAGMA user_version=1000"), codes.FailedPrecondition},
		"samples were changed": {changed("UPDATE chunk SET crc=crc+1 WHERE chunk_no=2"), codes.DataLoss},
		"a view for a table":   {changed("ALTER TABLE reading RENAME TO r2; CREATE VIEW reading AS SELECT * FROM r2"), codes.DataLoss},
		"a view changed":       {changed("DROP VIEW cold; CREATE VIEW cold AS SELECT 1 taskID"), codes.DataLoss},
		"an index of a costly expression": {
			changed("CREATE INDEX x ON task(hex(zeroblob(1000)))"), codes.DataLoss,
		},
		"a table with a costly constraint": {
			changed("CREATE TABLE x(a CHECK(length(hex(zeroblob(1000)))>0)); INSERT INTO x VALUES(1)"), codes.DataLoss,
		},
		"a trigger": {
			changed("CREATE TRIGGER x AFTER INSERT ON task BEGIN DELETE FROM task; END"), codes.DataLoss,
		},
		"a statement named as SQLite's own": {
			changed("PRAGMA writable_schema=1; INSERT INTO sqlite_master VALUES('view','sqlite_x','sqlite_x',0," +
				"'CREATE VIEW sqlite_x AS SELECT 1')"), codes.DataLoss,
		},
		"a name for a terminal":  {changed("UPDATE task SET name='a'||char(27)||'[2J', seal=NULL"), codes.InvalidArgument},
		"a name without an end":  {changed("UPDATE task SET name=hex(zeroblob(4000)), seal=NULL"), codes.InvalidArgument},
		"a tag that no one sets": {changed("INSERT INTO task_tag VALUES(1,'a=b','c')"), codes.InvalidArgument},
		"notes without an end": {
			changed("WITH n(i) AS (SELECT 10 UNION ALL SELECT i+1 FROM n WHERE i<600) INSERT INTO task_note " +
				"SELECT 1, i, 1, 'x' FROM n"), codes.InvalidArgument,
		},
		"still running": {changed("UPDATE task SET state=1"), codes.FailedPrecondition},
	} {
		if got, err := target.c.Store(t.Context(), bytes.NewReader(c.b), false); status.Code(err) != c.code {
			t.Errorf("%s: %v %v, want %v", name, got, err, c.code)
		}
		ids, err := target.db.TaskIDs(t.Context())
		check(t, err)
		if len(ids) > 0 {
			t.Fatalf("%s: stored %v", name, ids)
		}
	}
	if got, err := target.c.Store(t.Context(), bytes.NewReader(nil), false); err != nil || len(got) > 0 {
		t.Errorf("an empty file, which asks whether the host would store: %v %v", got, err)
	}
	target.clean(t)
}

// before_task_id selects the tasks with smaller numbers, in their usual order alone.
func TestListBefore(t *testing.T) {
	s := newSite(t, true)
	var ids []int64
	for task, err := range s.c.Tasks(t.Context(), client.Query{Before: 3, Page: 1}) {
		check(t, err)
		ids = append(ids, task.ID)
		if w := task.Window; w.From != testdb.From || w.To != testdb.To {
			t.Errorf("window %+v", w)
		}
	}
	if !slices.Equal(ids, []int64{2, 1}) {
		t.Errorf("listed %v", ids)
	}
	for _, err := range s.c.Tasks(t.Context(), client.Query{Before: 3, Ascending: true}) {
		if status.Code(err) != codes.InvalidArgument {
			t.Error(err)
		}
	}
}
