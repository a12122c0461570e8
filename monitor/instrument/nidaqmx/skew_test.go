package nidaqmx

import (
	"math"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/niface"
	"wattmark/monitor/emulator/pace"
)

// A supply that droops, a load that ripples at 20 kHz, and one converter for both
// inputs at 100 kS/s: reading current and voltage half a scan apart makes an error
// of the power, of which at most a tenth is left once the skew is corrected.
func TestSkewOfAMultiplexerIsCorrected(t *testing.T) {
	r := &rig{opts: Defaults()}
	var err error
	r.board, err = board.New(board.Config{
		Seed: 3, Rails: []board.RailConfig{{Name: "aux_12v_1", Role: measure.RolePSU, Open: 12.15, Source: 0.25, Share: 1}},
		Levels: board.Levels{ActiveIdle: 90}, Drift: -1,
		Ripple: board.Ripple{RMS: 20, Low: 19.99e3, High: 20.01e3, Lines: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.board.SetLoad(0, board.ActiveIdle); err != nil {
		t.Fatal(err)
	}
	if r.face, err = niface.New(r.board, pace.Pace{}, niface.Config{Noise: -1, Rails: []string{"aux_12v_1"}}); err != nil {
		t.Fatal(err)
	}
	r.opts.Inputs = []Input{
		{AI: 0, Name: "aux_12v_1.voltage", PerVolt: niface.Divider, Terminal: "differential"},
		{AI: 1, Name: "aux_12v_1.current", Unit: "A", PerVolt: niface.PerVolt, Range: 5},
	}
	r.opts.Rate, r.opts.Buffer = 100e3, 2*time.Second
	r.plug(t, "127.0.0.1:0")
	r.make(t)
	r.open(t)
	out, err := r.stream(t, 60_000, nil)
	if err != nil || out.Lost() > 0 {
		t.Fatal(err, out.Lost())
	}
	in := r.dev.Inputs()
	setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
	setup.Rails, _ = NaturalRails(in)
	lag := setup.Channels[1].Skew - setup.Channels[0].Skew
	if math.Abs(float64(lag)-5e-6) > 1e-9 {
		t.Fatalf("the channels are %v apart, want half a scan", lag)
	}
	const from, to = 0.1, 0.5
	energy := func(s *measure.Setup) float64 {
		g, err := measure.NewIntegrator(s, from, to)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Add(&measure.Block{Counts: [][]measure.Count{out.Counts(0), out.Counts(1)}}); err != nil {
			t.Fatal(err)
		}
		res, err := g.Result(measure.Edges{})
		if err != nil {
			t.Fatal(err)
		}
		return float64(res.Total.Energy)
	}
	start := r.face.StreamStart()
	truth, err := r.board.Energy(start+measure.Seconds(from).Duration(), start+measure.Seconds(to).Duration())
	if err != nil {
		t.Fatal(err)
	}
	after := energy(&setup) - float64(truth.Total)
	setup.Channels[0].Skew, setup.Channels[1].Skew = 0, 0
	before := energy(&setup) - float64(truth.Total)
	t.Logf("off by %.4g J of %v before the correction, %.4g J after", before, truth.Total, after)
	if math.Abs(before) < 1e-3*float64(truth.Total) {
		t.Fatal("there is nothing to correct")
	}
	if math.Abs(after) > math.Abs(before)/10 {
		t.Error("more than a tenth is left")
	}
}
