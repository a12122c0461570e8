package perf

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// peerReport is one way to keep samples. All but ours keep twelve columns a sample.
type peerReport struct {
	Name           string  `json:"name"`
	Samples        int     `json:"samples"` // six channels each
	SamplesPerS    float64 `json:"samples_per_s"`
	BytesPerSample float64 `json:"bytes_per_sample"`
	ReadS          float64 `json:"read_s"` // the mean power of them all
	MeanW          float64 `json:"mean_w"`
}

// otherWays makes them one after another in a directory.
type otherWays struct {
	dir, postgres string
	samples       int
	g             *generator
	out           []peerReport
}

func benchPeers(ctx context.Context, dir, postgres string, samples int) ([]peerReport, error) {
	p := &otherWays{dir: dir, postgres: postgres, samples: samples, g: NewGenerator(longRateHz, false)}
	ways := []func(context.Context) error{p.ours, p.rows, p.csv}
	if postgres != "" {
		ways = append(ways, p.oursOnServer, p.copied)
	}
	for _, way := range ways {
		if err := way(ctx); err != nil {
			return nil, err
		}
	}
	return p.out, nil
}

// add notes a way whose samples were stored since begin.
func (p *otherWays) add(name string, begin time.Time) *peerReport {
	p.out = append(p.out, peerReport{
		Name: name, Samples: p.samples, SamplesPerS: float64(p.samples) / time.Since(begin).Seconds(),
	})
	return &p.out[len(p.out)-1]
}

// reading times how long the mean takes.
func (r *peerReport) reading(mean func() (float64, error)) (err error) {
	begin := time.Now()
	r.MeanW, err = mean()
	r.ReadS = time.Since(begin).Seconds()
	if err != nil {
		return fmt.Errorf("%s: read: %w", r.Name, err)
	}
	return nil
}

// read adds another way to read the samples that the last one stored.
func (p *otherWays) read(name string, mean func() (float64, error)) error {
	r := peerReport{Name: name, Samples: p.samples}
	err := r.reading(mean)
	p.out = append(p.out, r)
	return err
}

// ours are the chunks of package store, with their pyramid.
func (p *otherWays) ours(ctx context.Context) error {
	path := filepath.Join(p.dir, "peer.db")
	db, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	empty, err := sizeOf(ctx, db)
	if err != nil {
		return err
	}
	id, err := p.ourTask(ctx, db, "wattmark, SQLite file", func() (float64, error) {
		full, err := sizeOf(ctx, db)
		return full.all - empty.all, err
	})
	if err != nil {
		return err
	}
	const question = "SELECT avg(power) FROM data WHERE taskID="
	stock, err := exec.LookPath("sqlite3")
	if err != nil {
		return nil // it is not installed
	}
	return p.read("  the same by SQL, view in stock sqlite3", func() (float64, error) {
		out, err := exec.CommandContext(ctx, stock, "-readonly", path,
			question+strconv.FormatInt(int64(id), 10)).Output()
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	})
}

// ourTask stores a task and reads it; size is the growth of the database in bytes.
func (p *otherWays) ourTask(ctx context.Context, db *store.DB, name string, size func() (float64, error)) (store.TaskID,
	error,
) {
	begin := time.Now()
	m := madeCapture{G: p.g, Rate: longRateHz, Scans: uint64(p.samples), steady: true}
	id, _, err := m.Store(ctx, db, "peer")
	if err != nil {
		return 0, err
	}
	r := p.add(name, begin)
	if r.BytesPerSample, err = size(); err != nil {
		return 0, err
	}
	r.BytesPerSample /= float64(p.samples)
	return id, r.reading(func() (float64, error) { return meanPower(ctx, db, id) })
}

// meanPower reads all samples of a task.
func meanPower(ctx context.Context, db *store.DB, id store.TaskID) (float64, error) {
	t, err := db.Task(ctx, id)
	if err != nil {
		return 0, err
	}
	meter, err := measure.NewPowerMeter(&t.Setup)
	if err != nil {
		return 0, err
	}
	sum, n := 0.0, 0
	var total []measure.Watt
	for b, err := range chunk.DecodeAll(db.Chunks(ctx, id, 0), &t.Setup) {
		if err != nil {
			return 0, err
		}
		total = meter.Total(b, total)
		for _, w := range total {
			sum += float64(w)
		}
		n += len(total)
	}
	return sum / float64(n), nil
}

// sample is one sample's twelve columns but task and name.
func (p *otherWays) sample(i int) (v [7]float64) {
	for r := range 3 {
		at := i % generatorPeriod
		v[1+r], v[4+r] = 1e-3*float64(p.g.busy[2*r][at]), 5e-4*float64(p.g.busy[2*r+1][at])
		v[0] += v[1+r] * v[4+r]
	}
	return v
}

// rows is the paper's table, a row a sample, with its primary key.
func (p *otherWays) rows(ctx context.Context) error {
	path := filepath.Join(p.dir, "rows.db")
	db, err := sql.Open("sqlite",
		"file:"+path+"?_pragma=page_size(16384)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	// #nosec G202 -- a constant with another end
	keyed := strings.TrimSuffix(paperTable, ")") + ", PRIMARY KEY(taskID, seqNum))"
	if _, err := db.ExecContext(ctx, keyed); err != nil {
		return err
	}
	begin := time.Now()
	for at := 0; at < p.samples; at += rowsPerCommit {
		if err := insertRows(ctx, db, p.g, at, min(rowsPerCommit, p.samples-at)); err != nil {
			return err
		}
	}
	r := p.add("a row a sample, SQLite", begin)
	if err := db.QueryRowContext(ctx, databaseSize).Scan(&r.BytesPerSample); err != nil {
		return err
	}
	r.BytesPerSample /= float64(p.samples)
	return r.reading(func() (w float64, err error) {
		return w, db.QueryRowContext(ctx, "SELECT avg(power) FROM data WHERE taskID=1").Scan(&w)
	})
}

// csv is a text file of the same columns, synced at its end.
func (p *otherWays) csv(context.Context) error {
	path := filepath.Join(p.dir, "peer.csv")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	begin, w := time.Now(), bufio.NewWriterSize(f, 1<<20)
	var line []byte
	for i := range p.samples {
		line = append(line[:0], "1,matrix product,researcher"...)
		for _, v := range p.sample(i) {
			line = strconv.AppendFloat(append(line, ','), v, 'g', 7, 64)
		}
		line = strconv.AppendFloat(append(line, ','), float64(i)/longRateHz, 'f', -1, 64)
		line = append(strconv.AppendInt(append(line, ','), int64(i), 10), '\n')
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return err
	}
	r := p.add("CSV", begin)
	st, err := f.Stat()
	if err != nil {
		return err
	}
	r.BytesPerSample = float64(st.Size()) / float64(p.samples)
	return r.reading(func() (float64, error) { return meanOfCSV(path) })
}

func meanOfCSV(path string) (float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in := csv.NewReader(bufio.NewReaderSize(f, 1<<20))
	in.ReuseRecord = true
	sum, n := 0.0, 0
	for {
		line, err := in.Read()
		if errors.Is(err, io.EOF) {
			return sum / float64(n), nil
		}
		if err != nil {
			return 0, err
		}
		w, err := strconv.ParseFloat(line[3], 64)
		if err != nil {
			return 0, err
		}
		sum += w
		n++
	}
}

// oursOnServer are the chunks of package store on a server.
func (p *otherWays) oursOnServer(ctx context.Context) error {
	db, err := store.Open(ctx, p.postgres)
	if err != nil {
		return err
	}
	defer db.Close()
	id, err := p.ourTask(ctx, db, "wattmark, PostgreSQL", func() (n float64, err error) {
		return n, db.SQL().QueryRowContext(ctx, `SELECT pg_total_relation_size('chunk')
			+pg_total_relation_size('chunk_column')+pg_total_relation_size('pyramid')`).Scan(&n)
	})
	if err != nil {
		return err
	}
	return p.read("  the same by SQL, view in the server", func() (w float64, err error) {
		return w, db.SQL().QueryRowContext(ctx, "SELECT avg(power) FROM data WHERE taskID=?", int64(id)).Scan(&w)
	})
}

// serverTable is the paper's table on a server.
const serverTable = `CREATE TABLE wattmark_peer(taskid bigint, taskname text, "user" text, power double precision,
	current1 double precision, current2 double precision, current3 double precision,
	voltage1 double precision, voltage2 double precision, voltage3 double precision,
	tasktime double precision, seqnum bigint, PRIMARY KEY(taskid, seqnum))`

// copied is a row a sample, sent by COPY.
func (p *otherWays) copied(ctx context.Context) error {
	c, err := pgx.Connect(ctx, p.postgres)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	if _, err := c.Exec(ctx, serverTable); err != nil {
		return err
	}
	columns := []string{
		"taskid", "taskname", "user", "power", "current1", "current2", "current3", "voltage1",
		"voltage2", "voltage3", "tasktime", "seqnum",
	}
	begin, row := time.Now(), make([]any, len(columns))
	row[0], row[1], row[2] = int64(1), "matrix product", "researcher"
	_, err = c.CopyFrom(ctx, pgx.Identifier{"wattmark_peer"}, columns,
		pgx.CopyFromSlice(p.samples, func(i int) ([]any, error) {
			for k, v := range p.sample(i) {
				row[3+k] = v
			}
			row[10], row[11] = float64(i)/longRateHz, int64(i)
			return row, nil
		}))
	if err != nil {
		return fmt.Errorf("COPY: %w", err)
	}
	r := p.add("a row a sample, PostgreSQL COPY", begin)
	if err := c.QueryRow(ctx,
		"SELECT pg_total_relation_size('wattmark_peer')::double precision").Scan(&r.BytesPerSample); err != nil {
		return err
	}
	r.BytesPerSample /= float64(p.samples)
	return r.reading(func() (w float64, err error) {
		return w, c.QueryRow(ctx, "SELECT avg(power) FROM wattmark_peer WHERE taskid=1").Scan(&w)
	})
}
