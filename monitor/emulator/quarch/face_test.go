package quarch

import (
	"context"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// client is one as quarchpy is: it reads until the last byte that came is the prompt.
func client(t *testing.T, f *Face) (ask func(command string) string) {
	t.Helper()
	mine, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(t.Context(), theirs) }()
	t.Cleanup(func() {
		_ = mine.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	buf := make([]byte, 1<<20)
	ask = func(command string) string {
		if command != "" {
			if _, err := io.WriteString(mine, command+"\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		for n := 0; ; {
			k, err := mine.Read(buf[n:])
			if err != nil {
				t.Fatal(err)
			}
			if n += k; buf[n-1] == '>' {
				return strings.TrimSuffix(string(buf[:n]), "\r\n>")
			}
		}
	}
	if hello := ask(""); !strings.HasPrefix(hello, "Quarch Instrument Server") {
		t.Errorf("%q", hello)
	}
	return ask
}

func TestAnswersAsQuarchpyReadsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := montest.Workload(t, 10*time.Second)
		f, err := New(b, pace.Real(time.Now()), Config{})
		if err != nil {
			t.Fatal(err)
		}
		ask, other := client(t, f), client(t, f)
		expect := func(pairs ...string) {
			t.Helper()
			for i := 0; i < len(pairs); i += 2 {
				if got := ask(pairs[i]); got != pairs[i+1] {
					t.Errorf("%s: %q, want %q", pairs[i], got, pairs[i+1])
				}
			}
		}
		const m = "usb::qtl2312-01-035%500000 " // with the time-out that quarchpy adds
		expect("$list", "1) rest::qtl2312-01-035\r\n2) usb::qtl2312-01-035", "$default usb::qtl2312-01-035", "OK",
			m+"hello?", "Power Analysis Module", m+"stream text header", "Header Not Available", m+"stream text all", "eof",
			m+"record:averaging 16", "OK", m+"stream mode resample 1ms", "OK", m+"stream mode power total enable", "OK",
			m+"record:averaging many", "FAIL: bad command", m+"no such thing 1", "FAIL: bad command", "nonsense", "FAIL: bad command",
			m+"stream?", "Stopped\r\nStripes Buffered: 0 of 8388608", m+"record stream", "OK")
		time.Sleep(5*time.Second + time.Microsecond) // in virtual time
		expect(m+"stream?", "Running\r\nStripes Buffered: 5000 of 8388608", "rec stream?", "Running\r\nStripes Buffered: 5000 of 8388608")
		if head := ask(m + "stream text header"); !strings.Contains(head, "<devicePeriod>1000us</devicePeriod>") ||
			strings.Count(head, "<channel>") != 9 {
			t.Error(head)
		}
		lines := strings.Split(ask(m+"stream text all"), "\r\n")
		if len(lines) != maxText {
			t.Errorf("%d stripes, %s", len(lines), lines[len(lines)-1])
		}
		lines = append(lines, strings.Split(other(m+"stream text all"), "\r\n")...) // clients share a buffer
		if len(lines) != 5001 || lines[5000] != "eof" {
			t.Fatalf("%d stripes", len(lines))
		}
		for n, line := range lines[:5000] {
			fields := strings.Fields(line)
			mV, _ := strconv.ParseFloat(fields[7], 64)
			uA, _ := strconv.ParseFloat(fields[8], 64)
			at := f.StreamStart() + time.Duration(n)*time.Millisecond
			want := b.Rail(3, b.MeanPower(at, at+time.Millisecond))
			if len(fields) != 10 || fields[0] != strconv.Itoa(1000*n) || fields[9] != "1" ||
				math.Abs(mV-1e3*float64(want.V)) > 8 || math.Abs(uA-1e6*float64(want.I)) > 15_000 {
				t.Fatalf("stripe %d: %q, the board had %+v", n, line, want)
			}
		}
		time.Sleep(3 * time.Millisecond)
		for _, begin := range []string{"5000000 ", "5001000 "} {
			if one := ask(m + "stream text 1"); !strings.HasPrefix(one, begin) || strings.Contains(one, "\r\n") {
				t.Error(one)
			}
		}
		expect(m+"rec stop", "OK", m+"stream?", "Stopped: User\r\nStripes Buffered: 1 of 8388608")
	})
}

func TestAFullBufferStopsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := New(montest.Workload(t, time.Second), pace.Real(time.Now()), Config{Buffer: 100})
		if err != nil {
			t.Fatal(err)
		}
		ask := client(t, f)
		ask("record:averaging 1k")
		ask("rec stream")
		time.Sleep(time.Second)
		if s := ask("stream?"); s != "Stopped: Overrun\r\nStripes Buffered: 100 of 100" {
			t.Error(s)
		}
		if s := ask("stream text all"); strings.Count(s, "\r\n") != 100 || !strings.Contains(s, "\r\n405504 ") {
			t.Error(s)
		}
	})
}

// quarchpy lists, sets up, and records a stream to a file.
const quarchpy = `
import os, sys, tempfile, time
from quarchpy.device import quarchDevice, quarchPPM
from quarchpy.connection_specific.connection_QIS import QisInterface
host, port = sys.argv[1].split(":")
print(QisInterface(host, int(port)).qis_scan_devices(scan=False))
p = quarchPPM(quarchDevice("USB::QTL2312-01-035", ConType="QIS:%s:%s" % (host, port)))
print(p.sendCommand("hello?"))
print([p.sendCommand(c) for c in ("record:trigger:mode manual", "record:averaging 64", "stream mode header v3", "record:no such thing")], p.streamResampleMode("1ms"))
name = os.path.join(sys.argv[2], "stream.csv")
p.startStream(name, 2000, "x")
time.sleep(0.5)
print(p.streamRunningStatus(), p.streamBufferStatus().split(" of ")[1])
p.stopStream()
print(p.streamRunningStatus())
`

// The real client. It is not in Debian, so that it may be missing anywhere; the client above reads as it does.
func TestQuarchpy(t *testing.T) {
	if out, err := exec.Command("python3", "-c", "import quarchpy.device").CombinedOutput(); err != nil {
		t.Skipf("no quarchpy (pip install quarchpy): %v\n%s", err, out)
	}
	b, _ := montest.Busy(t)
	f, err := New(b, pace.Real(time.Now()), Config{})
	if err != nil {
		t.Fatal(err)
	}
	at, _ := montest.Serve(t, "127.0.0.1:0", func(ctx context.Context, l net.Listener) error {
		defer context.AfterFunc(ctx, func() { _ = l.Close() })()
		for {
			c, err := l.Accept()
			if err != nil {
				return nil
			}
			go func() { _ = f.Run(ctx, c) }()
		}
	})
	dir := t.TempDir()
	want := []string{
		"['usb::qtl2312-01-035']", "Power Analysis Module", "['OK', 'OK', 'OK', 'FAIL: bad command'] stream mode resample 1ms : OK",
		"Running 8388608", "Stopped User",
	}
	if got := montest.Lines(montest.Run(t, "python3", "-c", quarchpy, at, dir)); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "stream.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) < 300 || lines[0] != "Time uS,3.3V mV,3.3V uA,12V mV,12V uA,AUX_12V_1 mV,AUX_12V_1 uA,AUX_12V_2 mV,AUX_12V_2 uA,PERST# D," {
		t.Fatalf("%d lines, %s", len(lines), lines[0])
	}
	for n, line := range lines[1:] {
		if fields := strings.Split(strings.TrimSpace(line), ","); len(fields) != 10 || fields[0] != strconv.Itoa(1000*n) {
			t.Fatalf("stripe %d: %q", n, line)
		}
	}
}
