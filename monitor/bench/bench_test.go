package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/monitor/instrument/pmd"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
)

// six inputs as a DAQ behind a riser would have them; replay takes any.
var daq = instrument.Inputs{
	Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10},
	Channels: []measure.Channel{
		{Name: "vs", Unit: measure.UnitVolt, Gain: 1e-3},
		{Name: "vg", Unit: measure.UnitVolt, Gain: 1e-3},
		{Name: "clamp", Unit: measure.UnitAmpere, Gain: 1e-2},
		{Name: "v12", Unit: measure.UnitVolt, Gain: 1e-3},
		{Name: "aux", Unit: measure.UnitAmpere, Gain: 1e-2},
		{Name: "card", Unit: measure.UnitWatt, Gain: 1},
	},
}

const fourWirings = `
name: riser
instruments:
  - name: daq
    kind: replay
    address: somewhere
    options: {speed: 0, at_end: stop}
    channels:
      vs: {gain: 0.002, offset: -0.1, u_gain: 0.001, u_offset: 0.002, noise: 0.003, skew: 11us}
      daq/vg: {offset: .5}
rails:
  - name: pcie_3v3
    shunt: {source: vs, ground: vg, ohm: 0.005, u_rel: 0.002}
  - name: slot
    role: pcie_12v
    clamp: {current: clamp, voltage: daq/v12}
  - name: aux
    assumed: {current: aux, volt: 12, u_volt: 0.2}
  - name: gpu
    power: {channel: card}
missing: [eps]
response: {tau: 58ms, window: 25ms, update: 100ms}
`

func TestFourWirings(t *testing.T) {
	b, err := Parse("riser.yaml", []byte(fourWirings))
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Setup(daq)
	if err != nil {
		t.Fatal(err)
	}
	want := measure.Setup{
		Timebase: daq.Timebase, Missing: []string{"eps"},
		Channels: append([]measure.Channel{}, daq.Channels...),
		Response: measure.Response{Tau: 0.058, Window: 0.025, Update: 0.1},
		Rails: []measure.Rail{
			{Name: "pcie_3v3", Role: measure.RolePCIe3V3, Wiring: measure.WiringShunt, X: 0, Y: 1, Shunt: 0.005, UShunt: 0.002},
			{Name: "slot", Role: measure.RolePCIe12V, Wiring: measure.WiringClamp, X: 2, Y: 3},
			{Name: "aux", Role: measure.RolePSU, Wiring: measure.WiringAssumed, X: 4, Y: -1, Assumed: 12, UAssumed: 0.2},
			{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 5, Y: -1},
		},
	}
	want.Channels[0] = measure.Channel{Name: "vs", Unit: measure.UnitVolt, Gain: 0.002, Offset: -0.1, UGain: 0.001, UOffset: 0.002, Noise: 0.003, Skew: 1.1e-5}
	want.Channels[1].Offset = 0.5
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
	if daq.Channels[0].Gain != 1e-3 {
		t.Error("Setup changed the instrument's own calibration")
	}
	if b.Name != "riser" || b.Instruments[0].Name != "daq" || b.Instruments[0].Address != "somewhere" {
		t.Errorf("%q %+v", b.Name, b.Instruments)
	}
}

func TestDefaults(t *testing.T) {
	b, err := Default("pmd", "/dev/ttyUSB7")
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Setup(pmd.Inputs(pmd.Defaults()))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Rails) != 4 || cmp.Diff([]string{"pcie_3v3"}, s.Missing) != "" || b.Name != "pmd" {
		t.Errorf("%+v", s)
	}
	i, err := b.NewInstrument(registry.Env{})
	if err != nil || i.Identity().Address != "/dev/ttyUSB7" {
		t.Errorf("%v, %v", i, err)
	}
	b, err = Default("nvml", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.NewInstrument(registry.Env{}); !errors.Is(err, nvml.ErrNoSensor) {
		t.Errorf("nvml without a way to it: %v", err)
	}
	for kind, want := range map[string]string{"powersensor3": "port is missing", "scope": "unknown instrument"} {
		if _, err := Default(kind, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kind, err, want)
		}
	}
	if _, err := Default("scope", "x"); !errors.Is(err, registry.ErrUnknown) {
		t.Errorf("unknown kind: %v", err)
	}
	if _, err := Default("pmd", "nowhere"); err != nil {
		t.Errorf("the address is the driver's to judge: %v", err)
	}
}

func TestExamplesAreSound(t *testing.T) {
	for _, k := range registry.Kinds() {
		if !slices.Contains(exampleKinds(), k.Name) {
			t.Errorf("%s has no example: add monitor/bench/examples/%[1]s.yaml", k.Name)
		}
	}
	for _, kind := range exampleKinds() {
		text, err := os.ReadFile("examples/" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		b, err := Parse(kind+".yaml", text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if b.Instruments[0].Kind != kind {
			t.Errorf("%s is an example of %s", kind, b.Instruments[0].Kind)
		}
	}
}

func TestLoad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "bench.yaml")
	if _, err := Load(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(name, []byte("instruments:\n- kind: pmd\n  port: /dev/ttyUSB0\n  prot: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(name)
	var e *Error
	if !errors.As(err, &e) || e.Line != 4 || e.Column != 3 || !strings.HasPrefix(err.Error(), name+":4:3: ") {
		t.Errorf("%v", err)
	}
}

// A device's own channels are known only once it is open.
func TestUnknownDeviceChannels(t *testing.T) {
	b, err := Parse("b.yaml", []byte("instruments:\n- {kind: powersensor3, port: /dev/ttyACM0}\nrails:\n- name: a\n  clamp: {current: pair9.current, voltage: vs}\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Setup(daq)
	var e *Error
	if !errors.As(err, &e) || e.Line != 5 || !strings.Contains(err.Error(), `unknown channel "pair9.current"`) || !strings.Contains(err.Error(), "vs, vg") {
		t.Errorf("%v", err)
	}
}

func TestNoNaturalRails(t *testing.T) {
	b, err := Default("powersensor3", "/dev/ttyACM0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Setup(instrument.Inputs{Timebase: daq.Timebase, Channels: daq.Channels[:2]}); err == nil || !strings.Contains(err.Error(), "no rails") {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fourWirings))
	for _, kind := range exampleKinds() {
		text, _ := os.ReadFile("examples/" + kind + ".yaml")
		f.Add(text)
	}
	for _, c := range faults {
		f.Add([]byte(c.text))
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("instruments: &i\n- kind: pmd\n  port: x\n  options: *i\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Parse("fuzz", data)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		if s, err := b.Setup(daq); err == nil {
			if err := s.Validate(); err != nil {
				t.Errorf("an unsound setup: %v", err)
			}
		}
	})
}

const (
	gpuA = "GPU-8f6e1f2a-0b1c-2d3e-4f50-6172839405af"
	gpuB = "GPU-00000000-0000-0000-0000-000000000002"
)

func TestBenchIsBoundToAGPU(t *testing.T) {
	for _, c := range []struct{ name, text, want, fail string }{
		{"said", "gpu: " + strings.ToLower(gpuA) + "\ninstruments: [{kind: replay, address: x}]", gpuA, ""},
		{"not said", "instruments: [{kind: replay, address: x}]", "", ""},
		{"its own sensor", "instruments: [{kind: nvml, address: " + gpuB + "}]", gpuB, ""},
		{"its own sensor, said too", "gpu: " + gpuB + "\ninstruments: [{kind: nvml, address: " + gpuB + "}]", gpuB, ""},
		{"sensor of an index", "instruments: [{kind: nvml, address: \"1\"}]", "", ""},
		{"another's sensor", "gpu: " + gpuA + "\ninstruments: [{kind: nvml, address: " + gpuB + "}]", "", "b.yaml:1:6: gpu: the bench measures " + gpuA + ", and its instrument is the sensor of " + gpuB},
		{"an index", "gpu: 0\ninstruments: [{kind: replay, address: x}]", "", `b.yaml:1:6: gpu: "0" is not the UUID of a GPU: want GPU-`},
		{"a MIG device", "gpu: MIG-8f6e1f2a-0b1c-2d3e-4f50-6172839405af\ninstruments: [{kind: replay, address: x}]", "", "gpu: \"MIG-8f6e1f2a-0b1c-2d3e-4f50-6172839405af\" is a MIG device"},
		{"misspelt", "gpus: " + gpuA + "\ninstruments: [{kind: replay, address: x}]", "", `b.yaml:1:1: unknown field "gpus"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := Parse("b.yaml", []byte(c.text))
			var e *Error
			if c.fail != "" {
				if !errors.As(err, &e) || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got %v, want %s", err, c.fail)
				}
				return
			}
			if err != nil || b.GPU != c.want {
				t.Errorf("got %+v, %v; want %s", b, err, c.want)
			}
		})
	}
	if b, err := Default("nvml", gpuA); err != nil || b.GPU != gpuA {
		t.Errorf("without a file: %+v, %v", b, err)
	}
}

func TestSameInstruments(t *testing.T) {
	const gpu = "gpu: GPU-01234567-89ab-cdef-0123-456789abcdef\n"
	parse := func(text string) *Bench {
		t.Helper()
		b, err := Parse("b.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	was := parse(fourWirings)
	for _, c := range []struct {
		name, old, new string
		same           bool
	}{
		{"nothing", "", "", true},
		{"a gain", "gain: 0.002", "gain: 0.003", true},
		{"a rail's name", "name: slot", "name: socket", true},
		{"a shunt", "ohm: 0.005", "ohm: 0.006", true},
		{"the bench's name", "name: riser", "name: other", false},
		{"the address", "address: somewhere", "address: elsewhere", false},
		{"an option", "at_end: stop", "at_end: wait", false},
		{"the GPU", "\nname: riser\n", "\nname: riser\n" + gpu, false},
	} {
		text := strings.Replace(fourWirings, c.old, c.new, 1)
		if c.old != "" && text == fourWirings {
			t.Fatalf("%s: nothing was replaced", c.name)
		}
		if got := was.SameInstruments(parse(text)); got != c.same {
			t.Errorf("%s: same = %v", c.name, got)
		}
	}
}

// The page's example is a bench file that works, and the pages name every kind.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/bench-file.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("no example on the page")
	}
	for _, b := range blocks {
		if _, err := Parse("docs/bench-file.md", b[1]); err != nil {
			t.Error(err)
		}
	}
	instruments, err := os.ReadFile("../../docs/instruments.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range registry.Kinds() {
		if !regexp.MustCompile("(?m)^## " + k.Name + "$").Match(instruments) {
			t.Errorf("docs/instruments.md has no section ## %s", k.Name)
		}
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + k.Name + "`").Match(instruments) {
			t.Errorf("the table at the top of docs/instruments.md has no row of %s", k.Name)
		}
	}
}

// The benches to copy are sound, called as their files are, and each is explained: by
// the page beside them or by its own first line.
func TestBenchesToCopy(t *testing.T) {
	const dir = "../../docs/benches"
	files, err := filepath.Glob(dir + "/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v, %v", files, err)
	}
	page, err := os.ReadFile("../../docs/bench-file.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := b.NewInstrument(registry.Env{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(b.file.Rails) == 0 {
			t.Errorf("%s names no rails", name)
		}
		if b.Name+".yaml" != filepath.Base(name) {
			t.Errorf("%s is called %s", name, b.Name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(page, []byte("`"+filepath.Base(name)+"`")) && !bytes.HasPrefix(text, []byte("#")) {
			t.Errorf("nothing explains %s", filepath.Base(name))
		}
	}
}

// exampleKinds lists the kinds of instrument that have a ready-made bench file.
func exampleKinds() (kinds []string) {
	entries, _ := os.ReadDir("examples")
	for _, e := range entries {
		kinds = append(kinds, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return kinds
}
