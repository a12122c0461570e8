// Package csvrow reads rows of CSV whose length is bounded: encoding/csv takes a line, and
// a quoted field that does not end, into memory as long as they are.
package csvrow

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
)

// MaxBytes is how long a row may be.
const MaxBytes = 1 << 20

// ErrTooLong is wrapped by errors about a row of more than MaxBytes.
var ErrTooLong = errors.New("a row is longer than 1 MiB, or a quoted value does not end")

// Reader is a csv.Reader whose Read fails with ErrTooLong.
type Reader struct {
	*csv.Reader
	in  *limited
	row int
}

// NewReader returns a reader of r.
func NewReader(r io.Reader) *Reader {
	in := &limited{r: r}
	return &Reader{Reader: csv.NewReader(in), in: in}
}

// Read is csv.Reader's.
func (r *Reader) Read() ([]string, error) {
	r.in.left = MaxBytes
	r.row++
	rec, err := r.Reader.Read()
	if errors.Is(err, ErrTooLong) {
		return nil, fmt.Errorf("row %d of those that hold values or names: %w: cut it, or mend its quotes", r.row, ErrTooLong)
	}
	return rec, err
}

// limited hands on so many bytes of a row.
type limited struct {
	r    io.Reader
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, ErrTooLong
	}
	n, err := l.r.Read(p)
	l.left -= n
	return n, err
}
