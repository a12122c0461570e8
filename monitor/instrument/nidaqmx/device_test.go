package nidaqmx

import (
	"math"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/niface"
	"wattmark/monitor/instrument/insttest"
)

// placed checks that every scan of a channel has the value that the board had
// when that channel was converted.
func (r *rig) placed(t *testing.T, out *insttest.Collector) {
	t.Helper()
	in := r.dev.Inputs()
	for c := range in.Channels {
		counts, ch := out.Counts(c), in.Channels[c]
		for i, scan := range out.Scans() {
			at := r.face.StreamStart() + time.Duration(math.Round(1e9*(float64(scan)/float64(in.Timebase.TickHz)+float64(ch.Skew))))
			rail := r.board.At(at)[railOf(r.board, rails[c/2])]
			want, most := float64(rail.V), 2e-3
			if ch.Unit == measure.UnitAmpere {
				want, most = float64(rail.I), 5e-3
			}
			if got := ch.Value(counts[i]); math.Abs(got-want) > most {
				t.Fatalf("%s at scan %d: %v, the board had %v", ch.Name, scan, got, want)
			}
		}
	}
}

func TestMeasuresAndIsPlaced(t *testing.T) {
	for name, rate := range map[string]float64{"padded conversions": 5000, "even conversions": 100_000, "a rate to be divided": 7777} {
		t.Run(name, func(t *testing.T) {
			r := emulate(t, niface.Config{Noise: -1})
			r.opts.Rate = rate
			r.make(t)
			r.open(t)
			if id := r.dev.Identity(); id.Model != "USB-6259" || id.Serial != "1A2B3C0" || id.Firmware != "NI-DAQmx 24.5" {
				t.Errorf("%+v", id)
			}
			skew := 11e-6
			if rate == 100_000 {
				skew = 1.25e-6
			}
			in := r.dev.Inputs()
			if got := float64(in.Channels[7].Skew); math.Abs(got-7*skew) > 1e-12 {
				t.Errorf("the last of eight inputs is %v s late, want %v", got, 7*skew)
			}
			if got, want := float64(in.Timebase.TickHz), 20e6/math.Round(20e6/rate); math.Abs(got-want) > 1e-6 {
				t.Errorf("%v scans a second, the clock gives %v", got, want)
			}
			for range 2 { // a second stream begins anew
				out, err := r.stream(t, 20_000, nil)
				if err != nil {
					t.Fatal(err)
				}
				if out.Lost() != 0 || len(out.Events(0)) != 0 {
					t.Errorf("%+v", out.Events(0))
				}
				r.placed(t, out)
			}
		})
	}
}

// Simultaneous converters have no skew.
func TestSimultaneousSampling(t *testing.T) {
	r := emulate(t, niface.Config{Noise: -1, Simultaneous: true, Product: "USB-6356"})
	r.open(t)
	for _, c := range r.dev.Inputs().Channels {
		if c.Skew != 0 {
			t.Errorf("%s: skew %v", c.Name, c.Skew)
		}
	}
	out, err := r.stream(t, 2000, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.placed(t, out)
}

// The energy lies within its uncertainty, with a device that is off by as much as
// the driver states.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	inside := 0
	const seeds = 5
	for seed := range uint64(seeds) {
		r := emulate(t, niface.Config{Seed: seed, Draw: true})
		r.open(t)
		out, err := r.stream(t, 40_000, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := r.dev.Inputs()
		setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
		setup.Rails, setup.Missing = NaturalRails(in)
		if err := setup.Validate(); err != nil {
			t.Fatal(err)
		}
		g, err := measure.NewIntegrator(&setup, 0.1, 7.9)
		if err != nil {
			t.Fatal(err)
		}
		blk := measure.Block{}
		for c := range in.Channels {
			blk.Counts = append(blk.Counts, out.Counts(c))
		}
		if err := g.Add(&blk); err != nil {
			t.Fatal(err)
		}
		res, err := g.Result(measure.Edges{})
		if err != nil {
			t.Fatal(err)
		}
		start := r.face.StreamStart()
		want, err := r.board.Energy(start+100*time.Millisecond, start+7900*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v ± %v, injected %v", res.Total.Energy, res.Total.U, want.Total)
		miss := math.Abs(float64(res.Total.Energy - want.Total))
		if miss <= float64(res.Total.U) {
			inside++
		}
		if miss > 2*float64(res.Total.U) || res.Total.U > 2e-3*res.Total.Energy {
			t.Errorf("%v ± %v, injected %v", res.Total.Energy, res.Total.U, want.Total)
		}
	}
	if inside < seeds-1 {
		t.Errorf("%d of %d lie within U", inside, seeds)
	}
}

// A signal beyond the range stands at the end of the codes, and is told as such.
func TestOverRange(t *testing.T) {
	r := emulate(t, niface.Config{})
	r.opts.Inputs[1].Range = 0.1 // the clamp gives some volts
	r.make(t)
	r.open(t)
	out, err := r.stream(t, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	for c, ch := range r.dev.Inputs().Channels {
		for i, n := range out.Counts(c) {
			if ch.OverRange(n) != (c == 1) {
				t.Fatalf("%s, scan %d: code %d over range?", ch.Name, i, n)
			}
		}
	}
}
