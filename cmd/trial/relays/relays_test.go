// Package relays plays faults against the way from a host's database to a store: the real
// database, the real relay, a real node of a cluster and a real store, in one process.
// Tasks come into the database in parts, from files and other databases, and are cut off
// in between, while the relay publishes; and a stranger publishes messages that can never be stored.
package relays

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/trial/internal/harness"
)

// Options are a campaign's settings.
type Options struct {
	harness.Options
	// Program is wattmark, whose import of files is tried; none when empty.
	Program string
	Broken  Broken
	// Patience bounds each wait: by default far more than is ever needed, also on a busy
	// machine.
	Patience time.Duration
}

// Broken is a fault of the product itself, to see that the campaign finds it.
type Broken uint8

// The builds.
const (
	// Whole is the product as it is.
	Whole Broken = iota
	// PublishHalf is an import whose task is there for all before it is whole.
	PublishHalf
	// KeepTrying is a store that sets nothing aside of which it does not know why it
	// cannot be stored.
	KeepTrying
)

// kind is the way in which tasks come in and are cut off; or the poison that is published.
type kind struct {
	name   string
	deed   deed
	end    end
	poison poison
}

type end uint8

const (
	ends end = iota // by itself
	cancelled
	killed
)

// kinds are all of them; those of files come last, as they need the program.
var kinds = []kind{
	{name: "database imported beside a relay", deed: importing},
	{name: "database's import cancelled", deed: importing, end: cancelled},
	{name: "database's import killed", deed: importing, end: killed},
	{name: "tasks copied beside a relay", deed: copying},
	{name: "copy of tasks cancelled", deed: copying, end: cancelled},
	{name: "copy of tasks killed", deed: copying, end: killed},
	{name: "published: a table that nobody knows", poison: strangeTable},
	{name: "published: rows that contradict themselves", poison: badRows},
	{name: "published: no database", poison: noDatabase},
	{name: "published: samples that are not there", poison: noSamples},
	{name: "published: an end of nothing", poison: badEnd},
	{name: "file imported beside a relay", deed: fileIn},
	{name: "file's import killed", deed: fileIn, end: killed},
}

// Schedule is the course of one place.
type Schedule struct {
	Seed uint64
	kind
	// At is the sync of the host's database, from the beginning of the deed on, at which
	// the relay looks for tasks, and then the deed is cut off.
	At int
	// Again: it is done once more, as a user does.
	Again bool
}

func (s Schedule) String() string {
	return fmt.Sprintf("relays, seed %d: %s at sync %d, done again: %v", s.Seed, s.name, s.At, s.Again)
}

// Draw makes the schedule of a seed; files are imported where there is a program.
func Draw(seed uint64, files bool) Schedule {
	all := kinds
	if !files {
		all = slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.deed == fileIn })
	}
	rng := rand.New(rand.NewPCG(seed, 0x4e1a))
	return Schedule{Seed: seed, kind: all[seed%uint64(len(all))], At: 1 + rng.IntN(8), Again: rng.IntN(2) == 0}
}

// The outcomes.
var outcomes = []string{"whole", "absent"}

// Table is faults × outcomes as Markdown.
func Table(r *harness.Report) string {
	var all []string
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return r.Table(all, outcomes)
}

// Run plays schedules, 6 at a time unless Options have another number.
func Run(ctx context.Context, o Options) (harness.Report, error) {
	if o.Workers <= 0 {
		o.Workers = 6
	}
	if o.Dir == "" {
		o.Dir = harness.Scratch()
	}
	return harness.Run(ctx, o.Options, func(ctx context.Context, seed uint64) (harness.Result, error) {
		return Play(ctx, o, Draw(seed, o.Program != ""))
	})
}

// Play plays one schedule in a folder of its own.
func Play(ctx context.Context, o Options, s Schedule) (r harness.Result, err error) {
	r.Schedule, r.Struck = s.String(), []string{s.name}
	r.Again = fmt.Sprintf("go test ./cmd/trial/relays -run Relays -v -schedules 1 -seed %d", s.Seed)
	dir, err := os.MkdirTemp(o.Dir, fmt.Sprintf("relays%d-", s.Seed))
	if err != nil {
		return r, err
	}
	p, err := newPlace(ctx, o, s, dir)
	if err == nil {
		r.Outcome, err = p.play()
		err = errors.Join(err, p.close())
		r.Violations = p.violations
	}
	return r, errors.Join(err, os.RemoveAll(dir))
}

// The settings of TestRelays.
var (
	settings = harness.NewFlags()
	wattmark = flag.String("wattmark", "", "the program whose import of files is tried; none when empty")
)

// Tasks come to a store whole or not at all, for as many schedules as there is time for.
func TestRelays(t *testing.T) {
	if testing.Short() {
		t.Skip("store/relay looks for races")
	}
	r, err := Run(t.Context(), Options{Options: settings.Options(t, 44, 25*time.Second), Program: harness.Path(*wattmark)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v\n%s", &r, Table(&r))
	for _, v := range r.Violated {
		t.Error(v)
	}
}

// A product that breaks its word is caught, within a few schedules in which it keeps it as
// it is.
func TestBrokenBuildsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("it is caught without -short")
	}
	for _, c := range []struct {
		name   string
		broken Broken
		seed   uint64 // of a schedule in which it has the chance
	}{
		{"published half", PublishHalf, 0},
		{"tried for ever", KeepTrying, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := map[Broken]kind{PublishHalf: kinds[0], KeepTrying: kinds[7]}[c.broken]
			if got := Draw(c.seed, false).kind; got != want {
				t.Fatalf("seed %d is of %q", c.seed, got.name)
			}
			for try := range uint64(10) {
				s := Draw(c.seed+11*try, false)
				o := Options{Options: harness.Options{Dir: harness.Scratch()}, Broken: c.broken, Patience: 10 * time.Second}
				r, err := Play(t.Context(), o, s)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Violations) == 0 {
					continue
				}
				t.Logf("caught by schedule %d: %v", try+1, r)
				o.Broken, o.Patience = Whole, 0
				if r, err = Play(t.Context(), o, s); err != nil || len(r.Violations) > 0 {
					t.Errorf("the product as it is breaks its word in the same schedule: %v, %v", r, err)
				}
				return
			}
			t.Error("not caught by 10 schedules")
		})
	}
}
