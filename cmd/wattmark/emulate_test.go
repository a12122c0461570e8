package main

import (
	"testing"

	"wattmark/monitor/bench"
	"wattmark/monitor/instrument/registry"
)

// What emulate says to type next is a meter that the monitor knows.
func TestEmulatedMetersHaveDrivers(t *testing.T) {
	for _, kind := range (&app{}).emulateCmd().ValidArgs {
		if _, err := registry.Lookup(driverOf(kind)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// The emulated SCPI instruments and their drivers' defaults fit each other.
func TestEmulatedInstrumentsOpen(t *testing.T) {
	for kind, rails := range map[string]int{
		"ds1054z": 2, "mso5074": 2, "dho804": 2, "dsox1102g": 1, "edux1002g": 1,
		"sds2104x-plus": 2, "sds2104x-hd": 2, "mdo3014": 2, "mso44": 2, "u2356a": 1, "wt310": 1,
	} {
		t.Run(kind, func(t *testing.T) { opens(t, kind, rails) })
	}
}

// opens lets emulate serve a kind, and opens what it says is served.
func opens(t *testing.T, kind string, rails int) {
	b, err := bench.Default(driverOf(kind), serveEmulated(t, kind))
	if err != nil {
		t.Fatal(err)
	}
	ins, err := b.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if err := ins.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	setup, err := b.Setup(ins.Inputs())
	if err != nil || len(setup.Rails) != rails || ins.Identity().Model == "" {
		t.Errorf("%+v, %+v, %v", setup.Rails, ins.Identity(), err)
	}
	if err := ins.Close(); err != nil {
		t.Error(err)
	}
}

// Several meters have one address each.
func TestEmulateSeveral(t *testing.T) {
	each, err := emulateFlags{link: "/tmp/a,", listen: ",127.0.0.1:1", seed: 3}.split([]string{"pmd", "labjack"})
	if err != nil || each[0].link != "/tmp/a" || each[1].link != "" || each[0].listen != "" || each[1].listen != "127.0.0.1:1" || each[0].seed == each[1].seed {
		t.Errorf("%+v, %v", each, err)
	}
	if _, err := (emulateFlags{link: "/tmp/a"}).split([]string{"pmd", "labjack"}); err == nil {
		t.Error("one link for two meters")
	}
	if one, err := (emulateFlags{link: "/tmp/a,b"}).split([]string{"pmd"}); err != nil || one[0].link != "/tmp/a,b" {
		t.Errorf("%+v, %v", one, err)
	}
	if m, err := (emulateFlags{model: "t8", play: "x"}).split([]string{"pmd", "labjack"}); err != nil || m[0].model != "" || m[1].model != "t8" || m[0].play != "x" || m[1].play != "" {
		t.Errorf("%+v, %v", m, err)
	}
	for _, f := range []emulateFlags{{model: "t8"}, {play: "x"}} {
		if _, err := f.split([]string{"powersensor3", "wt310"}); err == nil {
			t.Errorf("%+v", f)
		}
	}
}
