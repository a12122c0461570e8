package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/checkup"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
	"github.com/wattmark/wattmark/store"
)

// A folder that is not there is no folder without a fitting record.
func TestRecalculateWantsTheFolder(t *testing.T) {
	_, err := fromFolder(&store.Task{}, "/nowhere")
	if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "--calibration: stat /nowhere: no such file") {
		t.Error(err)
	}
}

// A machine without ports has an empty list of them.
func TestNoPortsAreAnEmptyList(t *testing.T) {
	var out bytes.Buffer
	if err := cli.Run(t.Context(), []string{"instruments", "--json"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out},
		Commands); err != nil || strings.Contains(out.String(), "null") {
		t.Errorf("%v\n%s", err, &out)
	}
}

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

// serve lets emulate serve a kind until the test ends.
func serve(t *testing.T, kind string) (address string) {
	t.Helper()
	out, says := io.Pipe()
	var complaints bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &cli.App{Streams: cli.Streams{Out: says, Err: &complaints}}
		ended <- Emulate(ctx, a, []string{kind}, EmulateFlags{Listen: "127.0.0.1:0", Period: time.Hour})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		_ = says.Close()
	})
	line := make([]byte, 200)
	n, err := out.Read(line)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if address = regexp.MustCompile(`tcp:[0-9.:]+`).FindString(string(line[:n])); err != nil || address == "" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	return address
}

// opened opens the instrument of a bench until the test ends.
func opened(t *testing.T, b *bench.Bench) (instrument.Instrument, measure.Setup) {
	t.Helper()
	ins, err := b.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ins.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := ins.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	setup, err := b.Setup(ins.Inputs())
	if err != nil {
		t.Fatal(err)
	}
	return ins, setup
}

// Without a bench file the emulated device opens, too.
func TestEmulatedNIOpens(t *testing.T) {
	b, err := bench.Default("nidaqmx", serve(t, "nidaqmx"))
	if err != nil {
		t.Fatal(err)
	}
	if ins, setup := opened(t, b); len(setup.Rails) != 1 || ins.Identity().Model != "USB-6259" {
		t.Errorf("%+v, %+v", setup.Rails, ins.Identity())
	}
}

// The shipped bench files read the supplies of the emulated card by their names, with the address alone changed.
func TestExamplesFitTheirEmulators(t *testing.T) {
	others := map[string]string{
		"amdsmi": "no emulator", "nvml": "no emulator", "replay": "no emulator", "serialtext": "a sketch of one's own",
		"yokogawa-wt300": "a WT333; the emulator is a WT310", "arduino-ina228": "a sketch of one's own",
		"labjack-and-pmd": "two meters", "two-rigols-one-trigger": "two meters",
	}
	kinds := map[string]string{"dataq": "di2108"} // the model of the example
	examples, _ := filepath.Glob("../../../monitor/bench/examples/*.yaml")
	benches, _ := filepath.Glob("../../../docs/benches/*.yaml")
	for _, file := range slices.Concat(examples, benches) {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if others[name] == "" {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				kind := regexp.MustCompile(`kind: (\S+)`).FindStringSubmatch(string(text))[1]
				at := serve(t, cmp.Or(kinds[kind], kind))
				text = regexp.MustCompile(`(port|address): \S+`).ReplaceAll(text, []byte("address: "+at))
				text = regexp.MustCompile(`window: \S+`).ReplaceAll(text, []byte("window: 100ms")) // of an oscilloscope
				b, err := bench.Parse(name+".yaml", text)
				if err != nil {
					t.Fatal(err)
				}
				railsOf(t, b)
			})
		}
	}
}

// railsOf streams a block of the bench's instrument, and checks the mean voltage of each rail that has one.
func railsOf(t *testing.T, b *bench.Bench) {
	t.Helper()
	ins, setup := opened(t, b)
	survey, err := checkup.New(&setup)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	sink := survey.Sink()
	sink.Block = func(b *measure.Block) error { defer end(); return survey.Block(b) }
	sink.BlockAt = func(b *measure.Block, at time.Time) error { defer end(); return survey.BlockAt(b, at) }
	sink.Armed = func(at time.Time) error { defer end(); return survey.Armed(at) } // an oscilloscope delivers then
	if err := ins.Stream(ctx, sink); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if survey.Result().Scans == 0 {
		t.Error("no scans")
	}
	for i, r := range survey.Result().Rails {
		rail, want := setup.Rails[i].Name, 12.1
		if strings.Contains(rail, "3v3") {
			want = 3.3
		}
		onCard := slices.ContainsFunc(board.DefaultRails(), func(c board.RailConfig) bool { return c.Name == rail })
		if v := r.Voltage.Mean; math.Abs(v/want-1) > 0.05 && !r.Voltage.IsZero() && (onCard || math.Abs(v) > 0.5) {
			t.Errorf("%s: %v V", rail, v)
		}
	}
}

// A driver's name is one of its emulated models, and an unknown kind is refused before anything is said to be served.
func TestEmulatedKinds(t *testing.T) {
	if k := emulatorOf("rigol-ds1000z").kind; k != "ds1054z" {
		t.Errorf("rigol-ds1000z is %s", k)
	}
	var out bytes.Buffer
	a := &cli.App{Streams: cli.Streams{Out: &out, Err: &out}}
	err := Emulate(t.Context(), a, []string{"ds9"}, EmulateFlags{gpu: filepath.Join(t.TempDir(), "gpu"), Period: time.Hour})
	if err == nil || !strings.Contains(err.Error(), "ds1054z") || out.Len() > 0 {
		t.Errorf("%v, %s", err, &out)
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

// Where nothing answers, the exit code says so, and the text which meters were not asked.
func TestNothingAnswers(t *testing.T) {
	var out bytes.Buffer
	a := &cli.App{Streams: cli.Streams{Out: &out, Err: &out}}
	if err := listInstruments(t.Context(), a, []string{"tcp:127.0.0.1:1"}); err == nil || !strings.Contains(out.String(), "LabJack (Modbus)") {
		t.Errorf("%v: %s", err, &out)
	}
}
