//go:build linux

package u2300

import (
	"testing"

	"wattmark/monitor/emulator/u2300face"
	"wattmark/monitor/instrument/insttest"
	"wattmark/monitor/scpi"
)

// Over whole messages, as over USB, it is the same.
func TestOverMessages(t *testing.T) {
	r := emulate(t, u2300face.Config{Noise: -1}, options(20_000), 0)
	cfg := r.dev.config()
	cfg.Dial = insttest.Messages(t, r.face.NewSession())
	r.dev.client = scpi.New(cfg)
	r.open(t)
	out, err := r.stream(t, 10_000, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := out.Events(0); len(e) != 0 {
		t.Errorf("%+v", e)
	}
	r.placed(t, out, 0, len(out.Scans()), r.runs(t, 1)[0])
	if err := r.dev.Close(); err != nil {
		t.Error(err)
	}
}
