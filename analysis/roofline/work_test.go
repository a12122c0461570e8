package roofline

import (
	"math"
	"testing"
)

func TestParseTaskWork(t *testing.T) {
	for s, want := range map[string]Work{
		"3:flop=4e12,byte=1e11":       {4e12, 1e11},
		" 3 : byte = 1 , flop = 0.5 ": {0.5, 1},
		"3:flop=1":                    {1, 0},
	} {
		if id, w, err := ParseTaskWork(s); id != 3 || w != want || err != nil {
			t.Errorf("%q: task %d, %+v, %v", s, id, w, err)
		}
	}
	for _, s := range []string{"", "3", "3:", "x:flop=1", "0:flop=1", "-1:flop=1", "1:flop=1,flop=2", "1:flop=-1", "1:byte=NaN", "1:byte=Inf", "1:joule=1"} {
		if id, w, err := ParseTaskWork(s); err == nil {
			t.Errorf("%q: task %d, %+v", s, id, w)
		}
	}
}

func FuzzParseTaskWork(f *testing.F) {
	for _, s := range []string{"3:flop=4e12,byte=1e11", "3:flop=1", "x", "1:flop=1,flop=2", "0:flop=1", "3:byte=NaN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, w, err := ParseTaskWork(s)
		if err == nil && (id < 1 || !(w.Flop >= 0) || !(w.Bytes >= 0) || math.IsInf(w.Flop, 0) || math.IsInf(w.Bytes, 0)) {
			t.Errorf("%q gives task %d with %+v", s, id, w)
		}
	})
}
