package simgrid

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// fig3 is the file of the paper's Fig. 3.
const fig3 = `<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <zone id="AS0" routing="Full">
    <host id="GPU" speed="3413f" core="1" >
      <prop id="wattage_per_state" value="29.4:153.65" />
      <prop id="wattage_off" value="10" />
    </host>
  </zone>
</platform>
`

func TestPlatform(t *testing.T) {
	p, err := Parse(strings.NewReader(fig3))
	if err != nil {
		t.Fatal(err)
	}
	want := Platform{Zone: "AS0", Host: "GPU", Speed: 3413, Idle: 29.4, Busy: 153.65, Off: 10}
	if *p != want {
		t.Errorf("got %+v", p)
	}
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	// As printed, but for a blank here and there.
	if squeeze(b.String()) != squeeze(fig3) {
		t.Errorf("got\n%s", &b)
	}
	odd := Platform{Zone: "z", Host: "h", Speed: 1e15 / 3, Idle: 1. / 3, Busy: 2. / 3, Off: 0}
	b.Reset()
	if _, err := odd.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if p, err = Parse(&b); err != nil || *p != odd {
		t.Errorf("read back %+v, %v", p, err)
	}
	if p, err = Parse(strings.NewReader(strings.Replace(fig3, "3413f", "14.5Tf", 1))); err != nil || p.Speed != 14.5e12 {
		t.Errorf("got %+v, %v", p, err)
	}
}

func squeeze(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, " />", "/>"), " >", ">")
}

func TestBadPlatforms(t *testing.T) {
	for old, now := range map[string]string{
		"<platform":           "<plat",
		`version="4.1"`:       `version="3"`,
		`id="GPU"`:            `id="G U"`,
		`core="1"`:            `core="4"`,
		`"3413f"`:             `"3413"`,
		`"3413f" `:            `"-1f" `,
		`"29.4:153.65"`:       `"29.4"`,
		`"29.4:153.65" `:      `"29.4:100:153.65" `,
		`"29.4:153.65" /`:     `"x:153.65" /`,
		`="29.4:153.65"`:      `="NaN:153.65"`,
		`"wattage_per_state"`: `"watt_per_state"`,
		`"10"`:                `"-10"`,
	} {
		text := strings.Replace(fig3, strings.TrimSpace(old), now, 1)
		if text == fig3 {
			t.Fatalf("%q is not there", old)
		}
		if p, err := Parse(strings.NewReader(text)); !errors.Is(err, ErrPlatform) {
			t.Errorf("%s: %+v, %v", now, p, err)
		}
	}
	for _, p := range []Platform{
		{Zone: "z", Host: "h", Speed: 1e-3},
		{Zone: "z", Host: "h", Speed: math.Inf(1)},
		{Zone: "z", Host: `"`, Speed: 1},
		{Zone: "z", Host: "h", Speed: 1, Idle: measure.Watt(math.NaN())},
	} {
		if _, err := p.WriteTo(&bytes.Buffer{}); !errors.Is(err, ErrPlatform) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// The real SimGrid executes rounds on the files in the time, and for the energy, of the closed form.
func TestRealSimGrid(t *testing.T) {
	program := filepath.Join(t.TempDir(), "rounds")
	if out, err := exec.Command("g++", "-O1", "-o", program, "testdata/rounds.cpp", "-lsimgrid").CombinedOutput(); err != nil {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Skipf("no SimGrid (Debian: g++, libsimgrid-dev): %v", err)
	}
	for _, p := range []*Platform{Fig3(), {Zone: "z", Host: "h", Speed: 1e12 / 3, Idle: 134.5, Busy: 512.25}} {
		file := filepath.Join(t.TempDir(), "gpu.xml")
		var b bytes.Buffer
		if _, err := p.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		const flops, rest = Fig3Flops, 10
		for _, rounds := range []float64{2, 10, 698} {
			out, err := exec.Command(program, file, number(flops), number(rounds), number(rest)).Output()
			if err != nil {
				t.Fatal(err)
			}
			var version string
			var got [4]float64
			if _, err := fmt.Sscanf(string(out), "simgrid %s\nrounds %g %g\nrest %g %g", &version, &got[0], &got[1], &got[2],
				&got[3]); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			took := rounds * flops / p.Speed
			energy := took * float64(p.Busy)
			for i, want := range []float64{took, energy, took + rest, energy + rest*float64(p.Idle)} {
				if math.Abs(got[i]/want-1) > 1e-10 {
					t.Errorf("SimGrid %s, %g rounds: %.17g, want %.17g", version, rounds, got[i], want)
				}
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fig3))
	f.Add([]byte(`<platform version="4"><zone id="a"><host id="b" speed="1e3Gf"><prop id="wattage_per_state" value="1:2"/></host></zone></platform>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(bytes.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if _, err := p.WriteTo(&b); err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", p, err)
		}
		if q, err := Parse(&b); err != nil || *q != *p {
			t.Fatalf("%+v came back as %+v, %v", p, q, err)
		}
	})
}
