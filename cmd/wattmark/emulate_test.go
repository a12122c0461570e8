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

// The emulated scope and the driver's defaults fit each other.
func TestEmulatedScopeOpens(t *testing.T) {
	out, says := io.Pipe()
	var complaints bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &app{streams: streams{out: says, err: &complaints}}
		ended <- a.emulate(ctx, "ds1054z", emulateFlags{listen: "127.0.0.1:0", period: time.Second})
	}()
	line := make([]byte, 200)
	n, err := out.Read(line)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	m := regexp.MustCompile(`tcp:[0-9.:]+`).FindString(string(line[:n]))
	if err != nil || m == "" {
		t.Fatalf("%q, %v", line[:n], err)
	}
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
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	_ = says.Close()
	if complaints.Len() > 0 {
		t.Error(complaints.String())
	}
}

// Several meters have one address each.
func TestEmulateSeveral(t *testing.T) {
	each, err := emulateFlags{link: "/tmp/a,", listen: ",127.0.0.1:1", seed: 3}.split(2)
	if err != nil || each[0].link != "/tmp/a" || each[1].link != "" || each[0].listen != "" || each[1].listen != "127.0.0.1:1" || each[0].seed == each[1].seed {
		t.Errorf("%+v, %v", each, err)
	}
	if _, err := (emulateFlags{link: "/tmp/a"}).split(2); err == nil {
		t.Error("one link for two meters")
	}
	if one, err := (emulateFlags{link: "/tmp/a,b"}).split(1); err != nil || one[0].link != "/tmp/a,b" {
		t.Errorf("%+v, %v", one, err)
	}
}
