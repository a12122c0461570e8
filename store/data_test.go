package store

import (
	"database/sql"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

func near(a, b, scale float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-12*max(math.Abs(a), scale)
}

func compare(t *testing.T, what string, want, got []dataRow) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		same := w.task == g.task && w.name == g.name && w.user == g.user && w.time == g.time && w.seq == g.seq
		for k := range w.v {
			scale := 0.0
			if k == 0 {
				scale = w.scale
			}
			// A voltage made of sums that cancel is as good as the sums are.
			if k >= 4 {
				scale = w.scale / math.Max(math.Abs(w.v[k-3]), 1e-300)
			}
			same = same && near(w.v[k], g.v[k], scale)
		}
		if !same {
			t.Fatalf("%s: row %d is\n%+v, want\n%+v", what, i, g, w)
		}
	}
}

const everything = `SELECT taskID, taskName, user, power, current1, current2, current3,
	voltage1, voltage2, voltage3, taskTime, seqNum FROM `

func readRows(t *testing.T, d *DB, query string, args ...any) []dataRow {
	t.Helper()
	out, err := collect(t.Context(), d, "", func(rows *sql.Rows, r *dataRow) error {
		v := &r.v
		return rows.Scan(&r.task, &r.name, &r.user, (*real)(&v[0]), (*real)(&v[1]), (*real)(&v[2]), (*real)(&v[3]),
			(*real)(&v[4]), (*real)(&v[5]), (*real)(&v[6]), &r.time, &r.seq)
	}, query, args...)
	ok(t, err)
	return out
}

// stock runs a query in Debian's sqlite3 on the file as it lies there.
func stock(t *testing.T, d *DB, query string) []dataRow {
	t.Helper()
	program, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("the program sqlite3 is not installed: its reading of the view is not tested")
	}
	out, err := exec.CommandContext(t.Context(), program, "-readonly", "-csv", d.path, query).Output()
	if err != nil {
		t.Fatalf("sqlite3: %v\n%s", err, err.(*exec.ExitError).Stderr)
	}
	records, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	ok(t, err)
	var rows []dataRow
	for _, f := range records {
		r := dataRow{name: f[1], user: f[2], time: f[10]}
		r.task, _ = strconv.ParseInt(f[0], 10, 64)
		r.seq = must(strconv.ParseInt(f[11], 10, 64))(t)
		for k := range r.v {
			if r.v[k] = math.NaN(); f[3+k] != "" {
				r.v[k] = must(strconv.ParseFloat(f[3+k], 64))(t)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// TestDataAgreesEverywhere draws tasks of all wirings and compares three ways
// to the same rows: our arithmetic from the counts, the view in our SQLite, and the view
// in the stock program.
func TestDataAgreesEverywhere(t *testing.T) {
	coverage.Long(t)
	d := open(t)
	var all []dataRow
	seeds := uint64(24)
	if testing.Short() {
		seeds = 4 // SQLite's look-ups take long under the race detector
	}
	for seed := range seeds {
		s := randomTask(t, d, rand.New(rand.NewPCG(seed, 11)), seed%2 == 0)
		want := s.want()
		compare(t, fmt.Sprintf("seed %d, view", seed), want, readRows(t, d, everything+"data WHERE taskID=? ORDER BY seqNum", int64(s.id)))
		compare(t, fmt.Sprintf("seed %d, sqlite3", seed), want, stock(t, d, everything+fmt.Sprintf("data WHERE taskID=%d", s.id)))
		all = append(all, want...)
	}
	compare(t, "all tasks, view", all, readRows(t, d, everything+"data ORDER BY taskID, seqNum"))
}

func TestDataOfUnusualTasks(t *testing.T) {
	d := open(t)
	empty := must(d.BeginTask(t.Context(), NewTask{Name: "no header", User: "lab"}))(t)
	noChunks := begin(t, d, threeRails(evenly))
	var n, unknown int
	ok(t, d.SQL().QueryRow("SELECT count(*) FROM data").Scan(&n))
	if n != 0 {
		t.Errorf("%d rows of tasks without samples", n)
	}
	// A task that was launched at no known time has none in taskTime.
	ok(t, d.PutHeader(t.Context(), empty, header(threeRails(evenly))))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 10, 4)
	ok(t, d.AppendChunks(t.Context(), empty, encode(t, evenly, b, 10, 0), nil))
	ok(t, d.SQL().QueryRow("SELECT count(*), sum(taskTime IS NULL) FROM data").Scan(&n, &unknown))
	if n != 10 || unknown != 10 {
		t.Errorf("%d rows, %d without a time", n, unknown)
	}
	// An empty window is empty, not absent.
	ok(t, d.Finish(t.Context(), empty, Outcome{State: Complete, Result: &measure.Result{FirstScan: 3}}))
	ok(t, d.Finish(t.Context(), noChunks, Outcome{State: Incomplete, Reason: "nothing came"}))
	if got := readRows(t, d, everything+"data"); len(got) != 0 {
		t.Errorf("%d rows in an empty window", len(got))
	}
}

// TestWritingThroughSQLIsRefused holds the pool for queries to its word.
func TestWritingThroughSQLIsRefused(t *testing.T) {
	d := open(t)
	begin(t, d, threeRails(evenly))
	for _, q := range []string{"DELETE FROM task", "INSERT INTO user(login) VALUES('x')", "DROP VIEW data", "DELETE FROM data"} {
		if _, err := d.SQL().ExecContext(t.Context(), q); err == nil {
			t.Errorf("%s was done", q)
		}
	}
}

// dataRow is one row of data; NULL is NaN. scale is how large the sums behind
// power were, for the comparison of sums that cancel out.
type dataRow struct {
	task       int64
	name, user string
	v          [7]float64 // power, current1..3, voltage1..3
	time       string
	seq        int64
	scale      float64
}

// sample is a task as the test made it.
type sample struct {
	id     TaskID
	setup  measure.Setup
	blocks []measure.Block
	window bool
	first  uint64
	count  uint64
}

// randomSetup draws any number of rails of any wiring and role.
func randomSetup(rng *rand.Rand, tb measure.Timebase) measure.Setup {
	s := measure.Setup{Timebase: tb}
	channel := func(unit measure.Unit) int {
		s.Channels = append(s.Channels, measure.Channel{
			Name: fmt.Sprintf("c%d", len(s.Channels)), Unit: unit,
			Gain: (rng.Float64() + 0.1) * 1e-3, Offset: rng.NormFloat64() * float64(rng.IntN(2)),
		})
		return len(s.Channels) - 1
	}
	for n := 1 + rng.IntN(6); len(s.Rails) < n; {
		r := measure.Rail{
			Name: fmt.Sprintf("rail%d", len(s.Rails)), Role: measure.Role(1 + rng.IntN(4)),
			Wiring: measure.Wiring(1 + rng.IntN(4)), Y: -1,
		}
		switch r.Wiring {
		case measure.WiringShunt:
			r.Y, r.X, r.Shunt = channel(measure.UnitVolt), channel(measure.UnitVolt), measure.Ohm(0.001+rng.Float64())
		case measure.WiringClamp:
			r.X, r.Y = channel(measure.UnitAmpere), channel(measure.UnitVolt)
		case measure.WiringAssumed:
			r.X, r.Assumed = channel(measure.UnitAmpere), 12
		case measure.WiringPower:
			r.X = channel(measure.UnitWatt)
		}
		s.Rails = append(s.Rails, r)
	}
	channel(measure.UnitVolt) // one that no rail uses
	return s
}

// randomCounts makes counts of any width, of which each 256 may have another.
func randomCounts(rng *rand.Rand, n int) []measure.Count {
	out := make([]measure.Count, n)
	var width, base int32
	for i := range out {
		if i%200 == 0 {
			width, base = int32(rng.IntN(33)), int32(rng.Uint32())>>rng.IntN(20)
		}
		out[i] = base + int32(rng.Uint64()&(1<<width-1))
	}
	return out
}

// randomTask stores blocks with gaps between them, and at times a window that
// cuts chunks.
func randomTask(t testing.TB, d *DB, rng *rand.Rand, one bool) sample {
	tb := measure.Timebase{TickHz: 1e6, TicksPerScan: 50, Stamped: rng.IntN(2) == 0}
	s := sample{setup: randomSetup(rng, tb)}
	for one && !oneARole(s.setup.Rails) {
		s.setup = randomSetup(rng, tb)
	}
	s.id = begin(t, d, s.setup)
	scan, no, total := uint64(rng.IntN(3)*1000), uint64(rng.IntN(4)), uint64(0)
	for range 1 + rng.IntN(4) {
		n := 1 + rng.IntN(1500)
		b := measure.Block{FirstScan: scan, FirstTick: int64(scan) * 50}
		for range s.setup.Channels {
			b.Counts = append(b.Counts, randomCounts(rng, n))
		}
		for i := 0; tb.Stamped && i < n; i++ {
			b.Ticks = append(b.Ticks, b.FirstTick+int64(50*i+rng.IntN(5)))
		}
		chunks := encode(t, tb, b, 1+rng.IntN(1000), no)
		ok(t, d.AppendChunks(t.Context(), s.id, chunks, nil))
		no += uint64(len(chunks))
		s.blocks = append(s.blocks, b)
		total += uint64(n)
		scan += uint64(n + rng.IntN(2)*rng.IntN(3000))
	}
	if s.window = rng.IntN(3) > 0; s.window {
		b := s.blocks[rng.IntN(len(s.blocks))]
		s.first = b.FirstScan + uint64(rng.IntN(b.Scans()))
		s.count = uint64(rng.Int64N(int64(total)))
		ok(t, d.Finish(t.Context(), s.id, Outcome{State: Complete, Result: &measure.Result{FirstScan: s.first, Samples: s.count}}))
	}
	return s
}

// want works the rows out from the counts and Rail.Linear alone.
func (s *sample) want() []dataRow {
	var out []dataRow
	zero := s.blocks[0].FirstScan
	if s.window {
		zero = s.first
	}
	for _, b := range s.blocks {
		for i := range b.Scans() {
			scan := b.FirstScan + uint64(i)
			if s.window && (scan < s.first || uint64(len(out)) == s.count) {
				continue
			}
			r := dataRow{task: int64(s.id), name: "gemm", user: "lab", time: "2026-03-04T05:06:07.123456Z", seq: int64(scan - zero)}
			s.fill(&r, &b, i)
			out = append(out, r)
		}
	}
	return out
}

func (s *sample) fill(r *dataRow, b *measure.Block, i int) {
	var current, power, volts [5]float64
	var rails [5]int
	var hidden [5]bool
	for _, rail := range s.setup.Rails {
		l, k := rail.Linear(s.setup.Channels), rail.Role
		x, y := float64(b.Counts[rail.X][i]), 0.0
		if rail.Y >= 0 {
			y = float64(b.Counts[rail.Y][i])
		}
		amp, volt := l.I0+l.IX*x+l.IY*y, l.V0+l.VY*y
		r.v[0] += amp * volt
		r.scale += math.Abs(amp * volt)
		current[k] += amp
		power[k] += amp * volt
		volts[k] = volt
		rails[k]++
		hidden[k] = hidden[k] || rail.Wiring == measure.WiringPower
	}
	for k := 1; k <= 3; k++ {
		r.v[k], r.v[3+k] = math.NaN(), math.NaN()
		if rails[k] > 0 && !hidden[k] {
			if r.v[k], r.v[3+k] = current[k], volts[k]; rails[k] > 1 {
				r.v[3+k] = power[k] / current[k]
			}
		}
	}
}
