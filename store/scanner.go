package store

import (
	"database/sql/driver"
	"fmt"
	"slices"

	"wattmark/measure"
	"wattmark/measure/chunk"
)

// scanner gives a task's scans as the paper's columns. A scan is known by its
// sequence number, which counts from the window's first scan.
type scanner struct {
	conn       fullConn
	task       int64
	name, user string
	launched   driver.Value

	rails   []railForm
	roles   [5]roleForm
	columns []int // of the chunks, that the query needs

	spans []span // chunks in the window, in order
	next  int    // the span after the decoded one

	first, last int64             // sequence numbers of the decoded part
	counts      [][]measure.Count // by column; index 0 is sequence number first

	cold chunk.Chunk // the last one that was packed; no columns before
}

// railForm is a rail as two linear forms of its counts.
type railForm struct {
	role measure.Role
	x, y int
	measure.Linear
}

// roleForm is what a role's columns are made of.
type roleForm struct {
	rails  []railForm
	hidden bool // no current and voltage: a rail of the role reads watts
}

// span is a chunk, or what of it lies in the window, by sequence numbers.
type span struct {
	no          int64
	first, last int64
	skip        int // scans of the chunk before first
	n           int // scans of the chunk
}

// newScanner reads all of a task but its chunks. It takes over the memory of
// an earlier scanner that is done with.
func newScanner(conn fullConn, task int64, used int, old *scanner) (*scanner, error) {
	s := &scanner{conn: conn, task: task}
	if old != nil {
		s.counts, s.spans = old.counts, old.spans[:0]
	}
	var calibration, windowed, from, end driver.Value
	err := query(conn, `SELECT t.name, u.login, t.launched, t.calibration_id, t.has_result, t.first_scan, t.end_scan
		FROM main.task t JOIN main.user u USING(user_id) WHERE t.task_id=?`, []driver.Value{task}, func(r []driver.Value) error {
		s.name, s.user, s.launched = r[0].(string), r[1].(string), r[2]
		calibration, windowed, from, end = r[3], r[4], r[5], r[6]
		return nil
	})
	if err != nil || calibration == nil {
		return s, err
	}
	if err := s.readRails(calibration, used); err != nil {
		return nil, err
	}
	if windowed.(int64) == 0 {
		from, end = nil, nil
	}
	return s, s.readSpans(from, end)
}

func (s *scanner) readRails(calibration driver.Value, used int) error {
	err := query(s.conn, `SELECT role, wiring, x, y, i0, ix, iy, v0, vy FROM main.rail WHERE calibration_id=? ORDER BY ordinal`,
		[]driver.Value{calibration}, func(r []driver.Value) error {
			f := railForm{role: measure.Role(r[0].(int64)), x: int(r[2].(int64)), y: int(r[3].(int64))}
			for i, to := range []*float64{&f.I0, &f.IX, &f.IY, &f.V0, &f.VY} {
				*to = r[4+i].(float64)
			}
			if f.role < 1 || int(f.role) >= len(s.roles) {
				return fmt.Errorf("%w: role %d", ErrCorrupt, f.role)
			}
			role := &s.roles[f.role]
			role.rails = append(role.rails, f)
			role.hidden = role.hidden || measure.Wiring(r[1].(int64)) == measure.WiringPower
			s.rails = append(s.rails, f)
			return nil
		})
	for _, f := range s.rails {
		needed := used&(1<<colPower) != 0
		if k := int(f.role) - 1; k < 3 {
			needed = needed || used&(1<<(colCurrent1+k)) != 0 || used&(1<<(colVoltage1+k)) != 0
		}
		for _, c := range []int{f.x, f.y} {
			if needed && c >= 0 && !slices.Contains(s.columns, c) {
				s.columns = append(s.columns, c)
			}
		}
	}
	return err
}

// readSpans lists the chunks of the window from scan from to before end, or
// all chunks where they are nil.
func (s *scanner) readSpans(from, end driver.Value) error {
	return query(s.conn, `SELECT chunk_no, first_scan, n FROM main.chunk WHERE task_id=? ORDER BY chunk_no`,
		[]driver.Value{s.task}, func(r []driver.Value) error {
			no, first, n := r[0].(int64), r[1].(int64), r[2].(int64)
			if from == nil {
				from = first
			}
			lo, stop := max(first, from.(int64)), first+n
			if end != nil {
				stop = min(stop, end.(int64))
			}
			if lo < stop {
				zero := from.(int64)
				s.spans = append(s.spans, span{no, lo - zero, stop - 1 - zero, int(lo - first), int(n)})
			}
			return nil
		})
}

// seek makes the first scan of sequence number seq or more current and returns
// its number; found is false when there is none. It only goes forward.
func (s *scanner) seek(seq int64) (at int64, found bool, err error) {
	for s.next < len(s.spans) && s.spans[s.next].last < seq {
		s.next++
	}
	if s.next == len(s.spans) {
		return 0, false, nil
	}
	p := s.spans[s.next]
	s.next++
	if err := s.decode(p); err != nil {
		return 0, false, fmt.Errorf("chunk %d: %w", p.no, err)
	}
	s.first, s.last = p.first, p.last
	return max(seq, p.first), true, nil
}

// decode unpacks the columns that are needed of a chunk.
func (s *scanner) decode(p span) error {
	for _, col := range s.columns {
		for len(s.counts) <= col {
			s.counts = append(s.counts, nil)
		}
		found := false
		err := query(s.conn, `SELECT dir, data FROM main.chunk_column WHERE task_id=? AND chunk_no=? AND col=?`,
			[]driver.Value{s.task, p.no, int64(col)}, func(r []driver.Value) (err error) {
				found = true
				c := chunk.Column{Dir: r[0].([]byte), Data: r[1].([]byte)}
				whole, err := c.Decode(s.counts[col][:0], p.n)
				s.counts[col] = whole
				return err
			})
		if err == nil && !found {
			err = s.decodeCold(p, col)
		}
		if err != nil {
			return fmt.Errorf("column %d: %w", col, err)
		}
		s.counts[col] = s.counts[col][p.skip:]
	}
	return nil
}

// decodeCold unpacks a column of a chunk of a cold task.
func (s *scanner) decodeCold(p span, col int) error {
	if s.cold.No != uint64(p.no) || len(s.cold.Columns) == 0 {
		s.cold = chunk.Chunk{No: uint64(p.no), Scans: p.n}
		err := query(s.conn, `SELECT x.data, k.channels+k.stamped FROM main.chunk_cold x JOIN main.task t USING(task_id)
			JOIN main.calibration k ON k.calibration_id=t.calibration_id WHERE x.task_id=? AND x.chunk_no=?`,
			[]driver.Value{s.task, p.no}, func(r []driver.Value) error { return unpackChunk(&s.cold, int(r[1].(int64)), r[0].([]byte)) })
		if err != nil {
			return err
		}
	}
	if col >= len(s.cold.Columns) {
		return fmt.Errorf("%w: it is not there", ErrCorrupt)
	}
	whole, err := s.cold.Columns[col].Decode(s.counts[col][:0], p.n)
	s.counts[col] = whole
	return err
}

// form returns a rail's current and voltage at a scan.
func (s *scanner) form(f *railForm, i int) (a, v float64) {
	x, y := float64(s.counts[f.x][i]), 0.0
	if f.y >= 0 {
		y = float64(s.counts[f.y][i])
	}
	return f.I0 + f.IX*x + f.IY*y, f.V0 + f.VY*y
}

func (s *scanner) power(seq int64) driver.Value {
	i, sum := int(seq-s.first), 0.0
	for k := range s.rails {
		a, v := s.form(&s.rails[k], i)
		sum += a * v
	}
	return sum
}

// current is the sum over the role's rails; NULL without one.
func (s *scanner) current(seq int64, role int) driver.Value {
	r, i, sum := &s.roles[role], int(seq-s.first), 0.0
	if len(r.rails) == 0 || r.hidden {
		return nil
	}
	for k := range r.rails {
		a, _ := s.form(&r.rails[k], i)
		sum += a
	}
	return sum
}

// voltage is that of the role's only rail, or ΣP/ΣI of several, so that
// current times voltage is their power; NULL where that divides by zero.
func (s *scanner) voltage(seq int64, role int) driver.Value {
	r, i := &s.roles[role], int(seq-s.first)
	if len(r.rails) == 0 || r.hidden {
		return nil
	}
	if len(r.rails) == 1 {
		_, v := s.form(&r.rails[0], i)
		return v
	}
	var watts, amperes float64
	for k := range r.rails {
		a, v := s.form(&r.rails[k], i)
		watts += a * v
		amperes += a
	}
	if amperes == 0 {
		return nil
	}
	return watts / amperes
}
