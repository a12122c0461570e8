package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"wattmark/monitor/bench"
	"wattmark/monitor/instrument/registry"
)

// The papers' bench file opens the emulated device; so does no file at all.
func TestEmulatedNIOpens(t *testing.T) {
	out, says := io.Pipe()
	var complaints bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &app{streams: streams{out: says, err: &complaints}}
		ended <- a.emulate(ctx, "nidaqmx", emulateFlags{listen: "127.0.0.1:0", period: time.Second})
	}()
	line := make([]byte, 200)
	n, err := out.Read(line)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	at := regexp.MustCompile(`tcp:[0-9.:]+`).FindString(string(line[:n]))
	if err != nil || at == "" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	text, err := os.ReadFile("../../docs/benches/ni-usb6259.yaml")
	if err != nil {
		t.Fatal(err)
	}
	papers, err := bench.Parse("ni-usb6259.yaml", []byte(strings.Replace(string(text), "tcp:192.168.1.30:31763", at, 1)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := bench.Default("nidaqmx", at)
	if err != nil {
		t.Fatal(err)
	}
	for b, rails := range map[*bench.Bench]int{papers: 3, plain: 1} {
		ins, err := b.NewInstrument(registry.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if err := ins.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		setup, err := b.Setup(ins.Inputs())
		if err != nil || len(setup.Rails) != rails || ins.Identity().Model != "USB-6259" {
			t.Errorf("%+v, %+v, %v", setup.Rails, ins.Identity(), err)
		}
		if err := ins.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	_ = says.Close()
	if complaints.Len() > 0 {
		t.Error(complaints.String())
	}
}

// What cannot be done to gRPC is refused.
func TestEmulatedNIFlags(t *testing.T) {
	for _, f := range []emulateFlags{{play: "x"}, {link: "x"}} {
		a := &app{}
		if err := a.emulate(t.Context(), "nidaqmx", f); err == nil || !strings.Contains(err.Error(), "gRPC") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
