package main

import (
	"testing"

	"github.com/spf13/cobra"

	benchcmd "github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
)

// What emulate says to type next is a meter that the monitor knows.
func TestEmulatedMetersHaveDrivers(t *testing.T) {
	for _, kind := range emulated(t).ValidArgs {
		if _, err := registry.Lookup(benchcmd.DriverOf(kind)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// The emulated SCPI instruments and their drivers' defaults fit each other.
func TestEmulatedInstrumentsOpen(t *testing.T) {
	t.Parallel()
	for kind, rails := range map[string]int{
		"ds1054z": 2, "mso5074": 2, "dho804": 2, "dsox1102g": 1, "edux1002g": 1,
		"sds2104x-plus": 2, "sds2104x-hd": 2, "mdo3014": 2, "mso44": 2, "rtb2004": 2, "u2356a": 1, "wt310": 1, "quarch": 4,
	} {
		t.Run(kind, func(t *testing.T) { opens(t, kind, rails) })
	}
}

// opens lets emulate serve a kind, and opens what it says is served.
func opens(t *testing.T, kind string, rails int) {
	b, err := bench.Default(benchcmd.DriverOf(kind), serveEmulated(t, kind))
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

// emulated returns the command that emulates instruments.
func emulated(t *testing.T) *cobra.Command {
	t.Helper()
	c, _, err := root(&cli.App{}).Find([]string{"emulate"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
