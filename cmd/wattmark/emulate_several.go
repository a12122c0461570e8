package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/hostagent/sim"
	"wattmark/monitor/emulator/board"
)

// emulate serves meters of several kinds on one card.
func (a *app) emulate(ctx context.Context, kinds []string, f emulateFlags) error {
	each, err := f.split(kinds)
	if err != nil {
		return err
	}
	b, err := board.New(board.Config{Seed: f.seed})
	if err != nil {
		return err
	}
	live := board.NewLive(b, time.Now())
	if f.gpu != "" {
		fmt.Fprintf(a.out, "simulated GPU %s: wattmark run --gpu %s%s\n", sim.UUID(simSeed(f.gpu)), simPrefix, f.gpu)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if f.gpu != "" {
			return servePlant(ctx, f.gpu, live)
		}
		return alternate(ctx, live, f.period)
	})
	for i, kind := range kinds {
		g.Go(func() error { return a.emulateOne(ctx, kind, b, live, each[i]) })
	}
	return g.Wait()
}

// split gives each of the meters its own address and its own noise, and what only
// one kind knows to that kind.
func (f emulateFlags) split(kinds []string) ([]emulateFlags, error) {
	if f.model != "" && !slices.Contains(kinds, "labjack") {
		return nil, withCode(exitUsage, errors.New("--model: only the labjack comes in more than one"))
	}
	if f.play != "" && !slices.Contains(kinds, "pmd") {
		return nil, withCode(exitUsage, errors.New("--play: only pmd plays recorded bytes"))
	}
	out := make([]emulateFlags, len(kinds))
	for i, kind := range kinds {
		out[i] = f
		out[i].seed += uint64(i)
		out[i].faults.Seed = out[i].seed
		if kind != "labjack" {
			out[i].model = ""
		}
		if kind != "pmd" {
			out[i].play = ""
		}
		for name, s := range map[string]*string{"--link": &out[i].link, "--listen": &out[i].listen} {
			if *s == "" || len(kinds) == 1 {
				continue
			}
			parts := strings.Split(*s, ",")
			if len(parts) != len(kinds) {
				return nil, withCode(exitUsage, fmt.Errorf("%s: %d of them for %d meters: separate them by commas, one a meter, empty for none", name, len(parts), len(kinds)))
			}
			*s = parts[i]
		}
	}
	return out, nil
}

// emulateOne serves one meter that measures a board.
func (a *app) emulateOne(ctx context.Context, kind string, b *board.Board, live *board.Live, f emulateFlags) error {
	switch kind {
	case "labjack":
		return a.emulateLabJack(ctx, b, live, f)
	case "nidaqmx":
		return a.emulateNI(ctx, b, live, f)
	}
	face, err := newFace(kind, b, live.Epoch, f)
	if err != nil {
		return err
	}
	if f.listen != "" {
		return a.serveTCP(ctx, face, kind, f)
	}
	return a.servePTY(ctx, face, kind, f)
}
