package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"wattmark/measure/chunk"
)

// BenchmarkAppendChunks stores four chunks of 262 144 six-channel scans a
// transaction, and begins a new task every 64 so that the file stays small.
func BenchmarkAppendChunks(b *testing.B) {
	d := open(b)
	s := threeRails(evenly)
	blk := ripple(rand.New(rand.NewPCG(1, 1)), 6, chunk.MaxScans, 4)
	batch := make([]*chunk.Chunk, 4)
	one := encode(b, evenly, blk, chunk.MaxScans, 0)[0]
	size := 0
	for i := range batch {
		batch[i] = one.Clone()
		size += chunk.PayloadSize(one)
	}
	id, no := begin(b, d, s), uint64(0)
	for b.Loop() {
		b.StopTimer()
		if no == 64 {
			ok(b, d.DeleteTask(b.Context(), id))
			id, no = begin(b, d, s), 0
		}
		for _, c := range batch {
			c.No, c.FirstScan = no, no*chunk.MaxScans
			c.CRC = chunk.Checksum(c)
			no++
		}
		b.StartTimer()
		ok(b, d.AppendChunks(b.Context(), id, batch, nil))
	}
	scans := float64(4*chunk.MaxScans) * float64(b.N)
	b.SetBytes(int64(size))
	b.ReportMetric(scans/b.Elapsed().Seconds()/1e6, "Mscans/s")
	b.ReportMetric(float64(size)/(4*chunk.MaxScans), "B/scan")
}

func BenchmarkPaperTable(b *testing.B) {
	const rows = 100000
	var bytes int64
	for i := 0; b.Loop(); i++ {
		bytes = must(WritePaperTable(b.Context(), filepath.Join(b.TempDir(), fmt.Sprintf("%d.db", i)), rows))(b)
	}
	b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(bytes)/rows, "B/row")
}

// BenchmarkAvgPower reads a million scans of three rails in all ways.
func BenchmarkAvgPower(b *testing.B) {
	d := open(b)
	id := begin(b, d, threeRails(evenly))
	const scans = 1_000_000
	blk := ripple(rand.New(rand.NewPCG(1, 1)), 6, scans, 4)
	ok(b, d.AppendChunks(b.Context(), id, encode(b, evenly, blk, chunk.MaxScans, 0), nil))
	for _, from := range []string{"data", "main.data"} {
		b.Run(map[string]string{"data": "virtual table", "main.data": "view, our SQLite"}[from], func(b *testing.B) {
			for b.Loop() {
				var p float64
				ok(b, d.SQL().QueryRow("SELECT avg(power) FROM "+from+" WHERE taskID=?", int64(id)).Scan(&p))
			}
		})
	}
	b.Run("view, stock sqlite3", func(b *testing.B) {
		for b.Loop() {
			out, err := exec.Command("sqlite3", d.path, "SELECT avg(power) FROM data WHERE taskID=1").CombinedOutput()
			if err != nil {
				b.Skipf("%v %s", err, out)
			}
		}
	})
	b.Run("Chunks", func(b *testing.B) {
		for b.Loop() {
			for _, err := range d.Chunks(b.Context(), id, 0) {
				ok(b, err)
			}
		}
	})
	if st, err := os.Stat(d.path + "-wal"); err == nil {
		b.Logf("log file: %d bytes", st.Size())
	}
}

// BenchmarkCare checks and copies a database of four million scans.
func BenchmarkCare(b *testing.B) {
	d := open(b)
	id := begin(b, d, threeRails(evenly))
	const scans = 16 * chunk.MaxScans
	ok(b, d.AppendChunks(b.Context(), id, encode(b, evenly, ripple(rand.New(rand.NewPCG(1, 1)), 6, scans, 4), chunk.MaxScans, 0), nil))
	ok(b, d.Finish(b.Context(), id, Outcome{State: Incomplete}))
	for name, f := range map[string]func(i int){
		"check":       func(int) { must(d.Check(b.Context(), CheckOptions{}))(b) },
		"check quick": func(int) { must(d.Check(b.Context(), CheckOptions{Quick: true}))(b) },
		"backup":      func(i int) { ok(b, d.Backup(b.Context(), filepath.Join(b.TempDir(), fmt.Sprintf("%d.db", i)), nil)) },
		"detach": func(i int) {
			must(d.Detach(b.Context(), filepath.Join(b.TempDir(), fmt.Sprintf("%d.db", i)), []TaskID{id}, nil))(b)
		},
	} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				f(i)
			}
			b.ReportMetric(scans*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mscans/s")
		})
	}
}
