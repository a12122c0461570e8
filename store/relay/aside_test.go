package relay_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store/relay"
)

// poison publishes a task of eve's whose rows were changed by statements, or by hand.
func poison(t *testing.T, p *relay.Publisher, n int, spoil func(path string)) relay.Key {
	t.Helper()
	id := fill(t, p.DB, fmt.Sprint("eve-", n), 0, 500, uint64(1000+n))
	x := must(p.DB.Task(t.Context(), id))(t)
	path := filepath.Join(t.TempDir(), "task.db")
	ok(t, os.WriteFile(path, must(p.Bare(t.Context(), id))(t), 0o600))
	spoil(path)
	return must(p.Forge(t.Context(), relay.IdentityOf(&x), must(os.ReadFile(path))(t)))(t)
}

// with runs statements on the database of a task.
func with(t *testing.T, statements string) func(path string) {
	return func(path string) {
		t.Helper()
		d := must(sql.Open("sqlite", path))(t)
		must(d.ExecContext(t.Context(), statements))(t)
		ok(t, d.Close())
	}
}

// logged is a log that counts records by their message.
type logged struct {
	slog.Handler
	seen chan string
}

func (l logged) Enabled(context.Context, slog.Level) bool { return true }
func (l logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l logged) Handle(_ context.Context, r slog.Record) error {
	l.seen <- r.Message
	return nil
}

func (l logged) await(t *testing.T, text string) {
	t.Helper()
	for said := range l.seen {
		if strings.Contains(said, text) {
			return
		}
	}
}

// However many tasks cannot be stored, and for whatever reason, the others arrive.
func TestPoisonKeepsNothingBack(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{})
	host, there := open(t, "host.db"), open(t, "there.db")
	p := &relay.Publisher{DB: host, Bus: bus}
	whys := map[relay.Key]string{}
	for n, c := range []struct {
		why   string
		spoil func(string)
	}{
		{"no table alien", with(t, `CREATE TABLE alien(task_id INTEGER); INSERT INTO alien VALUES(1)`)},
		{"alien", with(t, `ALTER TABLE task ADD COLUMN alien TEXT DEFAULT 'x'`)},
		{"newer than this program", with(t, `PRAGMA user_version=100000`)},
		{"rows cannot be read", with(t, `DROP TABLE event`)},
		{"another application", with(t, `PRAGMA application_id=1`)},
		{"tried 4 times, and the database takes others", with(t, `ALTER TABLE marker ADD COLUMN alien TEXT; UPDATE task SET reason=1`)},
		{"", func(path string) { ok(t, os.Truncate(path, 20000)) }},
		{"", func(path string) { ok(t, os.WriteFile(path, []byte("no database"), 0o600)) }},
	} {
		whys[poison(t, p, n, c.spoil)] = c.why
	}
	for n := range 20 { // more than may be pending at once
		whys[poison(t, p, 100+n, with(t, `CREATE TABLE alien(task_id INTEGER)`))] = "no table alien"
	}
	good := fill(t, host, "c-1", 2, 500, 1)
	must(p.Replicate(t.Context(), good))(t)

	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan relay.Taken, 1)
	log := logged{seen: make(chan string, 1000)}
	c := &relay.Consumer{Bus: bus, DB: there, Name: "lab", Retry: time.Millisecond, Log: slog.New(log), Taken: func(x relay.Taken) { taken <- x }}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	if got := <-taken; got.Capture != "c-1" {
		t.Errorf("%+v", got)
	}
	for range whys {
		log.await(t, "it was set aside")
	}
	cancel()
	ok(t, <-ran)
	list := must(bus.Asides(t.Context()))(t)
	if len(list) != len(whys) {
		t.Errorf("%d are aside, want %d", len(list), len(whys))
	}
	for _, a := range list {
		if why, known := whys[a.Key]; !known || !strings.Contains(a.Why, why) {
			t.Errorf("%s was set aside, because %q, want %q", a.Key, a.Why, why)
		}
	}
}

// A database that is locked says nothing of the tasks that come meanwhile.
func TestNothingIsSetAsideWhileTheDatabaseIsAway(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{})
	host, there := open(t, "host.db"), open(t, "there.db")
	p := &relay.Publisher{DB: host, Bus: bus}
	for i := range 3 {
		must(p.Replicate(t.Context(), fill(t, host, fmt.Sprint("c-", i), 1, 500, uint64(i))))(t)
	}
	other := must(sql.Open("sqlite", there.Path()))(t)
	defer other.Close()
	other.SetMaxOpenConns(1)
	must(other.ExecContext(t.Context(), `BEGIN IMMEDIATE`))(t)

	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan relay.Taken, 3)
	log := logged{seen: make(chan string, 1000)}
	c := &relay.Consumer{Bus: bus, DB: there, Name: "lab", Retry: time.Millisecond, Log: slog.New(log), Taken: func(x relay.Taken) { taken <- x }}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	log.await(t, "no tasks can be taken")
	must(other.ExecContext(t.Context(), `ROLLBACK`))(t)
	for range 3 {
		<-taken
	}
	cancel()
	ok(t, <-ran)
	if list := must(bus.Asides(t.Context()))(t); len(list) > 0 {
		t.Errorf("set aside: %+v", list)
	}
}
