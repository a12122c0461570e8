package store

import (
	"fmt"
	"math"
	"strconv"
	"strings"

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

const declaration = `CREATE TABLE data(taskID INTEGER, taskName TEXT, user TEXT, power REAL,
	current1 REAL, current2 REAL, current3 REAL, voltage1 REAL, voltage2 REAL, voltage3 REAL, taskTime TEXT, seqNum INTEGER)`

// module makes the virtual table data, which answers as the view data does,
// by decoding the chunks directly.
type module struct{}

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

// Connect is called when SQLite has dropped what it knew of the schema.
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
	letters := map[vtab.ConstraintOp]byte{vtab.OpEQ: '=', vtab.OpGT: '>', vtab.OpGE: '>', vtab.OpLT: '<', vtab.OpLE: '<'}
	var plan []byte
	oneTask, cost := false, 1e9
	for i := range info.Constraints {
		c := &info.Constraints[i]
		letter := letters[c.Op]
		switch {
		case !c.Usable || letter == 0:
			continue
		case c.Column == colTask && c.Op == vtab.OpEQ && !oneTask:
			oneTask, letter = true, 't'
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
	info.IdxNum = int64(info.ColUsed & 0xfff)
	info.EstimatedCost, info.EstimatedRows = cost, int64(cost)
	info.OrderByConsumed = inOrder(info.OrderBy, oneTask)
	return nil
}

// inOrder reports whether rows come in the order that is asked for: by task
// and, within a task, by sequence number.
func inOrder(by []vtab.OrderBy, oneTask bool) bool {
	want := []int{colTask, colSeq}
	if oneTask && len(by) > 0 && by[0].Column == colSeq {
		want = want[1:]
	}
	if len(by) == 0 || len(by) > len(want) {
		return false
	}
	for i, o := range by {
		if o.Desc || o.Column != want[i] {
			return false
		}
	}
	return true
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

func (c *cursor) Filter(used int, plan string, vals []vtab.Value) error {
	*c = cursor{conn: c.conn, used: used, b: bounds{hi: math.MaxInt64}}
	for i := range vals {
		c.b.bound(plan[i], vals[i])
	}
	where, args := "WHERE state<>6", []vtab.Value(nil)
	if c.b.one {
		where, args = where+" AND task_id=?", []vtab.Value{c.b.task}
	}
	err := query(c.conn, "SELECT task_id FROM main.task "+where+" ORDER BY task_id", args, func(row []vtab.Value) error {
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
		s, err := newScanner(c.conn, c.tasks[0], c.used, c.s)
		if err != nil {
			return fmt.Errorf("data: task %d: %w", c.tasks[0], err)
		}
		c.s, c.tasks, seq = s, c.tasks[1:], c.b.lo
	}
}

func (c *cursor) Next() error {
	c.rowid++
	if c.at < c.s.last && c.at < c.b.hi {
		c.at++
		return nil
	}
	return c.settle(c.at + 1)
}

func (c *cursor) Eof() bool             { return c.eof }
func (c *cursor) Rowid() (int64, error) { return c.rowid, nil }
func (c *cursor) Close() error          { return nil }

func (c *cursor) Column(col int) (vtab.Value, error) {
	s := c.s
	switch {
	case col == colPower:
		return s.power(c.at), nil
	case col >= colCurrent1 && col <= colCurrent3:
		return s.current(c.at, col-colCurrent1+1), nil
	case col >= colVoltage1 && col <= colVoltage3:
		return s.voltage(c.at, col-colVoltage1+1), nil
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
