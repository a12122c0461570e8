package recording

import (
	"strings"
	"testing"
	"time"
)

func TestParseKernels(t *testing.T) {
	base := time.Unix(1700000000, 0)
	for _, c := range []struct {
		name, in string
		kernels  int
		first    string
		from, to time.Duration
	}{
		{"microseconds", "name,start_us,end_us\nb,1700000002000000,1700000003000000\na,1700000000500000,1700000001000000\n", 2, "a", 500 * time.Millisecond, 3 * time.Second},
		{"our own", "start_ns,end_ns,name,symbol\n1700000000500000001,1700000001000000000,gemm,_Z\n", 1, "gemm", 500*time.Millisecond + 1, time.Second},
		{"seconds with a fraction", "start [s],end [s]\n1700000000.5,1700000001.000001\n", 1, "kernel", 500 * time.Millisecond, time.Second + time.Microsecond},
		{"stamps", "timestamp\n1700000000500000\n1700000000500000\n1700000001000000\n1700000002000000\n", 1, "kernel", 500 * time.Millisecond, 2 * time.Second},
	} {
		list, from, to, err := ParseKernels(strings.NewReader(c.in))
		if err != nil || len(list) != c.kernels || list[0].Name != c.first {
			t.Errorf("%s: %v, %v", c.name, list, err)
			continue
		}
		if !from.Equal(base.Add(c.from)) || !to.Equal(base.Add(c.to)) || !list[0].Start.Equal(from) {
			t.Errorf("%s: %v to %v", c.name, from, to)
		}
	}
}

func TestParseKernelsRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "it is empty"},
		{"no units", "start,end\n1,2\n", "no columns start and end"},
		{"no kernels", "start_us,end_us\n", "no kernels"},
		{"ends before it starts", "start_s,end_s\n1700000001,1700000000\n", "line 2: end_s: it ends 1s before"},
		{"another unit", "start_s,end_s\n1700000000000,1700000001000\n", "line 2: start_s: "},
		{"a word", "start_s,end_s\n1700000000,1700000001\n1700000002,soon\n", "line 3: end_s: "},
		{"a short row", "start_s,end_s\n1700000000\n", "line 2: end_s: "},
		{"one stamp", "timestamp\n1700000000500000\n", "1 different times"},
	} {
		if list, _, _, err := ParseKernels(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", c.name, list, err, c.want)
		}
	}
}

func FuzzParseKernels(f *testing.F) {
	f.Add("name,start_us,end_us\na,1700000000500000,1700000001000000\n")
	f.Add("timestamp\n1700000000500000\n1700000001000000\n")
	f.Fuzz(func(t *testing.T, in string) {
		list, from, to, err := ParseKernels(strings.NewReader(in))
		for i, k := range list {
			if err == nil && (k.End.Before(k.Start) || k.Start.Before(from) || k.End.After(to) || i > 0 && k.Start.Before(list[i-1].Start)) {
				t.Fatalf("kernel %d: %v", i, k)
			}
		}
	})
}
