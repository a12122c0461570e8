package postgres_test

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"wattmark/measure"
	"wattmark/store"
	"wattmark/store/postgres/pgtest"
)

// sampleRow is a row of the view data.
type sampleRow struct {
	task, seq        int64
	name, user, when string
	v                [7]float64 // power, currents, voltages; NaN for NULL
}

const sampleQuery = `SELECT taskID, taskName, user, taskTime, seqNum,
	power, current1, current2, current3, voltage1, voltage2, voltage3 FROM data `

func samples(t testing.TB, d *store.DB, tail string) (out []sampleRow) {
	t.Helper()
	rows := must(d.SQL().QueryContext(t.Context(), sampleQuery+tail))(t)
	defer rows.Close()
	for rows.Next() {
		var r sampleRow
		var v [7]sql.NullFloat64
		ok(t, rows.Scan(&r.task, &r.name, &r.user, &r.when, &r.seq, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6]))
		for i := range v {
			if r.v[i] = v[i].Float64; !v[i].Valid {
				r.v[i] = math.NaN()
			}
		}
		out = append(out, r)
	}
	ok(t, rows.Err())
	return out
}

// windowed stores a random task whose window, if it has one, cuts chunks.
func windowed(t testing.TB, d *store.DB, rng *rand.Rand) {
	tb := measure.Timebase{TickHz: 1e6, TicksPerScan: 50, Stamped: rng.IntN(2) == 0}
	s := randomSetup(rng, tb)
	id := must(d.BeginTask(t.Context(), newTask("gemm", "lab")))(t)
	ok(t, d.PutHeader(t.Context(), id, header(s)))
	chunks, scans := randomChunks(t, rng, s)
	ok(t, d.AppendChunks(t.Context(), id, chunks, nil))
	if rng.IntN(3) > 0 {
		r := &measure.Result{FirstScan: chunks[0].FirstScan + rng.Uint64N(1+scans/2), Samples: rng.Uint64N(scans)}
		ok(t, d.Finish(t.Context(), id, store.Outcome{State: store.Complete, Result: r}))
	}
}

// TestDataIsWhatOurDecoderSays holds the server's view against the decoder in Go
// that serves a file's.
func TestDataIsWhatOurDecoderSays(t *testing.T) {
	file, address := openFile(t), pgtest.Database(t)
	server := openAt(t, address)
	const tasks = 24
	for _, d := range []*store.DB{file, server} {
		rng := rand.New(rand.NewPCG(3, 3))
		for range tasks {
			windowed(t, d, rng)
		}
	}
	total := 0
	for id := 1; id <= tasks; id++ {
		tail := fmt.Sprintf("WHERE taskID=%d ORDER BY seqNum", id)
		want, got := samples(t, file, tail), samples(t, server, tail)
		if len(want) != len(got) {
			t.Fatalf("task %d: %d rows on the server, %d in the file", id, len(got), len(want))
		}
		for i := range want {
			sameSample(t, want[i], got[i])
		}
		total += len(want)
	}
	if total < 5000 {
		t.Fatalf("only %d samples were compared", total)
	}
	if n := pgtest.Psql(t, address, "SELECT count(power) FROM data"); n != strconv.Itoa(total) {
		t.Errorf("psql counts %s samples, there are %d", n, total)
	}
	first := strings.Split(pgtest.Psql(t, address, `SELECT * FROM data WHERE taskID=1 ORDER BY seqNum LIMIT 1`), "|")
	if len(first) != 12 || first[0] != "1" || first[1] != "gemm" || first[2] != "lab" {
		t.Errorf("psql shows %q", first)
	}
	if n := pgtest.Psql(t, address, `SELECT count(*) FROM data WHERE "user"='nobody'`); n != "0" {
		t.Errorf("psql finds %s samples of nobody", n)
	}
}

func sameSample(t *testing.T, want, got sampleRow) {
	t.Helper()
	w, g := want, got
	w.v, g.v = [7]float64{}, [7]float64{}
	if w != g {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	scale := 1.0
	for _, v := range want.v {
		if !math.IsNaN(v) {
			scale = max(scale, math.Abs(v))
		}
	}
	for i := range want.v {
		a, b := want.v[i], got.v[i]
		if math.IsNaN(a) != math.IsNaN(b) || math.Abs(a-b) > 1e-9*scale*(1+math.Abs(a)) {
			t.Fatalf("task %d, sample %d, value %d: got %v, want %v", want.task, want.seq, i, b, a)
		}
	}
}
