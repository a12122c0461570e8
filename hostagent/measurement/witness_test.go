package measurement

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/witness"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// wiredTask is a task of 12 s whose meter, 30 ppm fast, sees a line that its host switches, so late by its own clock.
type wiredTask struct {
	late    float64 // s
	channel string
	dead    bool // the line is not wired
}

func (w wiredTask) stored(t *testing.T, db *store.DB, rng *rand.Rand) (store.Task, *clock.Fit) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, UTickHz: 50e-6, TicksPerScan: 500},
		Channels: []measure.Channel{
			{Name: "power", Unit: measure.UnitWatt, Gain: 0.1}, {Name: w.channel, Unit: measure.UnitVolt, Gain: 1e-3},
		},
		Rails: []measure.Rail{{Name: "aux_12v_1", Role: measure.RolePSU, Wiring: measure.WiringPower, Y: -1}},
	}
	const rate = 1 + 30e-6
	host := func(m float64) time.Time { return after(100 + m/rate) }
	id, err := db.BeginTask(t.Context(), store.NewTask{Name: "x", User: "ada", Launched: day})
	must(err)
	must(db.PutHeader(t.Context(), id, store.Header{
		Bench: "lab", Setup: setup, CalibrationID: setup.CalibrationID(), Started: day,
	}))
	var changes []float64
	var readings []store.Reading
	for at := 0.4; at < 11.5; at += 0.3 + 0.6*rng.Float64() {
		took := 1e-4 + 1e-4*rng.Float64()
		changes = append(changes, at+took*rng.Float64()+w.late)
		r := store.Reading{Method: witness.Method, At: host(at), Value: took}
		if len(changes)%2 == 0 {
			r.Value = -took
		}
		readings = append(readings, r)
	}
	must(db.PutReadings(t.Context(), id, readings))
	enc, err := chunk.NewEncoder(setup.Timebase, 2, chunk.MaxScans)
	must(err)
	const scans = 24_000
	b := measure.Block{Counts: [][]measure.Count{make([]measure.Count, scans), make([]measure.Count, scans)}}
	n := 0
	for i := range scans {
		for n < len(changes) && changes[n] <= float64(i)*5e-4 {
			n++
		}
		b.Counts[0][i], b.Counts[1][i] = 1000, measure.Count(rng.IntN(10))
		if n%2 == 1 && !w.dead {
			b.Counts[1][i] += 3300
		}
	}
	var chunks []*chunk.Chunk
	for at := 0; at < scans; {
		rest := b.Slice(setup.Timebase, at, scans)
		k, err := enc.Append(&rest)
		must(err)
		at += k
		chunks = append(chunks, enc.Flush(uint64(len(chunks))).Clone())
	}
	must(db.AppendChunks(t.Context(), id, chunks, nil))
	played := append(playedAs(host, marker.Start, 1), playedAs(host, marker.Stop, 11)...)
	fit, err := relate(&setup, played, []marker.Found{found(marker.Start, 1), found(marker.Stop, 11)})
	must(err)
	task, err := db.Task(t.Context(), id)
	must(err)
	return task, fit
}

// A line that this host switches shows whether the marker kernels place the meter's time rightly.
func TestAWiredWitness(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "power.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, c := range map[string]struct {
		wiredTask
		want []string
	}{
		"it agrees":  {wiredTask{channel: "witness"}, []string{"changes of the witness line the meter saw", "behind where the marker"}},
		"it is late": {wiredTask{channel: "daq/witness", late: 0.4e-3}, []string{"on the average +0.", "the two do not agree"}},
		"not wired":  {wiredTask{channel: "witness", dead: true}, []string{"changes far more often", "is it wired"}},
		"no channel": {wiredTask{channel: "ai7"}, []string{"no channel of the meter is named witness"}},
	} {
		task, fit := c.stored(t, db, rng)
		got, err := wired(t.Context(), db, &task, fit)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		t.Logf("%s: %s", name, got)
	}
	within := 0
	const trials = 30
	for range trials {
		task, fit := wiredTask{channel: "witness"}.stored(t, db, rng)
		got, err := wired(t.Context(), db, &task, fit)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, "do not agree") {
			within++
		}
	}
	t.Logf("%d of %d agree", within, trials)
	if p := 0.95; float64(within) < trials*p-3*math.Sqrt(trials*p*(1-p)) {
		t.Errorf("%d of %d agree", within, trials)
	}
	if got, err := wired(t.Context(), nil, &store.Task{}, nil); got != "" || err != nil {
		t.Errorf("without a fit: %q, %v", got, err)
	}
}
