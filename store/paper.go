package store

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
)

// paperSchema is the table of Cheng et al., Table 1: one row a sample.
const paperSchema = `CREATE TABLE data(taskID INTEGER, taskName TEXT, user TEXT, power REAL,
	current1 REAL, current2 REAL, current3 REAL, voltage1 REAL, voltage2 REAL, voltage3 REAL,
	taskTime TEXT, seqNum INTEGER, PRIMARY KEY(taskID, seqNum))`

// paperBatch is the number of rows a transaction: enough that the wait for
// the disk does not count.
const paperBatch = 10000

// WritePaperTable writes rows samples of three rails the way of the paper, a
// row a sample with a prepared statement, into a new database at path, through
// the same driver and with the same settings as ours. It is what AppendChunks
// is compared with. It returns the bytes of the closed file.
func WritePaperTable(ctx context.Context, path string, rows int) (bytes int64, err error) {
	op := "write paper table " + path
	if _, err := os.Stat(path); err == nil {
		return 0, fmt.Errorf("%s: the file exists: name a new one", op)
	}
	db := sql.OpenDB(newConnector(dsn(path, "rwc", "_txlock=immediate", "_pragma=page_size(16384)",
		"_pragma=journal_mode(WAL)", "_pragma=synchronous(FULL)"), false))
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
