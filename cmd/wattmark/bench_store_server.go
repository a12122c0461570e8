package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"wattmark/store"
)

// oursOnServer are the chunks of package store on a server.
func (p *otherWays) oursOnServer(ctx context.Context) error {
	db, err := store.Open(ctx, p.postgres)
	if err != nil {
		return err
	}
	defer db.Close()
	id, err := p.ourTask(ctx, db, "wattmark, PostgreSQL", func() (n float64, err error) {
		return n, db.SQL().QueryRowContext(ctx, `SELECT pg_total_relation_size('chunk')+pg_total_relation_size('chunk_column')+pg_total_relation_size('pyramid')`).Scan(&n)
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
	columns := []string{"taskid", "taskname", "user", "power", "current1", "current2", "current3", "voltage1", "voltage2", "voltage3", "tasktime", "seqnum"}
	begin, row := time.Now(), make([]any, len(columns))
	row[0], row[1], row[2] = int64(1), "matrix product", "researcher"
	_, err = c.CopyFrom(ctx, pgx.Identifier{"wattmark_peer"}, columns, pgx.CopyFromSlice(p.samples, func(i int) ([]any, error) {
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
	if err := c.QueryRow(ctx, "SELECT pg_total_relation_size('wattmark_peer')::double precision").Scan(&r.BytesPerSample); err != nil {
		return err
	}
	r.BytesPerSample /= float64(p.samples)
	return r.reading(func() (w float64, err error) {
		return w, c.QueryRow(ctx, "SELECT avg(power) FROM wattmark_peer WHERE taskid=1").Scan(&w)
	})
}
