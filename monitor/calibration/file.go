package calibration

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"

	"wattmark/measure/calib"
)

// form is what a file begins with.
const (
	form    = "wattmark-calibration"
	version = 1
)

// file is a record as its file holds it.
type file struct {
	Format       string `json:"format"`
	Version      int    `json:"version"`
	calib.Record `yaml:",inline"`
}

// maxSize bounds a file; the largest certificate is far smaller.
const maxSize = 1 << 20

// Parse reads a record's file. It is strict: an unknown key is an error, and so
// is a record whose content is not that of its id. name is for errors, which
// name the line where there is one.
func Parse(name string, data []byte) (calib.Record, error) {
	if len(data) > maxSize {
		return calib.Record{}, fmt.Errorf("%s: larger than %d bytes: this is no calibration record", name, maxSize)
	}
	var f file
	if err := decode(name, data, &f); err != nil {
		return calib.Record{}, err
	}
	if f.Format != form || f.Version != version {
		return calib.Record{}, fmt.Errorf("%s: format %q, version %d: want %s, version %d; move files that are no calibration records away", name, f.Format, f.Version, form, version)
	}
	if err := f.Validate(); err != nil {
		return calib.Record{}, fmt.Errorf("%s: %w", name, err)
	}
	return f.Record, nil
}

// Marshal writes a record as its file holds it.
func Marshal(r calib.Record) ([]byte, error) {
	text, err := yaml.MarshalWithOptions(file{form, version, r}, yaml.Indent(2), yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("calibration record: %w", err)
	}
	return text, nil
}

// decode decodes strict YAML of one document, with file, line and column in its
// errors.
func decode(name string, data []byte, to any) error {
	err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(to)
	var ye yaml.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ye):
		text, _, _ := strings.Cut(ye.GetMessage(), "\n")
		if t := ye.GetToken(); t != nil && t.Position != nil {
			return fmt.Errorf("%s:%d:%d: %s", name, t.Position.Line, t.Position.Column, text)
		}
		return fmt.Errorf("%s: %s", name, text)
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%s: %s", name, text)
}
