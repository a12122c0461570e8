package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/replay"
)

// spot finds markers in what an instrument delivers and integrates later.
type spot struct {
	tb     measure.Timebase
	det    *marker.Detector
	blocks []measure.Block
}

func (s *spot) Event(measure.Event) error { return nil }

func (s *spot) Block(b *measure.Block) error {
	own := measure.Block{FirstScan: b.FirstScan, FirstTick: b.FirstTick, Ticks: append([]int64(nil), b.Ticks...)}
	for _, c := range b.Counts {
		own.Counts = append(own.Counts, append([]measure.Count(nil), c...))
	}
	s.blocks = append(s.blocks, own)
	return s.det.Push(b)
}

// TestMarkersOnAnH200 plays recordings of a real H200, read by its own sensor,
// through the detector: markers and kernels were timed by the GPU's clock. The
// sensor publishes 0 to 20 ms after its lag, another time in each run, so the window cannot be placed better than that.
func TestMarkersOnAnH200(t *testing.T) {
	t.Parallel()
	const near = measure.Seconds(15e-3)
	for name, want := range map[string]measure.Joule{"memory": 3216, "compute": 1709, "half": 2552, "pulse": 3135, "pulse2": 858} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("..", "..", "testdata", "h200", name)
			host, s, setup := playH200(t, dir)
			start, stop := s.det.Found()[0], s.det.Found()[len(s.det.Found())-1]
			if start.Kind != marker.Start || stop.Kind != marker.Stop || !start.TagOK || !stop.TagOK {
				t.Fatalf("found %+v: want a start and a stop with the task's tag", s.det.Found())
			}
			var obs []clock.Obs
			for _, f := range []marker.Found{start, stop} {
				at := chipAt(host, f.Kind, 0)
				if late := f.T - at; late < -near || late > near {
					t.Errorf("%v marker %v from the GPU's clock (u %v)", f.Kind, late, f.U)
				}
				obs = append(obs, clock.Obs{Host: at, Meter: f.T, U: f.U})
			}
			fit, err := clock.FitClock(obs, clock.Prior{})
			if err != nil {
				t.Fatal(err)
			}
			from, to := sinceStart(host, host.Kernels[0].Start), sinceStart(host, host.Kernels[len(host.Kernels)-1].End)
			a, _ := fit.Meter(from)
			b, _ := fit.Meter(to)
			if math.Abs(float64(a-from)) > float64(near) || math.Abs(float64(b-to)) > float64(near) {
				t.Errorf("the window begins %v and ends %v from the kernels", a-from, b-to)
			}
			g, err := measure.NewIntegrator(setup, a, b)
			for i := range s.blocks {
				err = errors.Join(err, g.Add(&s.blocks[i]))
			}
			if err != nil {
				t.Fatal(err)
			}
			res, err := g.Result(fit.Edges(from, to))
			if err != nil || math.Abs(float64(res.Total.Energy/want)-1) > 0.01 {
				t.Errorf("%v, %v: want %v within 1 %%, as measured that day", res.Total, err, want)
			}
		})
	}
}

func playH200(t *testing.T, dir string) (*exchange.HostSide, *spot, *measure.Setup) {
	t.Helper()
	var host exchange.HostSide
	b, err := os.ReadFile(filepath.Join(dir, exchange.HostFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &host); err != nil {
		t.Fatal(err)
	}
	d, err := replay.New(dir, replay.Options{AtEnd: "stop"})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := d.Inputs()
	setup := &measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Response: in.Response, Rails: instrument.PairRails(in.Channels)}
	det, err := marker.NewDetector(marker.Spec(host.Marker), setup)
	if err != nil {
		t.Fatal(err)
	}
	s := &spot{tb: in.Timebase, det: det}
	if err := d.Stream(t.Context(), instrument.SinkOf(s)); !errors.Is(err, replay.ErrEnd) {
		t.Fatal(err)
	}
	if err := det.Finish(); err != nil || len(det.Found()) < 2 {
		t.Fatalf("%d markers found, %v: want two", len(det.Found()), err)
	}
	return &host, s, setup
}

// sinceStart converts a host time to device time, as both ran on one machine's clock.
func sinceStart(h *exchange.HostSide, at time.Time) measure.Seconds {
	return measure.SecondsOf(at.Sub(h.Started))
}

func chipAt(h *exchange.HostSide, kind marker.Kind, chip int) measure.Seconds {
	for _, p := range h.Played {
		if p.Kind == kind && p.Chip == chip {
			return sinceStart(h, p.At)
		}
	}
	return measure.Seconds(math.NaN())
}
