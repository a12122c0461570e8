// Package csvfile writes tables as CSV and reads the CSV of other tools.
package csvfile

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/store/exchange"
)

// Write writes a table: comment lines that begin with # (task, units and calibration, and all of it once
// more as JSON behind "# wattmark "), a line of column names, one line a scan. Numbers read back to the
// same float64. It blocks as long as w does, and keeps one batch in memory.
func Write(w io.Writer, t *exchange.Table) error {
	out := bufio.NewWriterSize(w, 1<<16)
	if err := header(out, t); err != nil {
		return err
	}
	// Lines are built in one buffer, without fmt: exports have millions of them.
	line := make([]byte, 0, 512)
	for b, err := range t.Batches {
		if err != nil {
			return err
		}
		for i := range b.Rows {
			line = line[:0]
			for c := range t.Columns {
				if c > 0 {
					line = append(line, ',')
				}
				switch v := &b.Columns[c]; t.Columns[c].Type {
				case exchange.Int32:
					line = strconv.AppendInt(line, int64(v.I32[i]), 10)
				case exchange.Int64:
					line = strconv.AppendInt(line, v.I64[i], 10)
				default: // the shortest digits that read back to the same bits
					line = strconv.AppendFloat(line, v.F64[i], 'g', -1, 64)
				}
			}
			if _, err := out.Write(append(line, '\n')); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// header writes the comments and the line of names.
// For people first, as sentences; then the same once more as JSON on one line, which Open reads.
func header(out *bufio.Writer, t *exchange.Table) error {
	m := &t.Meta
	fmt.Fprintf(out, "# wattmark task %d, %s, by %s, launched %s, calibration %s\n",
		m.Task.ID, m.Task.Name, m.Task.User, m.Task.Launched.Format(time.RFC3339Nano), m.Setup.ID)
	for _, n := range m.Notes {
		fmt.Fprintf(out, "# %s\n", n)
	}
	// The offset and gain by which raw counts become values, with standard uncertainties (k = 1).
	for _, c := range m.Setup.Channels {
		fmt.Fprintf(out, "# channel %s: %s = %g + %g x count, u(gain) %g relative, u(offset) %g\n",
			c.Name, c.Unit, c.Offset, c.Gain, c.UGainRel, c.UOffset)
		if c.Skew != 0 {
			fmt.Fprintf(out, "# channel %s: read %g s behind its scan's time; "+
				"derived values of a rail are brought to the instant of its first channel\n", c.Name, c.Skew)
		}
	}
	for _, r := range m.Setup.Missing {
		fmt.Fprintf(out, "# not measured: rail %s\n", r)
	}
	text, err := m.JSON()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# %s %s\n", exchange.MetaKey, text)
	names := lists.Map(t.Columns, func(c exchange.Column) string { return c.Name })
	_, err = fmt.Fprintln(out, strings.Join(names, ","))
	return err
}
