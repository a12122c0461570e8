package amdsmi

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl/dltest"
)

//go:embed testdata/standin.c

var standIn string

func built(t *testing.T, rocm int) *library {
	t.Helper()
	l, err := load(dltest.Build(t, "libamd_smi.so", fmt.Sprintf("#define ROCM %d\n", rocm)+standIn))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestReleases reads the stand-in with the structs of three releases.
func TestReleases(t *testing.T) {
	for rocm, version := range map[int]string{62: "24.6.2", 64: "25.3.0", 70: "26.0.0"} {
		l := built(t, rocm)
		if l.name != version {
			t.Errorf("ROCm %d: version %s, want %s", rocm, l.name, version)
		}
		cards, err := l.list()
		if err != nil || len(cards) != 3 || cards[0].Partitions != 8 || cards[1].Partitions != 1 {
			t.Fatalf("ROCm %d: %+v, %v", rocm, cards, err)
		}
		if want := (gpu.Info{
			Name: "AMD Instinct MI300X", UUID: "00ff74a1-0000-1000-8000-000000000000", PCIBusID: "0001:60:02.0",
			Driver: "6.10.5",
		}); cards[0].Info != want {
			t.Errorf("ROCm %d: %+v", rocm, cards[0].Info)
		}
		for _, tc := range []struct {
			selector         string
			instant, average float64
		}{{"", 717, math.NaN()}, {"1", math.NaN(), 94}, {"0001:61:02.0", math.NaN(), 94}, {cards[0].UUID, 717, math.NaN()}} {
			c, err := l.open(tc.selector)
			if err != nil {
				t.Errorf("ROCm %d: %q: %v", rocm, tc.selector, err)
				continue
			}
			r, err := c.Read()
			got := fmt.Sprint(float64(r.Instant), float64(r.Average), float64(r.Usage), float64(r.Energy))
			if want := fmt.Sprint(tc.instant, tc.average, math.NaN(), math.NaN()); err != nil || got != want {
				t.Errorf("ROCm %d: %q: %s, want %s; %v", rocm, tc.selector, got, want, err)
			}
			// 2^40 counts of 15.3 µJ; the unit has the precision of a float.
			if e, err := c.ReadEnergy(); err != nil || math.Abs(float64(e)/(1<<40*15.3e-6)-1) > 1e-7 {
				t.Errorf("ROCm %d: %v, %v", rocm, e, err)
			}
		}
		if e, err := cards[2].ReadEnergy(); err != nil || !math.IsNaN(float64(e)) {
			t.Errorf("the second die: %v, %v", e, err)
		}
		for selector, want := range map[string]string{"2": "reports no power", "7": "AMD SMI lists 3", "0001:60:02.1": "no such"} {
			if _, err := l.open(selector); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", selector, err)
			}
		}
	}
}

func TestFailures(t *testing.T) {
	l := built(t, 70)
	c, err := l.open("1")
	if err != nil {
		t.Fatal(err)
	}
	l.Power = func(handle, *powerInfo) status { return 34 }
	if _, err := c.Read(); !errors.Is(err, ErrCall) || !strings.Contains(err.Error(), "driver not loaded (34)") {
		t.Errorf("a driver that went: %v", err)
	}
	l.Energy = func(handle, *uint64, *float32, *uint64) status { return notSupported }
	if e, err := c.ReadEnergy(); err != nil || !math.IsNaN(float64(e)) {
		t.Errorf("no counter: %v, %v", e, err)
	}
	l.Sockets = func(n *uint32, _ *handle) status { *n = 0; return success }
	if _, err := l.open("0"); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no card: %v", err)
	}
	if _, err := load("libamd_smi-not-there.so"); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("got %v", err)
	}
}

// TestVersions: a library is read only where its structs are known.
func TestVersions(t *testing.T) {
	v2 := func(handle, uint32, *powerInfo) status { return success }
	for _, tc := range []struct {
		numbers [4]uint32
		v2      bool
		at      int
	}{
		{[4]uint32{24, 5, 1}, false, 0},   // ROCm 6.1
		{[4]uint32{24, 7, 1}, false, 0},   // 6.3
		{[4]uint32{25, 1}, false, 0},      // 6.3.3
		{[4]uint32{25, 25, 4}, true, 2},   // 6.4
		{[4]uint32{26, 1}, false, 2},      // 7.1
		{[4]uint32{23, 4}, false, -1},     // 6.0
		{[4]uint32{25, 2}, false, -1},     // none that was released
		{[4]uint32{25, 25}, false, -1},    // nor this
		{[4]uint32{27}, false, -1},        // one to come
		{[4]uint32{0, 0, 0, 9}, true, -1}, // rubbish
	} {
		l := &library{at: -1}
		if tc.v2 {
			l.PowerOf = v2
		}
		if err := l.layout(tc.numbers); l.at != tc.at || errors.Is(err, ErrVersion) != (tc.at < 0) {
			t.Errorf("%v: place %d, want %d; %v", tc.numbers, l.at, tc.at, err)
		}
	}
}
