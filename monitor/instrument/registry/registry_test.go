package registry

import (
	"context"
	"errors"
	"strings"
	"testing"

	"wattmark/measure"
	"wattmark/monitor/instrument/nvml"
)

func TestEveryKind(t *testing.T) {
	env := Env{NVML: func(context.Context, string) (nvml.Sensor, error) { return nil, errors.New("none") }}
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
		s := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: rails, Missing: missing, Response: in.Response}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
}

func TestUnknownKind(t *testing.T) {
	_, err := Lookup("scope")
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "powersensor3, pmd, powenetics") {
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
