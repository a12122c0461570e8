package simgrid

import (
	"bytes"
	"errors"
	"math"
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

func TestOutcome(t *testing.T) {
	o, err := ParseOutcome("simgrid 3.32.0\nrounds 42.004101963082334 6453.9302666276026\nrest 52.004101963082334 6747.9302666276026\n")
	if err != nil || o.Version != "3.32.0" || o.Time != 42.004101963082334 || o.RestEnergy != 6747.9302666276026 {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, text := range []string{"", "simgrid 3.32.0\n", "simgrid 3\nrounds 1 x\nrest 1 2\n", "simgrid 3\nrounds 1 nan\nrest 1 2\n"} {
		if _, err := ParseOutcome(text); !errors.Is(err, ErrPlatform) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if a, err := Args("p.xml", 14336, 698, 10); err != nil || strings.Join(a, " ") != "p.xml 14336 698 10" {
		t.Errorf("got %q, %v", a, err)
	}
	for _, c := range []struct {
		flops  float64
		rounds uint64
		rest   measure.Seconds
	}{{0, 1, 0}, {1, 0, 0}, {1, MostRounds + 1, 0}, {1, 1, -1}, {math.NaN(), 1, 0}} {
		if _, err := Args("p", c.flops, c.rounds, c.rest); !errors.Is(err, ErrPlatform) {
			t.Errorf("%+v: %v", c, err)
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
