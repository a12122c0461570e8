package ps3dump

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"wattmark/measure"
	"wattmark/store/exchange/textin"
)

// maxLine bounds a line: four pairs have some 200 bytes.
const maxLine = 1 << 16

// line is one line of a dump.
type line struct {
	no   int
	text string
	// cut says that the file ends within it: it has no end of line.
	cut bool
}

// lines hands on the lines of a dump.
func lines(open func() (io.ReadCloser, error), visit func(line) error) error {
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, maxLine)
	for no := 1; ; no++ {
		b, err := r.ReadSlice('\n')
		switch {
		case err == io.EOF && len(b) == 0:
			return nil
		case err != nil && err != io.EOF:
			return fmt.Errorf("row %d: %w: %w", no, textin.ErrInput, err)
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		if err := visit(line{no, text, err == io.EOF}); err != nil {
			return err
		}
	}
}

// values splits off a line's first character, which is a reading's marker, and returns
// the words behind it in buf.
func (l line) values(buf []string) (marker byte, words []string) {
	rest := l.text
	switch {
	case rest == "":
		return 0, buf[:0]
	case len(rest) > 1 && rest[0] == ' ' && rest[1] != ' ': // the marker ended the line before
		marker, rest = '\n', rest[1:]
	case len(rest) > 1 && rest[1] == ' ':
		marker, rest = rest[0], rest[2:]
	default:
		return 0, buf[:0]
	}
	words = buf[:0]
	for rest = strings.TrimLeft(rest, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		word, after, _ := strings.Cut(rest, " ")
		words, rest = append(words, word), after
	}
	return marker, words
}

// isHeading reports whether a line names columns.
func (l line) isHeading() bool { return strings.HasPrefix(l.text, "marker time ") }

// isMarker reports whether a line is a marker of its own.
func (l line) isMarker() bool { return l.text == "M" || strings.HasPrefix(l.text, "M ") }

// mark is a marker as the dump has it: at a place among the readings, or with times of
// the host's clock.
type mark struct {
	name     string
	from, to float64 // µs of the host; equal for an instant
	step     float64 // the resolution of these
	timed    bool
	inline   bool // the first character of a reading
}

// parseMark reads a marker's own line: M and a character, M and a time with an optional
// tag and name, or M, two times, a tag and a name.
func (l line) parseMark() (mark, error) {
	rest := strings.TrimPrefix(strings.TrimPrefix(l.text, "M"), " ")
	if len(rest) <= 1 {
		return mark{name: markName(rest)}, nil
	}
	words, name, quoted := strings.Cut(rest, `"`)
	if quoted {
		name = strings.TrimSuffix(name, `"`)
	}
	f := strings.Fields(words)
	bad := fmt.Errorf("row %d: %w: marker %q: want M and a character, a time, or two times, with a name", l.no, textin.ErrInput, measure.Printable(l.text))
	if len(f) == 0 {
		return mark{}, bad
	}
	m := mark{timed: true}
	var ok bool
	if m.from, m.step, ok = printed(f[0]); !ok {
		return mark{}, bad
	}
	m.to = m.from
	if f = f[1:]; quoted && len(f) == 2 {
		if m.to, _, ok = printed(f[0]); !ok || m.to < m.from {
			return mark{}, bad
		}
		f = f[1:]
	}
	if quoted && len(f) == 1 && name != "" && f[0] == "0" { // the tag that nobody chose
		f = nil
	}
	m.name = measure.Printable(strings.TrimSpace(name + " " + strings.Join(f, " ")))
	return m, nil
}

// markName is what a marker's character is called.
func markName(c string) string {
	switch {
	case c == "":
		return `\n`
	case c[0] <= ' ' || c[0] >= 0x7f:
		return strings.Trim(strconv.QuoteToASCII(c), `"`)
	}
	return c
}
