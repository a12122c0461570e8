package sensor

import (
	"fmt"
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
		for _, field := range tab.Fields[:2] {
			b := time.Now()
			x, err := Identify(field, tab.Polls[field], k, Options{})
			if err != nil {
				t.Log(d, field, err)
				continue
			}
			t.Log(d[10:], time.Since(b).Round(time.Millisecond), Short(x))
		}
	}
}

func Short(x *Identified) string {
	p := x.Profile
	s := fmt.Sprintf("%s: %s und=%v weak=%v T %v±%v D %v±%v LAG %v±%v g %.4f±%.4f o %v±%v q %v res %v noise %v seen %.3f±%.3f\n", p.Field, p.Model, p.Undecided, p.Weak, p.Period, p.UPeriod,
		p.Delay, p.UDelay, p.Lag, p.ULag, p.Gain, p.UGain, p.Offset, p.UOffset, p.Quantum, p.Residual, p.Noise, p.Seen, p.USeen)
	for _, f := range []*Fit{p.Evidence.Boxcar, p.Evidence.FirstOrder} {
		s += fmt.Sprintf("     %s %v (%v %v) D %v (%v %v) g %.3f res %v cor %.2f aic %.1f\n", f.Model, f.Constant, f.ConstantLow, f.ConstantHigh, f.Delay, f.DelayLow, f.DelayHigh, f.Gain, f.Residual, f.Correlation, f.AIC)
	}
	return s + fmt.Sprintf("     n %d neff %d dAIC %.2f vuong %.2f, %d notes", p.Evidence.Updates, p.Evidence.Effective, p.Evidence.DeltaAIC, p.Evidence.Vuong, len(x.Notes))
}
