//go:build linux

package wt300

import (
	"testing"

	wt300face "github.com/wattmark/wattmark/monitor/emulator/wt300"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// Over whole messages, as over USB, it is the same.
func TestOverMessages(t *testing.T) {
	t.Parallel()
	r := emulate(t, wt300face.Config{}, options("WT310"))
	cfg := r.dev.config()
	cfg.Dial = montest.Messages(t, r.face.NewSession())
	r.dev.client = scpi.New(cfg)
	r.open(t)
	out, reads, err := r.stream(t, 20, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Scans()) < 20 || len(reads) != len(out.Scans()) {
		t.Errorf("%d scans of %d reads, %+v", len(out.Scans()), len(reads), r.dev.client.Stats())
	}
	r.check(t, out, reads, -1)
	if err := r.dev.Close(); err != nil {
		t.Error(err)
	}
}
