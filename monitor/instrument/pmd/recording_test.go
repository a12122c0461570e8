package pmd

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"wattmark/measure"
	"wattmark/monitor/instrument/insttest"
)

// sharedData finds the public recordings beside the repository.
func sharedData(t *testing.T, parts ...string) []byte {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	b, err := os.ReadFile(filepath.Join(append([]string{dir, "..", "shared", "data", "pmd"}, parts...)...))
	if err != nil {
		t.Skip("the public recordings are not here: ", err)
	}
	return b
}

func collector() *insttest.Collector {
	in := Inputs(Defaults())
	return &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
}

var recordings = map[string]int{"3090-square": 47940, "3090-step": 66852, "a100-step": 67051, "k40m-step": 67015}

func TestPublicRecordings(t *testing.T) {
	for name, n := range recordings {
		t.Run(name, func(t *testing.T) {
			data := sharedData(t, name, "PMD_data.bin")
			out := collector()
			if err := ReadRecording(bytes.NewReader(data), Defaults(), out); err != nil {
				t.Fatal(err)
			}
			if got := len(out.Scans()); got != n {
				t.Errorf("%d scans, want %d", got, n)
			}
			if e := out.Events(0); len(e) != 0 {
				t.Errorf("events: %+v", e)
			}
			// The time that passed is the sum of the stamps' steps, apart from the parser.
			var want int64
			stamp := func(i int) uint16 { return binary.LittleEndian.Uint16(data[i*RecordBytes:]) }
			for i := 1; i < n; i++ {
				want += int64(stamp(i) - stamp(i-1))
			}
			ticks := out.Ticks()
			if got := ticks[len(ticks)-1]; got != want {
				t.Errorf("%d ticks in all, want %d", got, want)
			}
		})
	}
}

// A recording that begins in the middle of a record and is read a byte at a time
// yields the same scans.
func TestRecordingFromItsMiddle(t *testing.T) {
	data := sharedData(t, "k40m-step", "PMD_data.bin")[:2000*RecordBytes]
	for _, from := range []int{1, 2, 9, 17} {
		out := collector()
		if err := ReadRecording(iotest.OneByteReader(bytes.NewReader(data[from:])), Defaults(), out); err != nil {
			t.Fatal(err)
		}
		if got := len(out.Scans()); got != 1999 || len(out.Events(0)) != 0 {
			t.Errorf("from byte %d: %d scans, events %+v", from, got, out.Events(0))
		}
		if got, want := out.Counts(7)[0], measure.Count(int16(binary.LittleEndian.Uint16(data[RecordBytes+16:]))>>4); got != want {
			t.Errorf("from byte %d: EPS2's current %d, want %d", from, got, want)
		}
	}
}

// Bytes lost from a real recording: the scans that remain keep their time.
func TestRecordingWithLosses(t *testing.T) {
	data := sharedData(t, "3090-step", "PMD_data.bin")[:20_000*RecordBytes]
	whole := collector()
	if err := ReadRecording(bytes.NewReader(data), Defaults(), whole); err != nil {
		t.Fatal(err)
	}
	var cut []byte
	for i := range 10 { // ten losses of 1 to 10 bytes
		cut = append(cut, data[i*36_000+i+1:(i+1)*36_000]...)
	}
	out := collector()
	if err := ReadRecording(bytes.NewReader(cut), Defaults(), out); err != nil {
		t.Fatal(err)
	}
	if lost := out.Lost(); lost < 9 || lost > 20 {
		t.Errorf("%d scans lost", lost)
	}
	a, b := whole.Ticks(), out.Ticks()
	if d := a[len(a)-1] - b[len(b)-1]; d != a[1] { // the first record lost a byte: time zero is the second
		t.Errorf("the end lies %d ticks off, want %d", d, a[1])
	}
}
