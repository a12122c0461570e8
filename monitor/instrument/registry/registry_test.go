package registry

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
)

func TestEveryKind(t *testing.T) {
	none := func(context.Context, string) (nvml.Sensor, error) { return nil, errors.New("none") }
	env := Env{NVML: none, AMD: none}
	for _, k := range Kinds() {
		got, err := Lookup(k.Name)
		if err != nil || got.Name != k.Name || k.Summary == "" || k.Address == "" {
			t.Errorf("%s: %+v, %v", k.Name, got, err)
		}
		o := k.Options()
		if err := k.Check(o); err != nil {
			t.Errorf("%s: its own defaults are refused: %v", k.Name, err)
		}
		i, err := k.New(env, "/dev/ttyX", o)
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		if id := i.Identity(); id.Kind != k.Name || id.Address != "/dev/ttyX" {
			t.Errorf("%s: %+v", k.Name, id)
		}
		if err := i.Close(); err != nil {
			t.Errorf("%s: Close of what was never opened: %v", k.Name, err)
		}
		if k.Inputs == nil {
			continue
		}
		in := k.Inputs(o)
		rails, missing := k.Rails(in)
		s := measure.Setup{
			Timebase: in.Timebase, Channels: in.Channels, Rails: rails, Missing: missing,
			Response: in.Response,
		}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
}

func TestUnknownKind(t *testing.T) {
	_, err := Lookup("scope")
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "powersensor3, pmd") {
		t.Error(err)
	}
	k, err := Lookup("nvml")
	if err != nil {
		t.Fatal(err)
	}
	if i, err := k.New(Env{}, "", k.Options()); i != nil || !errors.Is(err, nvml.ErrNoSensor) {
		t.Errorf("%v, %v: a driver that could not be made must be nil", i, err)
	}
}

// What an identity fits is what the driver of the kind says at Open.
func TestForIdentity(t *testing.T) {
	for id, want := range map[[2]string]string{
		{"RIGOL TECHNOLOGIES", "DS1104Z Plus"}:    "rigol-ds1000z",
		{"Rigol Technologies", "mso5354"}:         "rigol-mso5000",
		{"AGILENT TECHNOLOGIES", "DSO-X 3024A"}:   "keysight-infiniivision",
		{"Siglent Technologies", "SDS2104X Plus"}: "siglent-e11",
		{"Rohde&Schwarz", "RTB2002"}:              "rohde-schwarz-rtb2000",
		{"TEKTRONIX", "MSO58LP"}:                  "tektronix",
		{"Agilent Technologies", "U2351A"}:        "keysight-u2300",
		{"YOKOGAWA", "WT333E"}:                    "yokogawa-wt300",
		{"RIGOL TECHNOLOGIES", "DS2072A"}:         "",
		{"Keysight Technologies", "U2331A"}:       "",
		{"YOKOGAWA", "WT1800"}:                    "",
		{"somebody else", "DS1104Z"}:              "",
		{"", ""}:                                  "",
	} {
		if got := strings.Join(ForIdentity(id[0], id[1]), ", "); got != want {
			t.Errorf("%s %s: %q, want %q", id[0], id[1], got, want)
		}
	}
	for _, k := range Kinds() {
		if asked := strings.Contains(k.Address, "usbtmc"); asked != (k.Accept != nil) {
			t.Errorf("%s at %s: Accept is %v", k.Name, k.Address, k.Accept != nil)
		}
	}
}
