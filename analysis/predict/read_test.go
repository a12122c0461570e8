package predict

import (
	"errors"
	"strings"
	"testing"
)

func TestReadPoints(t *testing.T) {
	table, err := ReadPoints(strings.NewReader(`# a comment
kernel, blocks,time_s,energy_j,u_j,u_s,repeat,note
add,14,2,100,4,,2,x
add,28,1.5,90,,,,
mul,14,1,80,,,1,
`), "p.csv")
	if err != nil {
		t.Fatal(err)
	}
	if p := table.Points[0]; p.Blocks != 14 || p.Time != 1 || p.Energy != 50 || p.UEnergy != 1 || p.From != "p.csv:3" {
		t.Errorf("got %+v", p)
	}
	if p, err := table.Kernel("mul"); err != nil || len(p) != 1 || p[0].Energy != 80 {
		t.Errorf("got %v, %v", p, err)
	}
	for _, name := range []string{"", "sub"} {
		if _, err := table.Kernel(name); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "add, mul") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for text, want := range map[string]string{
		"":                                       "it is empty",
		"blocks,time_s\n1,2\n":                   `p.csv: unreadable: no column "energy_j"`,
		"blocks,blocks,time_s,energy_j\n":        "two columns",
		"blocks,time_s,energy_j\n":               "no points",
		"blocks,time_s,energy_j\n1,2\n":          "p.csv:2: 2 fields",
		"blocks,time_s,energy_j\n1,2,3\n0,2,3\n": "p.csv:3: a launch has one block",
		"blocks,time_s,energy_j\n1.5,2,3\n":      "whole number",
		"blocks,time_s,energy_j\n-1,2,3\n":       "whole number",
		"blocks,time_s,energy_j\n1,2,-3\n":       "energy of -3 J",
		"blocks,time_s,energy_j\n1,,3\n":         "p.csv:2: time_s: it is empty",
		"blocks,time_s,energy_j\n1,NaN,3\n":      `time_s: "NaN"`,
		"blocks,time_s,energy_j\n1,inf,3\n":      `time_s: "inf"`,
		"blocks,time_s,energy_j,u_j\n1,1,3,-1\n": "uncertainty",
		"blocks,time_s,energy_j,repeat\n1,1,3,0": "repeat 0",
		"blocks,time_s,energy_j\n1,\"2,3\n":      "p.csv:2: ",
	} {
		if _, err := ReadPoints(strings.NewReader(text), "p.csv"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTraces(t *testing.T) {
	// 20 Hz; idle, then 0.2 s of P0 at 100 W.
	tr, err := ReadTrace(strings.NewReader(`timestamp, power.draw [W], pstate
2026/01/31 15:04:05.000, 30.00 W, P8
2026/01/31 15:04:05.050, 90.00 W, P0
2026/01/31 15:04:05.100, 110.00 W, P0
2026/01/31 15:04:05.150, 100.00 W, P0
2026/01/31 15:04:05.200, 100.00 W, P0
`), "run.csv")
	if err != nil {
		t.Fatal(err)
	}
	busy := tr.Busy()
	p, err := busy.Point(140)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "T", float64(p.Time), 0.2, 1e-9)
	near(t, "E", float64(p.Energy), 20, 1e-9)
	// Σ(P − P_s)·Δt over the readings is E − P_s·T.
	var dynamic float64
	for _, r := range busy.Readings {
		dynamic += (float64(r.Power) - 30) * 0.05
	}
	near(t, "dynamic energy", float64(p.Energy)-30*float64(p.Time), dynamic, 1e-9)
	if busy.Dropped != 1 || p.Blocks != 140 || p.From != "run.csv" {
		t.Errorf("got %+v, %d dropped", p, busy.Dropped)
	}
	plain, err := ReadTrace(strings.NewReader("time_s,power_w\n0,10\n0.05,20\n0.1,30\n"), "plain.csv")
	if err != nil {
		t.Fatal(err)
	}
	if p, err = plain.Busy().Point(1); err != nil || float64(p.Energy) < 2.999999 || float64(p.Energy) > 3.000001 {
		t.Errorf("got %+v, %v", p, err)
	}
	rest, err := ReadTrace(strings.NewReader("time_s,power_w,pstate\n0,10,P8\n1,20,P8\n"), "rest.csv")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rest.Busy().Point(1); !errors.Is(err, ErrPoints) || !strings.Contains(err.Error(), "0 readings in P0") {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"":                            "it is empty",
		"time_s\n1\n":                 "power_w",
		"time_s,power_w\n1,2\n":       "two are needed",
		"time_s,power_w\n1,2\n1,2\n":  "x:3: time_s: the time does not go on",
		"time_s,power_w\n1,-2\n":      "power of -2",
		"time_s,power_w\n1,x\n":       `power_w: "x"`,
		"timestamp,power.draw\n1,2\n": "timestamp",
		"timestamp,power.draw\n2026/01/31 15:04:05.000,[N/A]\n": `x:2: power.draw: "[N/A]" is not a finite number`,
	} {
		if _, err := ReadTrace(strings.NewReader(text), "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzReadPoints(f *testing.F) {
	f.Add("blocks,time_s,energy_j\n1,2,3\n")
	f.Add("kernel,blocks,time_s,energy_j,u_j,repeat\na,1,2,3,4,5\n")
	f.Add("blocks,time_s,energy_j\n9007199254740993,1e-300,1e300\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ReadPoints(strings.NewReader(text), "x")
		if err != nil {
			return
		}
		for _, p := range table.Points {
			if err := p.Validate(); err != nil {
				t.Fatalf("accepted %+v: %v", p, err)
			}
		}
	})
}

func FuzzReadTrace(f *testing.F) {
	f.Add("time_s,power_w,pstate\n0,10,P0\n1,20,P8\n")
	f.Add("timestamp, power.draw [W], pstate\n2026/01/31 15:04:05.000, 30.00 W, P8\n2026/01/31 15:04:06.000, 30.00 W, P0\n")
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := ReadTrace(strings.NewReader(text), "x")
		if err != nil {
			return
		}
		if p, err := tr.Busy().Point(1); err == nil && (p.Time <= 0 || p.Energy <= 0) {
			t.Fatalf("got %+v", p)
		}
	})
}
