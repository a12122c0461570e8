package store

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store/internal/data"
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
		bytes = must(writePaperTable(b.Context(), filepath.Join(b.TempDir(), fmt.Sprintf("%d.db", i)), rows))(b)
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
	b.Run("view, our SQLite", func(b *testing.B) {
		for b.Loop() {
			var p float64
			ok(b, d.SQL().QueryRow("SELECT avg(power) FROM data WHERE taskID=?", int64(id)).Scan(&p))
		}
	})
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

// paperSchema is the table of Cheng et al., Table 1: one row a sample.
const paperSchema = `CREATE TABLE data(taskID INTEGER, taskName TEXT, user TEXT, power REAL,
	current1 REAL, current2 REAL, current3 REAL, voltage1 REAL, voltage2 REAL, voltage3 REAL,
	taskTime TEXT, seqNum INTEGER, PRIMARY KEY(taskID, seqNum))`

// paperBatch is the number of rows a transaction: enough that the wait for
// the disk does not count.
const paperBatch = 10000

// writePaperTable writes rows samples of three rails the way of the paper, a
// row a sample with a prepared statement, into a new database at path, through
// the same driver and with the same settings as ours. It is what AppendChunks
// is compared with. It returns the bytes of the closed file.
func writePaperTable(ctx context.Context, path string, rows int) (bytes int64, err error) {
	op := "write paper table " + path
	if _, err := os.Stat(path); err == nil {
		return 0, fmt.Errorf("%s: the file exists: name a new one", op)
	}
	db := sql.OpenDB(data.Connector(dsn(path, "rwc", "_txlock=immediate", "_pragma=page_size(16384)",
		"_pragma=journal_mode(WAL)", "_pragma=synchronous(FULL)")))
	db.SetMaxOpenConns(1)
	if _, err = db.ExecContext(ctx, paperSchema); err == nil {
		err = paperRows(ctx, db, rows)
	}
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return 0, wrap(op, err)
	}
	st, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	return st.Size(), nil
}

func paperRows(ctx context.Context, db *sql.DB, rows int) error {
	st, err := db.PrepareContext(ctx, "INSERT INTO data VALUES(1,'gemm','lab',?,?,?,?,?,?,?,'2026-03-04T05:06:07',?)")
	if err != nil {
		return err
	}
	defer st.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	for at := 0; at < rows; at += paperBatch {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for i := at; i < min(at+paperBatch, rows); i++ {
			a1, a2, a3 := 20+rng.Float64(), 1+rng.Float64(), 4+rng.Float64()
			v1, v2, v3 := 12+0.01*rng.Float64(), 3.3+0.01*rng.Float64(), 12+0.01*rng.Float64()
			if _, err := tx.StmtContext(ctx, st).ExecContext(ctx, a1*v1+a2*v2+a3*v3, a1, a2, a3, v1, v2, v3, i); err != nil {
				tx.Rollback() // the first error is the one to tell
				return err
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}
