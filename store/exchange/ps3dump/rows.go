package ps3dump

import (
	"fmt"

	"wattmark/measure"
	"wattmark/store/exchange/textin"
)

// plan names the columns.
func (in *Input) plan() (err error) {
	l := &in.layout
	columns := make([]textin.Column, l.numbers)
	for i, name := range []string{"time", "dt_micro", "device_timestamp"}[:l.lead] {
		columns[i].Name = name
	}
	columns[l.numbers-1].Name = "power_total"
	var fields []textin.Field
	for i, n := range l.pairs {
		pair := fmt.Sprintf("pair%d", n)
		for k, u := range []measure.Unit{measure.UnitAmpere, measure.UnitVolt, measure.UnitWatt} {
			at := l.lead + 3*i + k
			columns[at].Name = pair + " " + string(u)
			fields = append(fields, textin.Field{Column: at, Rail: pair, Unit: u})
		}
	}
	in.Plan, err = textin.NewPlan(columns, fields, textin.Options{})
	return err
}

// Rows is the source of the readings, one a frame, with the time of its stamp.
func (in *Input) Rows(row func(textin.Row) error) error {
	clock := in.clock
	first := -1 // the value that is of the reading's own frame, where the others are late
	if in.Pairing.Late && in.layout.pairs[0] == 0 {
		first = in.layout.lead
	}
	var last int64
	var held struct {
		line  int
		clock textin.Clock
		first string
		some  bool
	}
	_, err := in.frames(func(f *frame) error {
		c := textin.Clock{Scan: -1}
		if in.grid != nil {
			_, _, c.Estimated = clock.next(f.stamp)
			c.Time, c.Scan = in.origin+1000*clock.micro, clock.frame
		} else if c.Time = in.at(nil, f); clock.rows > 0 {
			c.Time = max(c.Time, last+1)
		}
		last = c.Time
		if in.grid == nil {
			clock.rows++
		}
		if !in.Pairing.Late {
			return row(textin.Row{Number: f.line, Fields: f.values, Clock: &c})
		}
		was := held
		held.line, held.clock, held.some = f.line, c, true
		if first >= 0 {
			held.first = f.values[first]
		}
		if !was.some { // its other sensors are of a frame before the dump
			return nil
		}
		if first >= 0 {
			f.values[first] = was.first
		}
		return row(textin.Row{Number: was.line, Fields: f.values, Clock: &was.clock})
	})
	return err
}
