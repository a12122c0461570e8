package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"testing"
	"time"

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

// The emulated scopes and the drivers' defaults fit each other.
func TestEmulatedScopesOpen(t *testing.T) {
	for kind, rails := range map[string]int{"ds1054z": 2, "mso5074": 2, "dho804": 2, "dsox1102g": 1, "edux1002g": 1, "sds2104x-plus": 2, "sds2104x-hd": 2, "mdo3014": 2, "mso44": 2} {
		t.Run(kind, func(t *testing.T) { openEmulated(t, kind, rails) })
	}
}

func openEmulated(t *testing.T, kind string, rails int) {
	out, says := io.Pipe()
	var complaints bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &app{streams: streams{out: says, err: &complaints}}
		ended <- a.emulate(ctx, kind, emulateFlags{imperfect: true, listen: "127.0.0.1:0", period: time.Second})
	}()
	line := make([]byte, 200)
	n, err := out.Read(line)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	m := regexp.MustCompile(`tcp:[0-9.:]+`).FindString(string(line[:n]))
	if err != nil || m == "" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	b, err := bench.Default(driverOf(kind), m)
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
	if err != nil || len(setup.Rails) != rails {
		t.Errorf("%+v, %+v, %v", setup.Rails, ins.Identity(), err)
	}
	if err := ins.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	_ = says.Close()
	if complaints.Len() > 0 {
		t.Error(complaints.String())
	}
}
