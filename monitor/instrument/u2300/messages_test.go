//go:build linux

package u2300

import (
	"testing"

	u2300face "github.com/wattmark/wattmark/monitor/emulator/u2300"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// Over whole messages, as over USB, it is the same.
func TestOverMessages(t *testing.T) {
	t.Parallel()
	r := emulate(t, u2300face.Config{Noise: -1}, options(20_000), 0)
	cfg := r.dev.config()
	cfg.Dial = montest.Messages(t, r.face.NewSession())
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
