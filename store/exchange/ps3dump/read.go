// Package ps3dump reads the text that PowerSensor3's own host programs write.
//
// Lines that begin with S are readings: seconds since the start, the µs since the
// reading before, on newer versions the device's time stamp, then current, voltage
// and power of each pair in use, and the power of all together. Lines that begin
// with M are markers: seconds and a character. A heading may come first. The layout
// is told by the number of values and checked by P = U·I on the first readings: what
// does not pass is refused.
package ps3dump

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"wattmark/measure"
	"wattmark/store/exchange/textin"
)

// Input is a dump whose layout was understood.
type Input struct {
	*textin.Plan
	Markers []Marker
	open    func() (io.ReadCloser, error)
}

// Marker is a mark that the host made.
type Marker struct {
	At   int64 // ns on the readings' clock
	Name string
}

// maxMarkers bounds what is kept of a file.
const maxMarkers = 1 << 20

// maxLine bounds a line: four pairs have some 200 bytes.
const maxLine = 1 << 16

// Open reads a dump's layout and markers.
func Open(open func() (io.ReadCloser, error)) (*Input, error) {
	in := &Input{open: open}
	width, seen := 0, 0
	err := in.lines(func(line int, f []string) error {
		switch {
		case f[0] == "M":
			return in.marker(line, f)
		case f[0] != "S":
			return nil
		case width == 0:
			width = len(f)
		}
		if seen++; seen > 100 {
			return nil
		}
		return check(line, f, width)
	})
	if err != nil {
		return nil, err
	}
	if width == 0 {
		return nil, fmt.Errorf("%w: no line of it is a reading (S and numbers): want a dump of PowerSensor3's host library", textin.ErrInput)
	}
	return in, in.plan(width)
}

// before is how many values stand before the first pair's: 2, or 3 with the
// device's time stamp. 1 is S itself, 1 the total.
func before(width int) (n int, ok bool) {
	for _, n := range []int{2, 3} {
		if rest := width - 1 - n - 1; rest >= 3 && rest%3 == 0 && rest <= 12 {
			return n, true
		}
	}
	return 0, false
}

// check holds a reading's power against its current and voltage.
func check(line int, f []string, width int) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("row %d: %w: %s", line, textin.ErrInput, fmt.Sprintf(format, a...))
	}
	n, ok := before(len(f))
	if !ok || len(f) != width {
		return bad("%d values in a reading: want S, time, step, (time stamp,) three a pair, and the total", len(f))
	}
	v := make([]float64, len(f))
	for i := 1; i < len(f); i++ {
		var err error
		if v[i], err = strconv.ParseFloat(f[i], 64); err != nil {
			return bad("%q is no number: mend or remove the row", f[i])
		}
	}
	sum := 0.0
	near := func(a, b float64) bool { return math.Abs(a-b) <= 0.05+0.01*math.Max(math.Abs(a), math.Abs(b)) }
	for i := 1 + n; i+2 < len(f); i += 3 {
		if !near(v[i]*v[i+1], v[i+2]) {
			return bad("%s A and %s V do not make %s W: it is no dump of current, voltage and power a pair", f[i], f[i+1], f[i+2])
		}
		sum += v[i+2]
	}
	if total := v[len(f)-1]; !near(sum, total) {
		return bad("the pairs make %.4g W, the total is %s W: it is no dump of current, voltage and power a pair", sum, f[len(f)-1])
	}
	return nil
}

func (in *Input) marker(line int, f []string) error {
	if len(f) < 2 {
		return fmt.Errorf("row %d: %w: a marker without a time: remove the row", line, textin.ErrInput)
	}
	at, err := textin.Nanos(f[1], 0)
	if err != nil || len(in.Markers) == maxMarkers {
		return fmt.Errorf("row %d: %w: marker at %q: want seconds, and %d markers at most", line, textin.ErrInput, f[1], maxMarkers)
	}
	in.Markers = append(in.Markers, Marker{at, measure.Printable(strings.Join(f[2:], " "))})
	return nil
}

// plan names the columns.
func (in *Input) plan(width int) (err error) {
	n, _ := before(width)
	columns := make([]textin.Column, width)
	columns[0].Name, columns[1] = "S", textin.Column{Name: "time", Kind: textin.Time}
	var fields []textin.Field
	for i := 1 + n; i+2 < width; i += 3 {
		pair := fmt.Sprintf("pair%d", (i-1-n)/3)
		for k, u := range []measure.Unit{measure.UnitAmpere, measure.UnitVolt, measure.UnitWatt} {
			columns[i+k].Name = pair + " " + string(u)
			fields = append(fields, textin.Field{Column: i + k, Rail: pair, Unit: u})
		}
	}
	in.Plan, err = textin.NewPlan(columns, fields, textin.Options{})
	return err
}

// Rows is the source of the readings.
func (in *Input) Rows(row func(textin.Row) error) error {
	return in.lines(func(line int, f []string) error {
		if f[0] != "S" {
			return nil
		}
		return row(textin.Row{Number: line, Fields: f})
	})
}

// lines reads the lines that are not empty as words.
func (in *Input) lines(line func(n int, words []string) error) error {
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	n := 0
	for sc.Scan() {
		n++
		if words := strings.Fields(sc.Text()); len(words) > 0 {
			if err := line(n, words); err != nil {
				return err
			}
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("row %d: %w: %w", n+1, textin.ErrInput, err)
	}
	return nil
}
