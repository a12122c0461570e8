package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent"
	"wattmark/hostagent/cupti"
	"wattmark/hostagent/launchlog"
	"wattmark/hostagent/measurement"
	"wattmark/measure/marker"
)

// selectFlags say which launches of a program get markers of their own.
type selectFlags struct {
	kernel        string
	every, atMost int
}

// defaultAtMost keeps a program of a million launches from taking days.
const defaultAtMost = 100

func (f *selectFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.kernel, "kernel", "", "with --auto: play markers around the launches of kernels whose symbol this regular expression matches (cuGraphLaunch: of graphs)")
	fl.IntVar(&f.every, "every", 1, "with --kernel: around every so many launches of a kernel")
	fl.IntVar(&f.atMost, "at-most", defaultAtMost, "with --kernel: around so many launches of a process")
}

// selects has the program bracket the launches that the flags name, with markers
// that fit the bench.
func (r *autoRun) selects(ctx context.Context, f selectFlags, cfg *measurement.Config) error {
	if f.kernel == "" {
		return nil
	}
	b, err := cfg.Monitor.GetBench(ctx)
	if err != nil {
		return err
	}
	if len(b.Setup.Channels) == 0 {
		return fmt.Errorf("%w: %s", measurement.ErrBench, b.Trouble)
	}
	s := cupti.Selection{Kernel: f.kernel, Every: f.every, AtMost: f.atMost, Marker: marker.ProfileFor(b.Setup, rand.Uint32())}
	if _, err := s.Validate(); err != nil {
		return withCode(exitUsage, fmt.Errorf("--kernel, --every, --at-most: %w", err))
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	r.selection, cfg.Marker, cfg.Played = string(text), &s.Marker, r.played
	return nil
}

// played reads which markers the program's processes played. A log that is damaged
// tells what stands before the damage; that it is damaged is told when its kernels
// are stored.
func (r *autoRun) played() ([]hostagent.Played, error) {
	logs, err := filepath.Glob(filepath.Join(r.logs, "*"+cupti.LogSuffix))
	if err != nil {
		return nil, err
	}
	var out []hostagent.Played
	for _, path := range logs {
		list, err := playedIn(path)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

func playedIn(path string) (out []hostagent.Played, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := launchlog.Open(f)
	if errors.Is(err, launchlog.ErrNotLog) {
		return nil, nil
	}
	for k := new(launchlog.Kernel); err == nil; {
		err = l.Next(k)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, launchlog.ErrCorrupt) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, m := range l.Process.Markers {
		p := hostagent.Played{Kind: m.Kind}
		for i, e := range m.Edges {
			p.Edges = append(p.Edges, hostagent.PlayedEdge{Chip: m.First + i, At: time.Unix(0, e)})
		}
		out = append(out, p)
	}
	return out, nil
}
