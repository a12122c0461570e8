package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"
)

// serveEmulated runs `emulate KIND --listen` and returns where it listens.
func serveEmulated(t *testing.T, kind string) (address string) {
	t.Helper()
	out, says := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &app{streams: streams{out: says, err: io.Discard}}
		ended <- a.emulate(ctx, kind, emulateFlags{listen: "127.0.0.1:0", period: time.Hour})
	}()
	line := make([]byte, 200)
	n, err := out.Read(line)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if address = regexp.MustCompile(`tcp:[0-9.:]+`).FindString(string(line[:n])); err != nil || address == "" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		_ = says.Close()
	})
	return address
}

func TestProbeAndCheckOfAMeter(t *testing.T) {
	address := serveEmulated(t, "powersensor3")
	var out, complaints bytes.Buffer
	s := streams{out: &out, err: &complaints}
	if err := run(t.Context(), []string{"instruments", "probe", "--instrument", "powersensor3", "--port", address, "--for", "500ms", "--json"}, s); err != nil {
		t.Fatal(err)
	}
	var p probeJSON
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	if len(p.Rails) != 4 || p.Rails[0].Rail != "pcie_3v3" || math.Abs(p.Rails[0].VoltageV.Mean-3.3) > 0.1 {
		t.Errorf("%+v", p)
	}
	out.Reset()
	if err := run(t.Context(), []string{"instruments", "check", "--instrument", "powersensor3", "--port", address, "--for", "1s"}, s); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"noise a scan", "kS/s reached", "no sample lost", "a supply of 3.3 V"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if complaints.Len() > 0 {
		t.Error(complaints.String())
	}
}

func TestInstrumentsAnswerWhoTheyAre(t *testing.T) {
	address := serveEmulated(t, "ds1054z")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"instruments", "--json", "--ask", address}, streams{out: &out, err: io.Discard}); err != nil {
		t.Fatal(err)
	}
	var l instrumentList
	if err := json.Unmarshal(out.Bytes(), &l); err != nil || len(l.Asked) != 1 {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	if p := l.Asked[0]; !strings.Contains(strings.ToUpper(p.Maker), "RIGOL") || p.Model != "DS1054Z" || p.Trouble != "" {
		t.Errorf("%+v", p)
	}
}

func TestProbeNeedsAMeter(t *testing.T) {
	err := run(t.Context(), []string{"instruments", "probe"}, streams{out: io.Discard, err: io.Discard})
	if exitCode(err) != exitUsage {
		t.Errorf("%v: want wrong usage", err)
	}
}
