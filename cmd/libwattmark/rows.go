//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// row is a sample as the view data shows it.
type row struct {
	task       int64
	name, user string
	v          [7]float64 // power, current1..3, voltage1..3; NaN for none
	at         string
	seq        int64
}

const columns = "taskID\ttaskName\tuser\tpower\tcurrent1\tcurrent2\tcurrent3\tvoltage1\tvoltage2\tvoltage3\t" +
	"taskTime\tseqNum\n"

func (r *row) print(b []byte) []byte {
	b = strconv.AppendInt(b, r.task, 10)
	b = append(append(b, '\t'), measure.Printable(r.name)...)
	b = append(append(b, '\t'), measure.Printable(r.user)...)
	for _, v := range r.v {
		b = append(b, '\t')
		if !math.IsNaN(v) {
			b = strconv.AppendFloat(b, v, 'g', 9, 64)
		}
	}
	b = append(append(b, '\t'), r.at...)
	b = strconv.AppendInt(append(b, '\t'), r.seq, 10)
	return append(b, '\n')
}

// tasksNamed returns the tasks of exactly a name, by their numbers.
func tasksNamed(ctx context.Context, db *store.DB, name string) (ids []store.TaskID, err error) {
	pattern := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`).Replace(name)
	q := store.ListQuery{Filter: store.Filter{Name: pattern}, Ascending: true, Limit: 1000}
	for name != "" {
		page, err := db.List(ctx, q)
		if err != nil {
			return nil, err
		}
		ids = append(ids, lists.Map(page.Tasks, func(t store.Brief) store.TaskID { return t.ID })...)
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	return ids, nil
}

// eachRow calls f with every sample in a task's window, in order; without a window, with all samples. As in the
// view data, the readings of a scan count as of one instant. The row is lent until f returns. A task that is not
// there has no samples.
func eachRow(ctx context.Context, db *store.DB, id store.TaskID, f func(*row) error) error {
	t, err := db.Task(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(t.Setup.Channels) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errDatabase, err)
	}
	meter, err := measure.NewPowerMeter(&t.Setup)
	if err != nil {
		return fmt.Errorf("%w: task %d: %w", errDatabase, id, err)
	}
	p := paperRows{rails: t.Setup.Rails, cols: make([]measure.Columns, len(t.Setup.Rails))}
	r := row{task: int64(t.ID), name: t.Name, user: t.User}
	if !t.Launched.IsZero() {
		r.at = t.Launched.UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	// The scan of number 0, without a window the first that comes; the samples that are still to come.
	first, left, begun := uint64(0), uint64(math.MaxUint64), t.Result != nil
	if begun {
		first, left = t.Result.FirstScan, t.Result.Samples
	}
	for b, err := range chunk.DecodeAll(db.Chunks(ctx, id, 0), &t.Setup) {
		if err != nil {
			return fmt.Errorf("%w: %w", errDatabase, err)
		}
		if !begun {
			first, begun = b.FirstScan, true
		}
		from := max(first, b.FirstScan) - b.FirstScan
		for k := 0; k < len(p.cols) && from < uint64(b.Scans()); k++ {
			meter.Rail(k, b, &p.cols[k])
		}
		for i := int(from); i < b.Scans() && left > 0; i++ {
			p.fill(&r, i)
			r.seq = int64(b.FirstScan + uint64(i) - first)
			left--
			if err := f(&r); err != nil {
				return err
			}
		}
		if left == 0 {
			break
		}
	}
	return nil
}

// paperRows are the rails of a task and their columns of a block.
type paperRows struct {
	rails []measure.Rail
	cols  []measure.Columns
}

// fill sets the quantities of the row of scan i of the block.
func (p *paperRows) fill(r *row, i int) {
	r.v[0] = 0
	for k := range p.cols {
		r.v[0] += p.watts(k, i)
	}
	for role := measure.RolePSU; role <= measure.RolePCIe12V; role++ {
		r.v[role], r.v[3+role] = p.role(role, i)
	}
}

func (p *paperRows) watts(k, i int) float64 {
	c := &p.cols[k]
	if len(c.I) == 0 {
		return float64(c.P[i])
	}
	return float64(c.I[i]) * float64(c.V[i])
}

// role returns the current and voltage of a role: ΣI and, of several rails, ΣP/ΣI. Both are NaN where the role has
// no rail, or one that reads watts.
func (p *paperRows) role(role measure.Role, i int) (current, voltage float64) {
	n, watts := 0, 0.0
	for k, r := range p.rails {
		if r.Role != role {
			continue
		}
		if r.Wiring == measure.WiringPower {
			return math.NaN(), math.NaN()
		}
		n++
		current, watts, voltage = current+float64(p.cols[k].I[i]), watts+p.watts(k, i), float64(p.cols[k].V[i])
	}
	switch {
	case n == 0:
		return math.NaN(), math.NaN()
	case n == 1:
		return current, voltage
	case current == 0:
		return current, math.NaN()
	}
	return current, watts / current
}
