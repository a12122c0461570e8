package calibration

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure/calib"
)

// Certificate is a laboratory's comparison of channels with known values.
type Certificate struct {
	// Reference, By and Remark are for the record; a CSV file has none.
	Reference string `json:"reference"`
	By        string `json:"by"`
	Remark    string `json:"remark"`
	At        string `json:"at"`
	// TemperatureC is the room's, in °C, where noted.
	TemperatureC *float64 `json:"temperature_c"`
	Points       []Row    `json:"points"`
}

// Row is one point: true value, reading and the standard uncertainty of the true value, in
// the channel's unit.
type Row struct {
	// Channel may be empty where the certificate is of one channel.
	Channel  string   `json:"channel"`
	Value    *float64 `json:"value"`
	Reading  *float64 `json:"reading"`
	U        *float64 `json:"u"`
	UReading float64  `json:"u_reading"`

	line int // in a CSV file
}

// maxRows bounds a certificate.
const maxRows = 10_000

// ParseCertificate reads a certificate: YAML by its name (.yaml, .yml), else CSV with a
// header of value (or true), reading, u, and perhaps channel and u_reading, in any order.
// The error names all rows that cannot be used.
func ParseCertificate(name string, data []byte) (Certificate, error) {
	if len(data) > maxSize {
		return Certificate{}, fmt.Errorf("%s: larger than %d bytes: this is no certificate", name, maxSize)
	}
	var c Certificate
	var err error
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml":
		err = decode(name, data, &c)
	default:
		c.Points, err = parseCSV(name, data)
	}
	if err != nil {
		return Certificate{}, err
	}
	if len(c.Points) == 0 || len(c.Points) > maxRows {
		return Certificate{}, fmt.Errorf("%s: %d points: want 1 to %d", name, len(c.Points), maxRows)
	}
	var faults []error
	for i, p := range c.Points {
		place := fmt.Sprintf("%s: points[%d]", name, i)
		if p.line > 0 {
			place = fmt.Sprintf("%s:%d", name, p.line)
		}
		if err := p.check(); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", place, err))
		}
	}
	return c, errors.Join(faults...)
}

// check refuses a row without value, reading or a positive u, and numbers that are not
// finite. d = v − v is 0 for finite numbers only.
func (r Row) check() error {
	for _, f := range []struct {
		name string
		v    *float64
	}{{"value", r.Value}, {"reading", r.Reading}, {"u", r.U}} {
		if f.v == nil {
			return fmt.Errorf("%s is missing", f.name)
		}
		if d := *f.v - *f.v; d != 0 { // also NaN and infinite
			return fmt.Errorf("%s is %v: want a finite number", f.name, *f.v)
		}
	}
	if *r.U <= 0 {
		return fmt.Errorf("u is %v: want the standard uncertainty of the true value, which is above 0", *r.U)
	}
	if !(r.UReading >= 0) || r.UReading-r.UReading != 0 {
		return fmt.Errorf("u_reading is %v: want zero or more", r.UReading)
	}
	return nil
}

// columns of a certificate in CSV.
var columns = map[string]bool{"channel": true, "value": true, "reading": true, "u": true, "u_reading": true}

// parseCSV reads the rows of a certificate in CSV; # begins a comment. It gives up after 20
// faults.
func parseCSV(name string, data []byte) ([]Row, error) {
	in := csv.NewReader(bytes.NewReader(data))
	in.TrimLeadingSpace, in.Comment = true, '#'
	head, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: no header: the first line names the columns value, reading and u", name)
	}
	at := map[string]int{}
	for i, h := range head {
		h = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(h, "\ufeff")))
		if h == "true" { // as many laboratories call it; to YAML it is no name
			h = "value"
		}
		if _, twice := at[h]; twice || !columns[h] {
			return nil, fmt.Errorf(
				"%s: column %q: want value, reading, u, and perhaps channel and u_reading, each once", name, h)
		}
		at[h] = i
	}
	for _, must := range []string{"value", "reading", "u"} {
		if _, ok := at[must]; !ok {
			return nil, fmt.Errorf("%s: no column %s in the header", name, must)
		}
	}
	var rows []Row
	var faults []error
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			return rows, errors.Join(faults...)
		}
		if err != nil && !errors.Is(err, csv.ErrFieldCount) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		// A row of another length is a fault of its own and does not end the file.
		line, _ := in.FieldPos(0)
		row, rerr := csvRow(fields, at)
		if rerr = errors.Join(err, rerr); rerr != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", name, line, rerr))
		}
		if row.line = line; len(faults) >= 20 || len(rows) > maxRows {
			return nil, fmt.Errorf("%w\n%s: and perhaps more", errors.Join(faults...), name)
		}
		rows = append(rows, row)
	}
}

// csvRow reads one row by the columns of the header; absent columns stay nil.
func csvRow(fields []string, at map[string]int) (r Row, err error) {
	number := func(column string) (*float64, error) {
		i, ok := at[column]
		if !ok || i >= len(fields) {
			return nil, nil
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(fields[i]), 64)
		if err != nil {
			return nil, fmt.Errorf("%s is %q: want a number", column, fields[i])
		}
		return &v, nil
	}
	var e1, e2, e3, e4 error
	var u *float64
	r.Value, e1 = number("value")
	r.Reading, e2 = number("reading")
	r.U, e3 = number("u")
	if u, e4 = number("u_reading"); u != nil {
		r.UReading = *u
	}
	if i, ok := at["channel"]; ok && i < len(fields) {
		r.Channel = strings.TrimSpace(fields[i])
	}
	return r, errors.Join(e1, e2, e3, e4)
}

// Of returns the points of a channel; those without a channel under the empty name.
func (c Certificate) Of(channel string) (points []calib.Point) {
	for _, r := range c.Points {
		if r.Channel == channel {
			points = append(points, calib.Point{Value: *r.Value, Reading: *r.Reading, U: *r.U, UReading: r.UReading})
		}
	}
	return points
}

// Channels returns the channels of the certificate in its order; the empty name stands for
// rows without one.
func (c Certificate) Channels() (names []string) {
	for _, r := range c.Points {
		if !slices.Contains(names, r.Channel) {
			names = append(names, r.Channel)
		}
	}
	return names
}
