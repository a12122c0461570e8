package csvrow

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
)

// endless yields a text again and again.
type endless struct{ text string }

func (e endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], e.text)
	}
	return n, nil
}

// A row is refused once it is too long, and what was read before is handed out.
func TestRowsAreBounded(t *testing.T) {
	for name, tail := range map[string]string{"a line": "x", "a quoted value": "\"\n", "values": "1,"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := "a,b\n1,2\n"
		if name == "a quoted value" {
			start, tail = start+"\"", "\n"
		}
		r := NewReader(io.MultiReader(strings.NewReader(start), endless{tail}))
		var err error
		rows := 0
		for err == nil {
			if _, err = r.Read(); err == nil {
				rows++
			}
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrTooLong) || rows != 2 || got > 128<<20 {
			t.Errorf("%s: %d rows, %d bytes allocated, %v", name, rows, got, err)
		}
	}
	long := strings.Repeat("x", MaxBytes/2)
	r := NewReader(strings.NewReader(strings.Repeat(long+",\n", 5)))
	for range 5 {
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Read(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
