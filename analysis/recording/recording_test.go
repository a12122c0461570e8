package recording

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/wattmark/wattmark/analysis/smilog"
)

func small() fstest.MapFS {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	return fstest.MapFS{
		SerialFile: file("\x00\x01"),
		StartFile:  file("1689325827417571\n"),
		EventsFile: file("timestamp\n1689325828417687\n1689325828417687\n1689325827917571\n"),
		SensorFile: file("timestamp, power.draw [W]\n2023/07/14 10:10:26.905, 56.38\n2023/07/14 10:10:36.905, 56.38\n"),
	}
}

func TestRead(t *testing.T) {
	r, err := Read(small(), Clocks{Shift: -50 * time.Millisecond, UTCOffset: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Start.UnixMicro(); got != 1689325827367571 {
		t.Errorf("start %d: the shift was not added", got)
	}
	if len(r.Events) != 2 || !r.Events[0].Before(r.Events[1]) {
		t.Errorf("events %v: want two, in order", r.Events)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct {
		name, file, data, want string
	}{
		{"no serial bytes", SerialFile, "", "empty"},
		{"start in seconds", StartFile, "1689325827", "microseconds"},
		{"start no number", StartFile, "now", "microseconds"},
		{"one event", EventsFile, "timestamp\n1689325828417687\n", "1 different times"},
		{"bad event", EventsFile, "timestamp\n1689325828417687\nx\n", "timestamps.csv:3: timestamp: "},
		{"bad log", SensorFile, "x\n", SensorFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := small()
			dir[c.file] = &fstest.MapFile{Data: []byte(c.data)}
			if _, err := Read(dir, Clocks{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
			delete(dir, c.file)
			if _, err := Read(dir, Clocks{}); err == nil || !strings.Contains(err.Error(), c.file) {
				t.Fatalf("without the file: %v, want an error with its name", err)
			}
		})
	}
}

// TestSensorEnergyOfPublicRecordings compares with the figures that the plain
// procedure gives on the public data, computed independently.
func TestSensorEnergyOfPublicRecordings(t *testing.T) {
	root := filepath.Join("..", "..", "..", "shared", "data", "pmd")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("the public recordings are not here: %v", err)
	}
	for name, want := range map[string]float64{"3090-square": 2252.1, "3090-step": 3259.2, "a100-step": 1491.0, "k40m-step": 974.7} {
		r, err := Read(os.DirFS(filepath.Join(root, name)), Clocks{Shift: -50 * time.Millisecond, UTCOffset: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		_, rs := r.Sensor.Best()
		e, err := smilog.Energy(rs, r.Events[0], r.Events[len(r.Events)-1])
		if err != nil || math.Abs(float64(e)/want-1) > 5e-4 {
			t.Errorf("%s: %v, %v; want %v J", name, e, err, want)
		}
	}
}

func FuzzParseEvents(f *testing.F) {
	f.Add("timestamp\n1689325828417687\n1689325828417688\n")
	f.Fuzz(func(t *testing.T, in string) {
		events, err := ParseEvents(in)
		if err == nil && !events[0].Before(events[len(events)-1]) {
			t.Fatal("events out of order")
		}
	})
}
