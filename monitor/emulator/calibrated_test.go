//go:build linux

package emulator_test

import (
	"strings"
	"testing"
	"time"

	"wattmark/measure/calib"
	"wattmark/monitor/bench"
	"wattmark/monitor/calibration"
	owning "wattmark/monitor/capture"
	"wattmark/monitor/instrument/registry"
	"wattmark/monitor/spool"
)

// Of two meters on one card, one has been calibrated: its record is in force in the
// capture of both, and that of a third meter is not.
func TestARecordOfOneOfTwoMeters(t *testing.T) {
	p := newPlant(t)
	file, err := bench.Parse("bench.yaml", []byte(instrumentsKey+p.pmd(0, "aux_12v_1", "aux_12v_2")+p.labjack("pcie_12v", "pcie_3v3")))
	if err != nil {
		t.Fatal(err)
	}
	ins, err := file.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	folder := calibration.Folder(t.TempDir())
	store, err := spool.Open(t.TempDir(), spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	owner, err := owning.New(owning.Config{Bench: "bench", Instrument: ins, Setup: file.Setup, Calibrate: folder.Calibrate, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	p.run(owner.Run)
	header := func() spool.Header {
		c, err := owner.Start(t.Context(), owning.Request{Holder: "ada@lab"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		return c.Header()
	}
	first := header()
	parts := first.Instrument.Parts()
	if len(parts) != 2 || parts[0].Kind != "pmd" || parts[1].Kind != "labjack" || parts[1].Serial == "" || len(first.Setup.Records) != 0 {
		t.Fatalf("%+v, %+v", parts, first.Setup.Records)
	}
	const channel = "pcie_12v.current"
	at := -1
	for i, c := range first.Setup.Channels {
		if c.Name == "t7/"+channel {
			at = i
		}
	}
	was := first.Setup.Channels[at]
	record := func(serial string, gain float64) {
		nominal := calib.ScaleOf(was)
		scale := nominal
		scale.Gain *= gain
		r := &calib.Record{
			Done: calib.Gain, At: time.Now(), By: "ada", Instrument: calib.Instrument{Kind: "labjack", Serial: serial},
			Channels: []calib.Channel{{Name: channel, Unit: was.Unit, Scale: &scale, Nominal: &nominal}},
		}
		if _, err := folder.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	record(parts[1].Serial, 1.01)
	record("another", 1.02)
	second := header()
	for i, c := range second.Setup.Channels {
		want := first.Setup.Channels[i]
		if i == at {
			want.Gain *= 1.01
		}
		if c != want {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	notes := strings.Join(owner.Bench(t.Context()).Notes, "\n")
	if len(second.Setup.Records) != 1 || !strings.Contains(notes, "it is of a labjack another, this is a pmd") {
		t.Errorf("%+v, %s", second.Setup.Records, notes)
	}
}
