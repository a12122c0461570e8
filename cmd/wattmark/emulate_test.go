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

// The emulated scope and the driver's defaults fit each other.
func TestEmulatedScopeOpens(t *testing.T) {
	m := serveEmulated(t, "ds1054z")
	b, err := bench.Default("rigol-ds1000z", m)
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
	if err != nil || len(setup.Rails) != 2 || ins.Identity().Model != "DS1054Z" {
		t.Errorf("%+v, %+v, %v", setup.Rails, ins.Identity(), err)
	}
	if err := ins.Close(); err != nil {
		t.Error(err)
	}
}
