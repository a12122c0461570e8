package data

import (
	"database/sql/driver"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"modernc.org/sqlite/vtab"
)

const moduleName = "wattmark_data"

// The columns of data, in the order of Cheng et al., Table 1.
const (
	colTask = iota
	colName
	colUser
	colPower
	colCurrent1
	colCurrent2
	colCurrent3
	colVoltage1
	colVoltage2
	colVoltage3
	colTime
	colSeq
)

// declaration is the table as SQLite sees it.
const declaration = `CREATE TABLE data(taskID INTEGER, taskName TEXT, user TEXT, power REAL,
	current1 REAL, current2 REAL, current3 REAL, voltage1 REAL, voltage2 REAL, voltage3 REAL, taskTime TEXT,
		seqNum INTEGER)`

// module makes the virtual table data, which answers as the view data does,
// by decoding the chunks directly.
// The module is one for the process; the table's argument names the connection whose chunks it reads.
type module struct{}

// Create makes the table of a connection, which is named by its only argument.
func (module) Create(ctx vtab.Context, args []string) (vtab.Table, error) {
	if len(args) != 4 {
		return nil, fmt.Errorf("%s: want one argument, the connection's number", moduleName)
	}
	id, err := strconv.ParseInt(strings.TrimSpace(args[3]), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", moduleName, err)
	}
	conn, found := connections.Load(id)
	if !found {
		return nil, fmt.Errorf("%s: no connection %d", moduleName, id)
	}
	if err := ctx.Declare(declaration); err != nil {
		return nil, err
	}
	return &table{conn: conn.(fullConn)}, nil
}

// Connect is called when SQLite reads the schema again.
func (m module) Connect(ctx vtab.Context, args []string) (vtab.Table, error) {
	return m.Create(ctx, args)
}

type table struct{ conn fullConn }

func (t *table) Open() (vtab.Cursor, error) { return &cursor{conn: t.conn}, nil }
func (t *table) Disconnect() error          { return nil }
func (t *table) Destroy() error             { return nil }

// BestIndex takes an equality on taskID and any bounds on seqNum. What it
// takes goes to Filter as one letter each in the plan's text, in the order of
// the arguments. SQLite checks seqNum of every row again, so its bounds need not be exact.
func (t *table) BestIndex(info *vtab.IndexInfo) error {
	letters := map[vtab.ConstraintOp]byte{
		vtab.OpEQ: '=', vtab.OpGT: '>', vtab.OpGE: '>', vtab.OpLT: '<', vtab.OpLE: '<',
	}
	// The plan has a letter for each argument, in order: t an equality on taskID; =, > and < bounds on
	// seqNum, ends included.
	var plan []byte
	oneTask, cost := false, 1e9
	for i := range info.Constraints {
		c := &info.Constraints[i]
		letter := letters[c.Op]
		switch {
		// Not usable: the value is not known yet in this order of the loops.
		case !c.Usable || letter == 0:
			continue
		case c.Column == colTask && c.Op == vtab.OpEQ && !oneTask:
			oneTask, letter = true, 't'
			// Each restriction lowers the cost, so that the planner binds the task first in a join.
			c.Omit = true // Filter compares it; a row's number is asked for only to be shown
			cost /= 1e4
		case c.Column == colSeq:
			cost /= 4
		default:
			continue
		}
		c.ArgIndex = len(plan)
		plan = append(plan, letter)
	}
	info.IdxStr = string(plan)
	// The low 12 bits of ColUsed are the columns that the query reads: others are not decoded.
	info.IdxNum = int64(info.ColUsed & 0xfff)
	info.EstimatedCost, info.EstimatedRows = cost, int64(cost)
	// Rows come by task and, within a task, by sequence number. With one task its number is constant, and an
	// order by seqNum alone is met too.
	want := []int{colTask, colSeq}
	if by := info.OrderBy; oneTask && len(by) > 0 && by[0].Column == colSeq {
		want = want[1:]
	}
	info.OrderByConsumed = len(info.OrderBy) > 0 && len(info.OrderBy) <= len(want)
	for i, o := range info.OrderBy {
		info.OrderByConsumed = info.OrderByConsumed && !o.Desc && o.Column == want[i]
	}
	return nil
}

// cursor walks over tasks, their chunks, and the scans in them.
type cursor struct {
	conn  fullConn
	used  int
	b     bounds
	tasks []int64
	s     *scanner // the task under way
	at    int64    // sequence number of the current row
	rowid int64
	eof   bool
}

// Filter begins a walk over the tasks and sequence numbers that a plan's arguments leave.
func (c *cursor) Filter(used int, plan string, vals []vtab.Value) error {
	// A cursor is used again for each round of a join.
	*c = cursor{conn: c.conn, used: used, b: bounds{hi: math.MaxInt64}}
	for i := range vals {
		c.b.bound(plan[i], vals[i])
	}
	// The numbers of the tasks are read at once, 8 bytes each. Partial tasks (state 6) are never shown.
	where, args := "WHERE state<>6", []vtab.Value(nil)
	if c.b.one {
		where, args = where+" AND task_id=?", []vtab.Value{c.b.task}
	}
	err := query(c.conn, "SELECT task_id FROM main.task "+where+" ORDER BY task_id", args,
		func(row []vtab.Value) error {
			c.tasks = append(c.tasks, row[0].(int64))
			return nil
		})
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	return c.settle(c.b.lo)
}

// settle moves to the first row of sequence number seq or more in the task
// under way, or to the first row of a task after it.
func (c *cursor) settle(seq int64) error {
	for {
		// Within the task: the next chunk that holds such a number.
		if c.s != nil && seq <= c.b.hi {
			next, found, err := c.s.seek(seq)
			if err != nil {
				return fmt.Errorf("data: task %d: %w", c.s.task, err)
			}
			if found && next <= c.b.hi {
				c.at = next
				return nil
			}
		}
		if len(c.tasks) == 0 || c.b.lo > c.b.hi {
			c.eof = true
			return nil
		}
		// The next task; memory of the scanner before is taken over.
		s, err := newScanner(c.conn, c.tasks[0], c.used, c.s)
		if err != nil {
			return fmt.Errorf("data: task %d: %w", c.tasks[0], err)
		}
		c.s, c.tasks, seq = s, c.tasks[1:], c.b.lo
	}
}

// Next moves to the next scan, within the decoded chunk where there is one.
func (c *cursor) Next() error {
	c.rowid++
	// Within the decoded part: no query, no decoding. This is the path of all rows but one in a chunk.
	if c.at < c.s.last && c.at < c.b.hi {
		c.at++
		return nil
	}
	return c.settle(c.at + 1)
}

func (c *cursor) Eof() bool             { return c.eof }
func (c *cursor) Rowid() (int64, error) { return c.rowid, nil }
func (c *cursor) Close() error          { return nil }

// Column computes one value of the current scan.
func (c *cursor) Column(col int) (vtab.Value, error) {
	s := c.s
	switch {
	case col == colPower:
		watts, _, _ := s.sums(c.at, s.rails)
		return watts, nil
	case col >= colCurrent1 && col <= colVoltage3:
		r := &s.roles[(col-colCurrent1)%3+1]
		if len(r.rails) == 0 || r.hidden {
			return nil, nil
		}
		// A role of several rails has ΣI, and as its voltage ΣP/ΣI: their product is the power. Only the
		// column that is asked for becomes a vtab.Value, since each of these allocates.
		watts, amperes, volts := s.sums(c.at, r.rails)
		switch {
		case col < colVoltage1:
			return amperes, nil
		case len(r.rails) == 1:
			return volts, nil
		case amperes == 0:
			return nil, nil
		}
		return watts / amperes, nil
	case col == colTask:
		return s.task, nil
	case col == colName:
		return s.name, nil
	case col == colUser:
		return s.user, nil
	case col == colTime:
		return s.launched, nil
	case col == colSeq:
		return c.at, nil
	}
	return nil, fmt.Errorf("data has no column %d", col)
}

// bounds are the rows that a plan's arguments leave: one task or all, and a range of sequence
// numbers, ends included.
type bounds struct {
	task   driver.Value // of one; SQLite compares it with the tasks' numbers
	one    bool
	lo, hi int64
}

// bound narrows by one argument. Sequence numbers that are no numbers are left to SQLite's
// own check; NULL compares with nothing.
func (b *bounds) bound(letter byte, v driver.Value) {
	if letter == 't' {
		b.task, b.one = v, true
		return
	}
	var down, up int64
	switch n := v.(type) {
	case int64:
		down, up = n, n
	case float64:
		// Beyond 2⁵³ a float64 stands for several integers: no bound, SQLite compares.
		if math.Abs(n) >= 1<<53 {
			return
		}
		// Rounded outwards: SQLite checks the exact comparison again.
		down, up = int64(math.Floor(n)), int64(math.Ceil(n))
	case nil:
		// An empty range.
		b.lo, b.hi = 1, 0
		return
	default:
		return
	}
	switch letter {
	case '=':
		b.lo, b.hi = max(b.lo, down), min(b.hi, up)
	case '>':
		b.lo = max(b.lo, down)
	case '<':
		b.hi = min(b.hi, up)
	}
}

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

// roleForm holds the rails of a role, of which its columns are sums.
type roleForm struct {
	rails  []railForm
	hidden bool // no current and voltage: a rail of the role reads watts
}

// span is a chunk, or its part in the window, by sequence numbers.
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
		FROM main.task t JOIN main.user u USING(user_id) WHERE t.task_id=?`, []driver.Value{task},
		func(r []driver.Value) error {
			s.name, s.user, s.launched = r[0].(string), r[1].(string), r[2]
			calibration, windowed, from, end = r[3], r[4], r[5], r[6]
			return nil
		})
	// Without a calibration there is nothing to compute, and no spans.
	if err != nil || calibration == nil {
		return s, err
	}
	if err := s.readRails(calibration, used); err != nil {
		return nil, err
	}
	// Without a window all scans are shown; stored bounds of an earlier one do not count.
	if windowed.(int64) == 0 {
		from, end = nil, nil
	}
	// The chunks of the window from scan from to before end, or all chunks where they are nil.
	return s, query(conn, `SELECT chunk_no, first_scan, n FROM main.chunk WHERE task_id=? ORDER BY chunk_no`,
		[]driver.Value{task}, func(r []driver.Value) error {
			no, first, n := r[0].(int64), r[1].(int64), r[2].(int64)
			if from == nil {
				// Without a window, the first stored scan is number 0.
				from = first
			}
			zero := from.(int64)
			lo, stop := max(first, zero), first+n
			if end != nil {
				stop = min(stop, end.(int64))
			}
			// A chunk outside of the window gives no span.
			if lo < stop {
				s.spans = append(s.spans, span{no, lo - zero, stop - 1 - zero, int(lo - first), int(n)})
			}
			return nil
		})
}

// readRails reads the rails of a calibration, and finds the columns of the chunks that the used
// columns of the query need.
func (s *scanner) readRails(calibration driver.Value, used int) error {
	err := query(s.conn,
		`SELECT role, wiring, x, y, i0, ix, iy, v0, vy FROM main.rail WHERE calibration_id=? ORDER BY ordinal`,
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
			// A rail that reads watts has no current or voltage to show.
			role.hidden = role.hidden || measure.Wiring(r[1].(int64)) == measure.WiringPower
			s.rails = append(s.rails, f)
			return nil
		})
	// A channel is decoded only where a used column depends on it: power needs all rails, a current or
	// voltage the rails of its role.
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

// seek makes the first scan of sequence number seq or more current and returns
// its number; found is false when there is none. It only goes forward.
func (s *scanner) seek(seq int64) (at int64, found bool, err error) {
	// Spans before seq are passed over without decoding.
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
	// s.counts is indexed by column, with holes where a column is not needed; its memory is used again.
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
		// Index 0 is then sequence number s.first.
		s.counts[col] = s.counts[col][p.skip:]
	}
	return nil
}

// decodeCold unpacks a column of a chunk of a cold task.
func (s *scanner) decodeCold(p span, col int) error {
	// A packed chunk is unpacked once for all of its columns.
	if s.cold.No != uint64(p.no) || len(s.cold.Columns) == 0 {
		s.cold = chunk.Chunk{No: uint64(p.no), Scans: p.n}
		err := query(s.conn, `SELECT x.data, k.channels+k.stamped FROM main.chunk_cold x JOIN main.task t USING(task_id)
			JOIN main.calibration k ON k.calibration_id=t.calibration_id WHERE x.task_id=? AND x.chunk_no=?`,
			[]driver.Value{s.task, p.no},
			func(r []driver.Value) error { return Unpack(&s.cold, int(r[1].(int64)), r[0].([]byte)) })
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

// sums returns ΣI·V in W and ΣI in A over rails at a scan, and the voltage of the last of them. With the
// counts x and y of a rail's channels, I = i0 + ix·x + iy·y in A and V = v0 + vy·y in V.
func (s *scanner) sums(seq int64, rails []railForm) (watts, amperes, volts float64) {
	i, counts := int(seq-s.first), s.counts // of the decoded part
	for k := range rails {
		f := &rails[k]
		x, y := float64(counts[f.x][i]), 0.0
		if f.y >= 0 {
			y = float64(counts[f.y][i])
		}
		a, v := f.I0+f.IX*x+f.IY*y, f.V0+f.VY*y
		watts, amperes, volts = watts+a*v, amperes+a, v
	}
	return watts, amperes, volts
}
