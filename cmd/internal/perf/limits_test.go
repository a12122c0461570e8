package perf

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// limitsReport are the machine's own limits, for scale: B/s, and s for one sync of 4 KiB.
type limitsReport struct {
	MemcpyBytesPerS float64 `json:"memcpy_bytes_per_s"`
	WriteBytesPerS  float64 `json:"write_and_sync_bytes_per_s"`
	SyncP50S        float64 `json:"sync_p50_s"`
	SyncP99S        float64 `json:"sync_p99_s"`
}

// measureLimits measures memory and disk; it takes about a second.
func measureLimits(ctx context.Context, dir string) (limitsReport, error) {
	var r limitsReport
	r.MemcpyBytesPerS = memcpyRate()
	f, err := os.Create(filepath.Join(dir, "limits"))
	if err != nil {
		return r, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if r.WriteBytesPerS, err = writeRate(f); err != nil {
		return r, err
	}
	var took []float64
	// Each commit of the database costs at least one such sync.
	for range 100 {
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		begin := time.Now()
		_, err := f.Write(make([]byte, 4096))
		if err = errors.Join(err, f.Sync()); err != nil {
			return r, err
		}
		took = append(took, time.Since(begin).Seconds())
	}
	slices.Sort(took)
	r.SyncP50S, r.SyncP99S = took[len(took)/2], took[len(took)*99/100]
	return r, nil
}

// memcpyRate returns B/s of copies between blocks of 64 MiB, larger than caches.
func memcpyRate() float64 {
	const size = 64 << 20
	src, dst := make([]byte, size), make([]byte, size)
	copy(src, dst) // touch the pages first
	copy(dst, src)
	begin, n := time.Now(), 0
	for time.Since(begin) < 200*time.Millisecond {
		n += copy(dst, src)
	}
	return float64(n) / time.Since(begin).Seconds()
}

// writeRate returns B/s of writing 256 MiB in sequence and syncing once.
func writeRate(f *os.File) (float64, error) {
	b := make([]byte, 4<<20)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range b {
		b[i] = byte(rng.Uint32()) // a file system may compress
	}
	const blocks = 64
	begin := time.Now()
	for range blocks {
		if _, err := f.Write(b); err != nil {
			return 0, err
		}
	}
	err := f.Sync()
	return float64(blocks*len(b)) / time.Since(begin).Seconds(), err
}

// rowsPerCommit amortises the sync: single commits would measure the disk, not the rows.
const rowsPerCommit = 10000

// paperTable is the paper's table, without its index.
const paperTable = `CREATE TABLE data(taskID INTEGER, taskName TEXT, user TEXT, power REAL,
	current1 REAL, current2 REAL, current3 REAL, voltage1 REAL, voltage2 REAL, voltage3 REAL,
	taskTime REAL, seqNum INTEGER)`

// insertRows inserts n rows, numbered from first, in one transaction. Six counts become
// three currents (1 mA) and voltages (0.5 mV); power is the sum of their products.
func insertRows(ctx context.Context, db *sql.DB, g *generator, first, n int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to roll back
	insert, err := tx.PrepareContext(ctx, `INSERT INTO data VALUES(?,?,?,?,?,?,?,?,?,?,?,?)`)
	if err != nil {
		return err
	}
	for i := first; i < first+n; i++ {
		at := i % generatorPeriod
		v := func(c int, gain float64) float64 { return gain * float64(g.busy[c][at]) }
		i1, v1, i2, v2, i3, v3 := v(0, 1e-3), v(1, 5e-4), v(2, 1e-3), v(3, 5e-4), v(4, 1e-3), v(5, 5e-4)
		if _, err := insert.ExecContext(ctx, 1, "matrix product", "researcher", i1*v1+i2*v2+i3*v3, i1, i2, i3, v1, v2,
			v3, float64(i)*1e-7, i); err != nil {
			return err
		}
	}
	return tx.Commit()
}
