package validate

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

func columns(t *testing.T, name string) [][]string {
	t.Helper()
	f, err := os.Open(filepath.Join("../../testdata/h200/alternate", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func float(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What a real H200 said while a kernel that streams memory and a sleeping one took
// turns of 50 ms. No meter was there: the truth is modelled, each kernel at the level
// that the card showed of it alone, 450 W and 136 W, known within 2 %.
func TestRecordedH200(t *testing.T) {
	events := columns(t, "kernel-events.csv")
	var s Subject
	s.Name, s.Systematic = "alternate", 0.02
	first, last := float(t, events[0][0])*1e-6, float(t, events[len(events)-1][0])*1e-6
	s.Work = Span{measure.Seconds(first), measure.Seconds(last)}
	for i := 0; i+1 < len(events); i += 2 {
		name, _, _ := strings.Cut(events[i][1], " ")
		s.Kernels = append(s.Kernels, Kernel{name, Span{measure.Seconds(float(t, events[i][0]) * 1e-6), measure.Seconds(float(t, events[i+1][0]) * 1e-6)}})
	}
	s.Truth = func(yield func(Sample, error) bool) {
		k := 0
		for at := first - 0.1; at <= last+0.1; at += 1e-3 {
			for k < len(s.Kernels)-1 && float64(s.Kernels[k+1].From) <= at {
				k++
			}
			p := 136.0
			if c := s.Kernels[k]; strings.HasPrefix(c.Name, "mem") && at >= float64(c.From) && at < float64(c.To) {
				p = 450
			}
			if !yield(Sample{measure.Seconds(at), measure.Watt(p)}, nil) {
				return
			}
		}
	}
	instant, average := Method{Name: "instant", Energy: nan}, Method{Name: "average", Energy: nan}
	for _, r := range columns(t, "nvml-power.csv") {
		at := measure.Seconds(float(t, r[0]) * 1e-6)
		instant.Readings = append(instant.Readings, Reading{at, measure.Watt(float(t, r[1]) / 1e3)})
		average.Readings = append(average.Readings, Reading{at, measure.Watt(float(t, r[2]) / 1e3)})
	}
	s.Methods = []Method{instant, average}
	r := validateOK(t, s, Options{Seed: 1})
	m := &r.Methods[0]
	if m.ErrorPct > -40 || m.ErrorPct < -50 || m.Agreement != Reads || !strings.Contains(r.Verdict, "do not use it for kernels that alternate") {
		t.Errorf("instant %+.1f %%: %s", m.ErrorPct, r.Verdict)
	}
	if math.Abs(float64(r.Mean)-293) > 2 {
		t.Errorf("the modelled mean is %v", r.Mean)
	}
	t.Log(r.Verdict)
}
