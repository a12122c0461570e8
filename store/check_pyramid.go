package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"wattmark/measure/chunk"
	"wattmark/measure/pyramid"
)

const pyramidRemedy = "db repair makes it anew from the chunks"

// pyramid parses all pages of a task, and returns what compares them with the chunks; nil
// where they are not to be compared.
func (c *checker) pyramid(ctx context.Context, t *taskState) (*refolding, error) {
	r := &refolding{c: c, id: t.ID}
	var scans, cal int64
	err := c.d.reader.QueryRowContext(ctx, `SELECT scans, calibration_id FROM pyramid_whole WHERE task_id=?`, int64(t.ID)).Scan(&scans, &cal)
	whole := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	if whole && t.State != Running && uint64(scans) != t.Scans {
		r.bad("it is said to cover %d scans; the task has %d", scans, t.Scans)
		return nil, nil
	}
	if c.strange[t.cal] {
		return nil, nil // its watts are of what the calibration was
	}
	what, err := c.parsePages(ctx, t)
	if err != nil {
		return nil, err
	}
	if what != "" {
		r.bad("%s", what)
		return nil, nil
	}
	if c.opt.Quick || !whole || cal != t.cal || t.State == Running {
		return nil, nil // what is missing or of another calibration is made when it is wanted
	}
	r.fold, err = newFolding(&t.setup)
	return r, err
}

// parsePages says what is wrong with the first page that cannot be read; empty
// where all can.
func (c *checker) parsePages(ctx context.Context, t *taskState) (string, error) {
	rows, err := c.d.reader.QueryContext(ctx, `SELECT level, page, data FROM pyramid WHERE task_id=? ORDER BY level, page`, int64(t.ID))
	if err != nil {
		return "", err
	}
	defer rows.Close()
	p := &pyramid.Page{}
	var data sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&p.Level, &p.Number, &data); err != nil {
			return "", err
		}
		if p.Level < 0 || p.Level >= pyramid.Levels {
			return fmt.Sprintf("there is no level %d", p.Level), nil
		}
		if err := p.Parse(data); err != nil {
			return fmt.Sprintf("level %d, page %d: %v", p.Level, p.Number, err), nil
		}
		if len(p.Series) != seriesOf(&t.setup) {
			return fmt.Sprintf("level %d, page %d: %d series of %d", p.Level, p.Number, len(p.Series), seriesOf(&t.setup)), nil
		}
		c.out.Pages++
	}
	if err := rows.Err(); !isCorrupt(err) {
		return "", err
	}
	return "its pages cannot be read", nil
}

// refolding makes a task's pyramid anew, in memory page by page, and compares it with the
// stored one, up to the first difference. A nil one does nothing.
type refolding struct {
	c      *checker
	id     TaskID
	fold   *folding
	differ bool
}

func (r *refolding) bad(format string, a ...any) {
	r.c.add(Finding{Kind: BadPyramid, Task: r.id, Chunk: NoChunk, What: fmt.Sprintf(format, a...), Remedy: pyramidRemedy, Mendable: true})
}

func (r *refolding) take(ctx context.Context, x *chunk.Chunk) error {
	if r == nil || r.differ {
		return nil
	}
	if err := r.fold.take(x); err != nil {
		return err
	}
	if len(r.fold.rows) < spillRows {
		return nil
	}
	return r.compare(ctx)
}

func (r *refolding) close(ctx context.Context) error {
	if r == nil || r.differ {
		return nil
	}
	if err := r.fold.builder.Close(); err != nil {
		return err
	}
	return r.compare(ctx)
}

func (r *refolding) compare(ctx context.Context) error {
	for _, p := range r.fold.handOver() {
		what, err := r.c.comparePage(ctx, r.id, p)
		if err != nil {
			return err
		}
		if what != "" {
			r.bad("level %d, page %d: %s", p.level, p.page, what)
			r.differ = true
			return nil
		}
	}
	return nil
}

// comparePage says how a stored page differs from one that was made anew; empty
// where it does not. A capture that was interrupted has pages that were made from
// rounded ones: they agree within a few of their steps.
func (c *checker) comparePage(ctx context.Context, id TaskID, r pyramidRow) (string, error) {
	got, err := c.d.page(ctx, id, r.level, r.page)
	if err != nil {
		return "", err
	}
	if got == nil {
		return "it is missing", nil
	}
	want := &pyramid.Page{Level: r.level, Number: r.page}
	if err := want.Parse(r.data); err != nil {
		return "", err
	}
	for s := range want.Series {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, b := range want.Series[s] {
			if b.N > 0 {
				lo, hi = min(lo, float64(b.Min)), max(hi, float64(b.Max))
			}
		}
		tolerance := 8*(hi-lo)/math.MaxUint16 + 1e-6*max(math.Abs(lo), math.Abs(hi))
		for i, w := range want.Series[s] {
			g := got.Series[s][i]
			far := func(a, b float64) bool { return !(math.Abs(a-b) <= tolerance) }
			if g.N != w.N {
				return fmt.Sprintf("bin %d of series %d has %d scans, the chunks have %d", i, s, g.N, w.N), nil
			}
			if w.N > 0 && (far(float64(g.Min), float64(w.Min)) || far(float64(g.Max), float64(w.Max)) || far(float64(g.Mean()), float64(w.Mean()))) {
				return fmt.Sprintf("bin %d of series %d says %v to %v, the chunks %v to %v", i, s, g.Min, g.Max, w.Min, w.Max), nil
			}
		}
	}
	return "", nil
}
