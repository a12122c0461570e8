package bench

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
)

// Channels with the same remedy share it, and those that pass can be copied.
func TestRefusedZeros(t *testing.T) {
	err := refused([]string{"a.v: at an end: leave it out", "b.v: not zero: it reads 3 V: unplug it", "c.v: at an end: leave it out"},
		[]string{"a.i", "b.i"})
	want := "nothing was written:\na.v: at an end\nc.v: at an end\n  leave it out\nb.v: not zero: it reads 3 V\n  unplug it\n" +
		"The others pass: --channel a.i,b.i"
	if err.Error() != want {
		t.Errorf("%v, want\n%s", err, want)
	}
	if err := refused([]string{"a: x: y"}, nil); err.Error() != "nothing was written:\na: x\n  y" {
		t.Error(err)
	}
}

func TestQuantities(t *testing.T) {
	for s, want := range map[string]float64{
		"5.000A": 5, "5 A": 5, "50mA": 0.05, "-.5": -0.5, "1e3": 1000,
		"20 µA": 2e-5, "1kA": 1000,
	} {
		if v, err := ParseQuantity(s, measure.UnitAmpere); err != nil || math.Abs(v-want) > 1e-12*math.Abs(want) {
			t.Errorf("%q: %v, %v", s, v, err)
		}
	}
	for _, s := range []string{"", "A", "5V", "5 Amp", "1,5", "NaN", "0x10", "5AA", "--5"} {
		if v, err := ParseQuantity(s, measure.UnitAmpere); err == nil {
			t.Errorf("%q is read as %v", s, v)
		}
	}
	for s, want := range map[string]float64{"0.1%": 0.01, "5mA": 0.005, "0.02": 0.02} {
		if u, err := ParseUncertainty(s, -10, measure.UnitAmpere); err != nil ||
			math.Abs(u-want) > 1e-12*math.Abs(want) {
			t.Errorf("%q: %v, %v", s, u, err)
		}
	}
	for _, s := range []string{"0", "-1", "0%", "x%", "1V"} {
		if u, err := ParseUncertainty(s, 10, measure.UnitAmpere); err == nil {
			t.Errorf("%q is read as %v", s, u)
		}
	}
}

// The papers' bench file opens the emulated device; so does no file at all.
func TestEmulatedNIOpens(t *testing.T) {
	out, says := io.Pipe()
	var complaints bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &cli.App{Streams: cli.Streams{Out: says, Err: &complaints}}
		ended <- Emulate(ctx, a, []string{"nidaqmx"}, EmulateFlags{Listen: "127.0.0.1:0", Period: time.Second})
	}()
	line := make([]byte, 200)
	n, err := out.Read(line)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	at := regexp.MustCompile(`tcp:[0-9.:]+`).FindString(string(line[:n]))
	if err != nil || at == "" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	text, err := os.ReadFile("../../../docs/benches/ni-usb6259.yaml")
	if err != nil {
		t.Fatal(err)
	}
	papers, err := bench.Parse("ni-usb6259.yaml", []byte(strings.Replace(string(text), "tcp:192.168.1.30:31763", at,
		1)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := bench.Default("nidaqmx", at)
	if err != nil {
		t.Fatal(err)
	}
	for b, rails := range map[*bench.Bench]int{papers: 3, plain: 1} {
		ins, err := b.NewInstrument(registry.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if err := ins.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		setup, err := b.Setup(ins.Inputs())
		if err != nil || len(setup.Rails) != rails || ins.Identity().Model != "USB-6259" {
			t.Errorf("%+v, %+v, %v", setup.Rails, ins.Identity(), err)
		}
		if err := ins.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	_ = says.Close()
	if complaints.Len() > 0 {
		t.Error(complaints.String())
	}
}

// What cannot be done to gRPC is refused.
func TestEmulatedNIFlags(t *testing.T) {
	for says, f := range map[string]EmulateFlags{
		"only pmd plays": {play: "x", Period: time.Second},
		"gRPC":           {link: "x", Period: time.Second},
	} {
		a := &cli.App{}
		if err := Emulate(t.Context(), a, []string{"nidaqmx"}, f); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// Several meters have one address each.
func TestEmulateSeveral(t *testing.T) {
	each, err := EmulateFlags{link: "/tmp/a,", Listen: ",127.0.0.1:1", Seed: 3}.split([]string{"pmd", "labjack"})
	if err != nil || each[0].link != "/tmp/a" || each[1].link != "" || each[0].Listen != "" ||
		each[1].Listen != "127.0.0.1:1" || each[0].Seed == each[1].Seed {
		t.Errorf("%+v, %v", each, err)
	}
	if _, err := (EmulateFlags{link: "/tmp/a"}).split([]string{"pmd", "labjack"}); err == nil {
		t.Error("one link for two meters")
	}
	if one, err := (EmulateFlags{link: "/tmp/a,b"}).split([]string{"pmd"}); err != nil || one[0].link != "/tmp/a,b" {
		t.Errorf("%+v, %v", one, err)
	}
	if m, err := (EmulateFlags{model: "t8", play: "x"}).split([]string{"pmd", "labjack"}); err != nil ||
		m[0].model != "" || m[1].model != "t8" || m[0].play != "x" || m[1].play != "" {
		t.Errorf("%+v, %v", m, err)
	}
	for _, f := range []EmulateFlags{{model: "t8"}, {play: "x"}} {
		if _, err := f.split([]string{"powersensor3", "wt310"}); err == nil {
			t.Errorf("%+v", f)
		}
	}
}
