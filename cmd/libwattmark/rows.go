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
	p, err := newPaperRows(&t, f)
	if err != nil {
		return fmt.Errorf("%w: task %d: %w", errDatabase, id, err)
	}
	for c, err := range db.Chunks(ctx, id, 0) {
		if err == nil && c.FirstScan+uint64(c.Scans) <= p.first {
			continue
		}
		if err == nil {
			err = chunk.Decode(c, t.Setup.Timebase, len(t.Setup.Channels), &p.block)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errDatabase, err)
		}
		if more, err := p.samples(); err != nil || !more {
			return err
		}
	}
	return nil
}

// paperRows turns a task's blocks of counts into rows.
type paperRows struct {
	rails []measure.Rail
	meter *measure.PowerMeter
	block measure.Block
	cols  []measure.Columns // of the block, by rail
	first uint64            // scan of number 0; without a window the first that comes
	left  uint64            // samples of the window that are still to come
	begun bool
	row   row
	f     func(*row) error
}

// newPaperRows prepares the rows of a task, for f.
func newPaperRows(t *store.Task, f func(*row) error) (*paperRows, error) {
	m, err := measure.NewPowerMeter(&t.Setup)
	p := &paperRows{
		rails: t.Setup.Rails, meter: m, cols: make([]measure.Columns, len(t.Setup.Rails)), left: math.MaxUint64, f: f,
		row: row{task: int64(t.ID), name: t.Name, user: t.User},
	}
	if !t.Launched.IsZero() {
		p.row.at = t.Launched.UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	if t.Result != nil {
		p.first, p.left, p.begun = t.Result.FirstScan, t.Result.Samples, true
	}
	return p, err
}

// samples hands on the rows of the block; more reports whether others may follow.
func (p *paperRows) samples() (more bool, err error) {
	b := &p.block
	if !p.begun {
		p.first, p.begun = b.FirstScan, true
	}
	for k := range p.cols {
		p.meter.Rail(k, b, &p.cols[k])
	}
	for i := int(max(p.first, b.FirstScan) - b.FirstScan); i < b.Scans() && p.left > 0; i++ {
		p.fill(i)
		p.left--
		if err := p.f(&p.row); err != nil {
			return false, err
		}
	}
	return p.left > 0, nil
}

// fill sets the numbers of the row of scan i of the block.
func (p *paperRows) fill(i int) {
	r := &p.row
	r.seq = int64(p.block.FirstScan + uint64(i) - p.first)
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
