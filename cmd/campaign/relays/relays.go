// Package relays plays faults against the way from a host's database to a store: the real
// database, the real relay, a real node of a cluster and a real store, in one process.
// Tasks come into the database in parts, from files and other databases, and are cut off
// in between, while the relay publishes; and somebody publishes what can never be stored.
package relays

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"wattmark/cmd/campaign/play"
)

// Options are a campaign's settings.
type Options struct {
	play.Options
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

// kind is what comes in, and how it is cut off; or what is published that cannot be stored.
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

// Schedule is what happens to one place.
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
func Table(r *play.Report) string {
	var all []string
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return r.Table(all, outcomes)
}

// Run plays schedules, 6 at a time if Options do not say another number.
func Run(ctx context.Context, o Options) (play.Report, error) {
	if o.Workers <= 0 {
		o.Workers = 6
	}
	if o.Dir == "" {
		o.Dir = play.Scratch()
	}
	return play.Run(ctx, o.Options, func(ctx context.Context, seed uint64) (play.Result, error) {
		return Play(ctx, o, Draw(seed, o.Program != ""))
	})
}

// Play plays one schedule in a folder of its own.
func Play(ctx context.Context, o Options, s Schedule) (r play.Result, err error) {
	r.Schedule, r.Again, r.Struck = s.String(), fmt.Sprintf("--schedules 0 --relays 1 --verbose --seed %d", s.Seed), []string{s.name}
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
