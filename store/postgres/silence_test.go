//go:build linux

package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
)

// TestServerThatStandsStill stops all processes of a server. Who reads and who writes is
// told in the end, and the user meanwhile; once the server goes on, so do they.
func TestServerThatStandsStill(t *testing.T) {
	coverage.Long(t)
	defer postgres.Patience(100*time.Millisecond, time.Second)()
	c := pgtest.Own(t)
	c.Make(t, "w")
	d := openAt(t, c.URL("w"))
	id, chunks := stream(t, d, "gemm", 2)
	ok(t, d.AppendChunks(t.Context(), id, chunks[:1], nil))
	waits.take()
	thaw := freeze(t, c.PID())
	for what, ask := range map[string]func(context.Context) error{
		"read":  func(ctx context.Context) error { _, err := d.Task(ctx, id); return err },
		"write": func(ctx context.Context) error { return d.AppendChunks(ctx, id, chunks[1:], nil) },
		"open": func(ctx context.Context) error {
			x, err := store.OpenReadOnly(ctx, c.URL("w"))
			if err == nil {
				err = x.Close()
			}
			return err
		},
	} {
		// The context would end a wait without an end, and be the error.
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if err := ask(ctx); !errors.Is(err, store.ErrUnreachable) || ctx.Err() != nil {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
	if s := waits.take(); !strings.Contains(s, "waiting for PostgreSQL at ") {
		t.Errorf("the user is told %q", s)
	}
	thaw()
	for err := errors.New("not asked yet"); err != nil; {
		if err = d.AppendChunks(t.Context(), id, chunks[1:], nil); err != nil && !errors.Is(err, store.ErrUnreachable) {
			t.Fatal(err)
		}
	}
	if got := numbers(t, d, id); len(got) != 2 {
		t.Errorf("chunks %v", got)
	}
}

// TestLongQuestionIsWaitedFor asks what takes longer than the server's silence is doubted.
func TestLongQuestionIsWaitedFor(t *testing.T) {
	defer postgres.Patience(20*time.Millisecond, time.Minute)()
	d := openAt(t, database(t))
	var n int
	if err := d.SQL().QueryRowContext(t.Context(), "SELECT 1 FROM pg_sleep(0.5)").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}
