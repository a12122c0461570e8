// Package calibration keeps a bench's calibration records: a folder of dated YAML files
// beside the bench file, one act of calibration a file (docs/calibration.md).
//
//	Folder       the records of a bench; files are only added, never changed
//	Certificate  a laboratory's points, from which a record is made
//
// The content of a record is measure/calib's. Its id is a checksum of that content, so an
// edited file is refused.
package calibration

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/monitor/regular"
)

// Folder is the directory of a bench's records; empty for none. It is safe for concurrent
// use, by several programs too: files are written whole, and never changed.
type Folder string

// Beside returns the folder of a bench file; empty for none.
func Beside(benchFile string) Folder {
	if benchFile == "" {
		return ""
	}
	return Folder(filepath.Join(filepath.Dir(benchFile), "calibration"))
}

// maxFiles bounds a folder.
const maxFiles = 10_000

// Load reads all records, oldest first. A folder that is not there is an empty one. One
// file that cannot be read fails the whole: the calibration in force would be unknown.
func (f Folder) Load() (calib.History, error) {
	if f == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("calibration records: %w", err)
	}
	// Hidden files are those that are being written.
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.IsDir() || !strings.HasSuffix(e.Name(), ".yaml") || strings.HasPrefix(e.Name(), ".")
	})
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("calibration records: %d files in %s: at most %d; move the oldest away",
			len(entries), f, maxFiles)
	}
	var all []calib.Record
	for _, e := range entries {
		path := filepath.Join(string(f), e.Name())
		data, err := regular.Read(path, maxSize) // refuses a pipe in its place
		var r calib.Record
		if err == nil {
			r, err = Parse(path, data)
		}
		if err != nil {
			return nil, fmt.Errorf("calibration records: %w", err)
		}
		all = append(all, r)
	}
	return calib.NewHistory(all), nil
}

// Calibrate applies the records in force to a nominal setup, see calib.History.Apply. It
// reads the folder each time, so that a new record counts from the next capture on.
func (f Folder) Calibrate(nominal measure.Setup, id measure.Identity) (measure.Setup, []string, error) {
	h, err := f.Load()
	if err != nil {
		return nominal, nil, err
	}
	return h.Apply(nominal, id, time.Now())
}

// Add seals a record, adds it to the folder, which it creates where needed, and returns the
// file's path. The file is there as a whole or not at all, also after a power cut. A record
// that is there already is no error.
func (f Folder) Add(r *calib.Record) (path string, err error) {
	if f == "" {
		return "", errors.New(
			"calibration record: no folder for it: name one with --calibration, or a bench file with --bench")
	}
	if err = r.Seal(); err == nil {
		err = r.Validate()
	}
	if err != nil {
		return "", err
	}
	text, err := Marshal(*r)
	if err != nil {
		return "", err
	}
	path = filepath.Join(string(f), r.At.Format("20060102T150405Z")+"-"+string(r.Done)+"-"+r.ID+".yaml")
	// A record must survive its own reader before it is stored.
	if back, err := Parse(path, text); err != nil || back.ID != r.ID {
		return "", fmt.Errorf("calibration record: it does not read back: %w", err)
	}
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return "", fmt.Errorf("calibration record: %w", err)
	}
	if err := writeNew(path, text); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("calibration record: %w", err)
	}
	return path, nil
}

// writeNew writes a file durably under a name that must be free: into a temporary file, which
// is synced and then linked to its name; at last the name is synced. Errors wrap
// fs.ErrExist.
func writeNew(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Chmod(0o444), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := takeName(tmp.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// takeName gives a file its final name, never over another. On a file system without hard
// links two writers could meet between check and rename; as names contain the checksum of
// the content, they would write the same.
func takeName(tmp, path string) error {
	err := os.Link(tmp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fs.ErrExist
	}
	return os.Rename(tmp, path)
}

// form and version are the first entries of a file.
const (
	form    = "wattmark-calibration"
	version = 1
)

// file is the stored form of a record.
type file struct {
	Format       string `json:"format"`
	Version      int    `json:"version"`
	calib.Record `yaml:",inline"`
}

// maxSize bounds a file; the largest certificate is far smaller.
const maxSize = 1 << 20

// Parse reads a record's file. An unknown key is an error, and so is a record whose content
// does not match its id. name is for errors, which name the line where there is one.
func Parse(name string, data []byte) (calib.Record, error) {
	if len(data) > maxSize {
		return calib.Record{}, fmt.Errorf("%s: larger than %d bytes: this is no calibration record", name, maxSize)
	}
	var f file
	if err := decode(name, data, &f); err != nil {
		return calib.Record{}, err
	}
	if f.Format != form || f.Version != version {
		return calib.Record{}, fmt.Errorf("%s: format %q, version %d: want %s, version %d; "+
			"move files that are no calibration records away", name, f.Format, f.Version, form, version)
	}
	if err := f.Validate(); err != nil {
		return calib.Record{}, fmt.Errorf("%s: %w", name, err)
	}
	return f.Record, nil
}

// Marshal returns the stored form of a record.
func Marshal(r calib.Record) ([]byte, error) {
	text, err := yaml.MarshalWithOptions(file{form, version, r}, yaml.Indent(2), yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("calibration record: %w", err)
	}
	return text, nil
}

// decode decodes strict YAML of one document. Errors have file, line and column.
func decode(name string, data []byte, to any) error {
	err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(to)
	if err == nil {
		return nil
	}
	text, place := err.Error(), name
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		text = ye.GetMessage()
		if t := ye.GetToken(); t != nil && t.Position != nil {
			place = fmt.Sprintf("%s:%d:%d", name, t.Position.Line, t.Position.Column)
		}
	}
	return fmt.Errorf("%s: %s", place, regular.YAMLMessage(text))
}

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
		_, twice := at[h]
		if twice || !slices.Contains([]string{"channel", "value", "reading", "u", "u_reading"}, h) {
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
	number := func(column string) *float64 {
		i, ok := at[column]
		if !ok || i >= len(fields) {
			return nil
		}
		v, bad := strconv.ParseFloat(strings.TrimSpace(fields[i]), 64)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%s is %q: want a number", column, fields[i]))
			return nil
		}
		return &v
	}
	r.Value, r.Reading, r.U = number("value"), number("reading"), number("u")
	if u := number("u_reading"); u != nil {
		r.UReading = *u
	}
	if i, ok := at["channel"]; ok && i < len(fields) {
		r.Channel = strings.TrimSpace(fields[i])
	}
	return r, err
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
