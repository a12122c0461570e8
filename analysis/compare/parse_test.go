package compare

import (
	"math"
	"testing"
)

func TestParseWork(t *testing.T) {
	for s, want := range map[string]WorkPair{
		"flop=4e12":           {Work{"flop", 4e12}, Work{"flop", 4e12}},
		" token = 512 , 640 ": {Work{"token", 512}, Work{"token", 640}},
	} {
		if p, err := ParseWork(s); p != want || err != nil {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "flop", "=1", "flop=", "flop=a", "flop=1,", "flop=1,2,3", "flop=-1", "flop=0", "flop=1,Inf", "flop=NaN"} {
		if p, err := ParseWork(s); err == nil {
			t.Errorf("%q: %+v", s, p)
		}
	}
}

func FuzzParseWork(f *testing.F) {
	for _, s := range []string{"flop=4e12", "token=512,640", "=1", "a=b", "x=1,2,3", "x=-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseWork(s)
		if err != nil {
			return
		}
		for _, w := range []Work{p.A, p.B} {
			if !(w.Amount > 0) || math.IsInf(w.Amount, 0) || w.Unit == "" || w.Unit != p.A.Unit {
				t.Errorf("%q gives %+v", s, p)
			}
		}
	})
}
