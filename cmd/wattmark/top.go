package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"wattmark/hostagent/monitorclient"
)

// topFlags say what wattmark top looks at.
type topFlags struct {
	monitor string
	every   time.Duration
	once    bool
	idle    bool
	plain   bool
}

// topPoll is how often the bench and its captures are asked for.
const topPoll = time.Second

func (a *app) topCmd() *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use: "top", Short: "Watch a monitor's rails live: power, who has the bench, losses, captures", Args: cobra.NoArgs,
		Long: `Show what a monitor measures now: the power of each rail with its recent course,
the total, who holds the bench, the sample rate, lost scans, and the captures
that it keeps. The values are averages over --every; what this terminal is too
slow for is dropped and counted, and never holds up a capture.

A free bench is sampled for as long as somebody looks on; whoever wants to
measure gets it at once. --idle=false leaves a free bench alone.

Keys: q or Ctrl-C quits, p or space holds the picture. Where the standard output
is no terminal, a line is printed each second; --once and --json print one
picture and end.`,
		Example: "  wattmark top --monitor lab-monitor:7551\n  wattmark top --once --json | jq .total_w",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.every < 10*time.Millisecond || f.every > 10*time.Second {
				return withCode(exitUsage, fmt.Errorf("--every %v: want 10ms to 10s", f.every))
			}
			return a.top(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.monitor, "monitor", defaultMonitor, "address of the monitor")
	fl.DurationVar(&f.every, "every", 50*time.Millisecond, "distance of the values, each an average")
	fl.BoolVar(&f.once, "once", false, "print one picture and end")
	fl.BoolVar(&f.idle, "idle", true, "also sample a bench that nobody holds")
	fl.BoolVar(&f.plain, "plain", false, "print a line a second, on a terminal too")
	return a.jsonFlag(c)
}

func (a *app) top(ctx context.Context, f topFlags) error {
	client, err := dialMeter(ctx, f.monitor, monitorclient.Options{Version: version()})
	if err != nil {
		return err
	}
	defer client.Close()
	switch {
	case f.once || a.json:
		return a.topOnce(ctx, client, f)
	case f.plain || !isTerminal(a.out):
		return a.topLines(ctx, client, f)
	}
	return a.topScreen(ctx, client, f)
}

// topMessage is news for the picture.
type topMessage interface{ apply(*topState) }

type (
	momentNews struct{ m monitorclient.Moment }
	benchNews  struct {
		bench    monitorclient.Bench
		captures []monitorclient.Capture
	}
	failureNews struct{ err error }
)

// feedTop brings news of a monitor until ctx ends. What breaks is told, and
// tried again: a viewer outlives its monitor.
func feedTop(ctx context.Context, c *monitorclient.Client, f topFlags, tell func(topMessage)) {
	var g errgroup.Group
	g.Go(func() error {
		repeat(ctx, func() {
			if n, err := askBench(ctx, c); err != nil {
				tell(failureNews{err})
			} else {
				tell(n)
			}
		})
		return nil
	})
	g.Go(func() error {
		repeat(ctx, func() {
			o := monitorclient.WatchOptions{Every: f.every, Idle: f.idle}
			err := c.Watch(ctx, o, func(m monitorclient.Moment) error {
				tell(momentNews{m})
				return ctx.Err()
			})
			if err != nil && ctx.Err() == nil {
				tell(failureNews{err})
			}
		})
		return nil
	})
	_ = g.Wait() // neither returns an error
}

// repeat calls f now and then, until ctx ends.
func repeat(ctx context.Context, f func()) {
	tick := time.NewTicker(topPoll)
	defer tick.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// askBench asks who holds the bench, and which captures are there.
func askBench(ctx context.Context, c *monitorclient.Client) (benchNews, error) {
	b, err := c.GetBench(ctx)
	if err != nil {
		return benchNews{}, err
	}
	cs, err := c.Captures(ctx)
	return benchNews{b, cs}, err
}

// topPatience is how long one picture waits for the first values.
const topPatience = 10 * time.Second

// snapshot waits until there is a picture: the bench, and values where there
// should be some.
func snapshot(ctx context.Context, c *monitorclient.Client, f topFlags) (*topState, error) {
	n, err := askBench(ctx, c)
	if err != nil {
		return nil, err
	}
	s := newTopState(c.Address())
	n.apply(s)
	if !f.idle && n.bench.Holder == "" {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	enough := errors.New("enough")
	err = c.Watch(ctx, monitorclient.WatchOptions{Every: f.every, Idle: f.idle}, func(m monitorclient.Moment) error {
		momentNews{m}.apply(s)
		// The first average is of what was under way when the look began.
		if m.Trouble != "" || s.seen > 1 {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return nil, err
	}
	return s, nil
}

func (a *app) topOnce(ctx context.Context, c *monitorclient.Client, f topFlags) error {
	s, err := snapshot(ctx, c, f)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(s.report())
	}
	_, err = fmt.Fprintln(a.out, topView{width: terminalWidth(a.out), now: time.Now(), look: plainLook()}.picture(s))
	return err
}

// topLines prints a line each second.
func (a *app) topLines(ctx context.Context, c *monitorclient.Client, f topFlags) error {
	s, err := snapshot(ctx, c, f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan topMessage)
	done := make(chan struct{})
	go func() {
		defer close(done)
		feedTop(ctx, c, f, func(m topMessage) {
			select {
			case news <- m:
			case <-ctx.Done():
			}
		})
	}()
	defer func() { cancel(); <-done }()
	tick := time.NewTicker(topPoll)
	defer tick.Stop()
	for {
		if _, err := fmt.Fprintln(a.out, topLine(s, time.Now())); err != nil {
			return err
		}
		for waiting := true; waiting; {
			select {
			case m := <-news:
				m.apply(s)
			case <-tick.C:
				waiting = false
			case <-ctx.Done():
				return nil
			}
		}
	}
}
