package sensor

import (
	"os"
	"testing"
	"time"
)

func TestExplore(t *testing.T) {
	for _, d := range []string{"/work/shared/data/h200", "/work/wt-sensor/testdata/h200/alternate"} {
		f, _ := os.Open(d + "/nvml-power.csv")
		tab, err := ParseReadings(f, "")
		if err != nil {
			t.Fatal(err)
		}
		f, _ = os.Open(d + "/kernel-events.csv")
		ph, err := ParsePhases(f, "")
		if err != nil {
			t.Fatal(err)
		}
		k, err := FromPhases(ph)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range tab.Fields {
			b := time.Now()
			x, err := Identify(field, tab.Polls[field], k, Options{})
			if err != nil {
				t.Log(d, field, err)
				continue
			}
			show(t, d, x)
			t.Log(time.Since(b))
		}
	}
}

func show(t *testing.T, d string, x *Identified) {
	p := x.Profile
	t.Logf("%s %s: %s und=%v T %v±%v jit %v W %v±%v tau %v±%v D %v±%v g %.4f±%.4f o %v±%v q %v res %v noise %v seen %.3f±%.3f", d, p.Field, p.Model, p.Undecided, p.Period, p.UPeriod, p.Jitter,
		p.Window, p.UWindow, p.Tau, p.UTau, p.Delay, p.UDelay, p.Gain, p.UGain, p.Offset, p.UOffset, p.Quantum, p.Residual, p.Noise, p.Seen, p.USeen)
	for _, f := range []*Fit{p.Evidence.Boxcar, p.Evidence.FirstOrder} {
		t.Logf("   %+v", *f)
	}
	t.Logf("   n %d neff %d weak %v dAIC %.2f vuong %.2f %v", p.Evidence.Updates, p.Evidence.Effective, p.Weak, p.Evidence.DeltaAIC, p.Evidence.Vuong, x.Notes)
}
