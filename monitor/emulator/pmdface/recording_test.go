//go:build linux

package pmdface

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/pace"
)

// shared returns the path of a recording beside the repository, or skips.
func shared(t *testing.T, parts ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(append([]string{dir, "..", "shared", "data"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no recording: %v", err)
	}
	return path
}

func TestRealRecordingsPassThePtyUnchanged(t *testing.T) {
	for _, run := range []string{"3090-square", "k40m-step"} {
		path := shared(t, "pmd", run, "PMD_data.bin")
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := newFace(t, nil, pace.Pace{}, Config{Play: func() (io.ReadCloser, error) { return os.Open(path) }})
		p, _ := serve(t, f, fault.Faults{})
		p.send(0x07, 1, 2, 0xFF)
		if got := p.recv(len(want)); !bytes.Equal(got, want) {
			t.Errorf("%s: the played bytes differ from the recorded ones", run)
		}
	}
}

// The emulated device's steps of the time stamp are those of the real one: the
// same mean, and the same share within the plain loop.
func TestStepsAreThoseOfTheRealDevice(t *testing.T) {
	data, err := os.ReadFile(shared(t, "pmd", "3090-square", "PMD_data.bin"))
	if err != nil {
		t.Fatal(err)
	}
	stamp := func(i int) uint16 { return binary.LittleEndian.Uint16(data[i*recordSize:]) }
	n := len(data)/recordSize - 1
	mean, plain := 0.0, 0.0
	for i := range n {
		d := stamp(i+1) - stamp(i)
		mean += float64(d)
		if d >= 600 && d <= 604 {
			plain++
		}
	}
	f := newFace(t, newBoard(t), pace.Pace{}, Config{Seed: 1})
	em, ep := 0.0, 0.0
	for range n {
		d := f.nextStep()
		em += float64(d)
		if d >= 600 && d <= 604 {
			ep++
		}
	}
	k := float64(n)
	t.Logf("mean step %.2f ticks recorded, %.2f emulated; plain loops %.1f %% and %.1f %%", mean/k, em/k, 100*plain/k, 100*ep/k)
	if math.Abs(em/mean-1) > 0.002 || math.Abs(ep-plain)/k > 0.03 {
		t.Error("the emulated steps are not the recorded ones")
	}
}
