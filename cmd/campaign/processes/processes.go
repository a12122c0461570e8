// Package processes plays faults against real processes: wattmark's emulated meter on
// a pseudo-terminal, its monitor, its run and its daemon. They are killed with SIGKILL,
// stopped with SIGSTOP, ended with SIGTERM. The meter's pseudo-terminal is unplugged.
// Where network namespaces can be made, monitor and host are machines of their own,
// and the line between them is cut and disturbed.
package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"wattmark/cmd/campaign/network"
	"wattmark/cmd/campaign/play"
)

// Options are a campaign's settings. The folder of a schedule with violations stays, with
// what the processes logged.
type Options struct {
	play.Options
	// Program is wattmark, to be run.
	Program string
	// Together puts all processes on this machine's own loopback. Nothing happens to
	// their network then.
	Together bool
}

// Available tells why network namespaces cannot be made here; nil where they can.
func Available() error {
	n, err := network.New(fmt.Sprintf("wmcampaign%d-try", os.Getpid()))
	if err != nil {
		return err
	}
	return n.Close()
}

// Run plays schedules, 6 at a time if Options do not say another number. An error means
// that the campaign itself could not go on.
func Run(ctx context.Context, o Options) (play.Report, error) {
	if o.Workers <= 0 {
		o.Workers = 6
	}
	return play.Run(ctx, o.Options, func(ctx context.Context, seed uint64) (play.Result, error) {
		return one(ctx, o, Draw(seed, o.Together))
	})
}

// Table is faults × outcomes as Markdown.
func Table(r *play.Report) string {
	var all []string
	for _, k := range slices.Concat(nearby, between) {
		all = append(all, k.name)
	}
	return r.Table(all, []string{"complete", "incomplete", "untrimmed", noTask})
}

// one plays a schedule in a folder and on machines of its own.
func one(ctx context.Context, o Options, s Schedule) (r play.Result, err error) {
	r.Schedule, r.Again = s.String(), fmt.Sprintf("--schedules 0 --real 1 --verbose --seed %d", s.Seed)
	for _, f := range s.Faults {
		r.Struck = append(r.Struck, f.name)
	}
	p, err := newPlace(ctx, o, s.Seed)
	if err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, p.end(len(p.violations) > 0))
		r.Violations = p.violations
	}()
	if err := p.open(ctx, s.Daemon); err != nil {
		return r, err
	}
	if err := p.start("run"); err != nil {
		return r, err
	}
	for _, f := range s.Faults {
		wait(ctx, f.After)
		if err := p.strike(ctx, f); err != nil {
			return r, err
		}
	}
	if err := p.ends(ctx, "run"); err != nil {
		p.fail("%v", err)
	}
	if !s.Daemon {
		if err := p.start("host"); err != nil {
			return r, err
		}
	}
	if err := p.until(ctx, "rest", func() error { return errors.Join(p.ended(ctx), p.free(ctx)) }); err != nil {
		p.fail("%v", err)
	}
	r.Outcome = p.check(ctx)
	p.leaks(ctx)
	p.untouched()
	return r, context.Cause(ctx)
}
