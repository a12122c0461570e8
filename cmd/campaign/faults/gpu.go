package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/hostagent"
	"wattmark/measure/marker"
)

// gpu is the card as the host sees it.
type gpu struct {
	*card
	w *world
}

func (g gpu) Info() hostagent.Info {
	return hostagent.Info{Name: "campaign's GPU", UUID: "GPU-00000000-0000-0000-0000-000000000001", Driver: "0", Simulated: true}
}
func (g gpu) Close() error                                { return nil }
func (g gpu) WarmUp(context.Context, time.Duration) error { return errors.ErrUnsupported }
func (g gpu) RunBenchmark(context.Context, hostagent.Benchmark, time.Duration) ([]hostagent.Kernel, error) {
	return nil, errors.ErrUnsupported
}

// times are the host's times of scans. Of a card that another program drives they come
// without a monotonic reading.
func (g gpu) times(scans []uint64) []time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offsets = append(g.offsets, g.clock.step)
	out := make([]time.Time, len(scans))
	for i, s := range scans {
		if out[i] = g.clock.at(seconds(s)); g.w.apart {
			out[i] = out[i].Round(0)
		}
	}
	return out
}

func (g gpu) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (hostagent.Played, error) {
	step := StepStartMarker
	if kind == marker.Stop {
		step = StepStopMarker
	}
	if err := g.w.hostAt(step); err != nil {
		return hostagent.Played{}, err
	}
	edges := g.lay(spec.Chips(kind), float64(spec.Chip)*rate)
	if err := g.await(ctx, edges[len(edges)-1]); err != nil {
		return hostagent.Played{}, fmt.Errorf("play: %w", err)
	}
	at := g.times(edges)
	p := hostagent.Played{Kind: kind, Span: hostagent.Span{Start: at[0], End: at[len(at)-1]}}
	for i, t := range at {
		p.Edges = append(p.Edges, hostagent.PlayedEdge{Chip: i - spec.CodeStart(), At: t})
	}
	return p, nil
}

// work loads the card.
func (g gpu) work(ctx context.Context) ([]hostagent.Kernel, error) {
	edges := g.lay([]bool{true}, workFor.Seconds()*rate)
	g.w.worked.Store(&span{edges[0], edges[1]})
	if err := g.w.hostAt(StepWork); err != nil {
		return nil, err
	}
	if err := g.await(ctx, edges[1]); err != nil {
		return nil, err
	}
	at := g.times(edges)
	return []hostagent.Kernel{{Name: "work", Span: hostagent.Span{Start: at[0], End: at[1]}}}, nil
}
