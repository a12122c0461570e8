//go:build linux

package scpi_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	scpiface "github.com/wattmark/wattmark/monitor/emulator/scpi"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
	"github.com/wattmark/wattmark/monitor/transport"
)

// wave is what the instrument's memory holds: every byte, line feeds included.
func wave() []byte {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func scope() *scpiface.Instrument {
	return scpiface.New("ACME,S1,42,1.0", nil, []scpiface.Command{
		{Pattern: "DATA", Query: func(scpiface.Call) ([]byte, error) { return scpiface.Block(9, wave()), nil }},
		{Pattern: "EMPTy", Query: func(scpiface.Call) ([]byte, error) { return scpiface.Block(1, nil), nil }},
		{Pattern: "INDefinite", Query: func(scpiface.Call) ([]byte, error) { return []byte("#0abc"), nil }},
		{Pattern: "LEVel", Query: func(scpiface.Call) ([]byte, error) { return scpiface.Text("+1.25E+00") }},
	})
}

// serve lets an instrument listen, with its replies in fragments.
func serve(t *testing.T, i *scpiface.Instrument, fragment int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- i.Serve(ctx, l, func(c net.Conn) io.ReadWriteCloser {
			return fault.New(c, fault.Faults{Seed: 1, Fragment: fragment})
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "tcp:" + l.Addr().String()
}

// silence is the timeout of tests in which an instrument does not answer. Those in which it does wait for a minute.
const silence = time.Second

func open(t *testing.T, cfg scpi.Config) *scpi.Client {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	cfg.Quiet = 15 * time.Millisecond
	cfg.Backoff.First = 10 * time.Millisecond
	c := scpi.New(cfg)
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// good checks that the client gets what the instrument has.
func good(t *testing.T, c *scpi.Client) {
	t.Helper()
	b, err := c.QueryBlock(t.Context(), ":DATA?", 1000, nil)
	if err != nil || string(b) != string(wave()) {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if v, err := scpi.Ask(t.Context(), c, ":LEV?", scpi.ParseNumber); err != nil || v != 1.25 {
		t.Fatalf("%v, %v", v, err)
	}
	if err := c.Check(t.Context(), "all of it"); err != nil {
		t.Fatal(err)
	}
}

func TestExchanges(t *testing.T) {
	for name, c := range map[string]struct {
		fragment int
		end      string
		signed   bool
	}{
		"whole": {}, "byte by byte": {fragment: 1}, "CR LF and a signed zero": {end: "\r\n", signed: true},
		"two line ends": {end: "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			i := scope()
			i.End, i.Signed = c.end, c.signed
			client := open(t, scpi.Config{Address: serve(t, i, c.fragment)})
			if client.Identity() != (scpi.Identity{Maker: "ACME", Model: "S1", Serial: "42", Firmware: "1.0"}) {
				t.Errorf("%+v", client.Identity())
			}
			for range 3 {
				good(t, client)
			}
			if b, err := client.QueryBlock(t.Context(), ":EMPT?", 10, []byte("x")); err != nil || string(b) != "x" {
				t.Errorf("an empty block: %q, %v", b, err)
			}
			good(t, client)
			if s := client.Stats(); s.Timeouts+s.Resyncs+s.Reconnects != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestOnASerialLine(t *testing.T) {
	port, err := pty.OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- scope().Run(ctx, port) }()
	good(t, open(t, scpi.Config{Address: port.Path()}))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// After each fault the very next exchange must be right, and exactly that.
func TestTheLinkComesBackInStep(t *testing.T) {
	for name, c := range map[string]struct {
		fault      scpiface.Fault
		reconnects uint64
		fails      bool
	}{
		"late reply": {
			scpiface.Fault{Kind: scpiface.Late, Match: ":DATA?", For: silence + 50*time.Millisecond},
			0,
			true,
		},
		"no reply":        {scpiface.Fault{Kind: scpiface.Mute, Match: ":DATA?"}, 0, true},
		"truncated block": {scpiface.Fault{Kind: scpiface.Truncate, Match: ":DATA?", Bytes: 300}, 0, true},
		"hang-up":         {scpiface.Fault{Kind: scpiface.Hangup, Match: ":DATA?"}, 1, true},
		"unsolicited text": {
			scpiface.Fault{Kind: scpiface.Unsolicited, Match: ":DATA?", Text: "Hello, I am here!\n"},
			0, true,
		},
		"junk behind": {scpiface.Fault{Kind: scpiface.Junk, Match: ":DATA?", Text: "12345\n\x00\xff"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			i := scope()
			client := open(t, scpi.Config{Address: serve(t, i, 0), Timeout: silence})
			i.Inject(c.fault)
			b, err := client.QueryBlock(t.Context(), ":DATA?", 1000, nil)
			if (err != nil) != c.fails || (err != nil && len(b) > 0) {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			good(t, client)
			if s := client.Stats(); s.Reconnects != c.reconnects {
				t.Errorf("%+v", s)
			}
			if i.Pending() != 0 {
				t.Error("the fault never happened")
			}
		})
	}
}

func TestAReplyToSomethingElseIsAskedForAgain(t *testing.T) {
	i := scope()
	client := open(t, scpi.Config{Address: serve(t, i, 0)})
	i.Inject(scpiface.Fault{Kind: scpiface.Unsolicited, Match: ":LEV?", Text: "BUTTON,3\n"})
	if v, err := scpi.Ask(t.Context(), client, ":LEV?", scpi.ParseNumber); err != nil || v != 1.25 {
		t.Errorf("%v, %v", v, err)
	}
	if s := client.Stats(); s.Resyncs != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAnotherInstrumentAfterATimeout(t *testing.T) {
	i := scope()
	client := open(t, scpi.Config{Address: serve(t, i, 0), Timeout: silence})
	i.Inject(scpiface.Fault{Kind: scpiface.Mute, Match: ":LEV?"})
	if _, err := client.Query(t.Context(), ":LEV?"); !errors.Is(err, instrument.ErrSilent) ||
		!strings.Contains(err.Error(), "remote mode") {
		t.Fatalf("got %v", err)
	}
	i.SetIdentity("ACME,S1,43,1.0")
	if _, err := client.Query(t.Context(), ":LEV?"); !errors.Is(err, instrument.ErrIdentity) {
		t.Fatalf("got %v", err)
	}
	i.SetIdentity("ACME,S1,42,1.0")
	good(t, client)
}

func TestRefusals(t *testing.T) {
	i := scope()
	i.Raise(scpiface.ErrConflict) // of an earlier user
	client := open(t, scpi.Config{Address: serve(t, i, 0)})
	if err := client.Check(t.Context(), "nothing"); err != nil {
		t.Error("an old error outlives *CLS:", err)
	}
	if err := client.Command(t.Context(), ":FLY 3"); err != nil {
		t.Fatal(err)
	}
	err := client.Check(t.Context(), "flying")
	var e scpi.DeviceError
	if !errors.Is(err, scpi.ErrInstrument) || !errors.As(err, &e) || e.Code != -113 {
		t.Errorf("got %v", err)
	}
	if _, err := client.QueryBlock(t.Context(), ":IND?", 10, nil); !errors.Is(err, scpi.ErrIndefinite) {
		t.Errorf("got %v", err)
	}
	if _, err := client.QueryBlock(t.Context(), ":DATA?", 999, nil); !errors.Is(err, scpi.ErrTooLong) {
		t.Errorf("got %v", err)
	}
	good(t, client)
	wrong := scpi.New(scpi.Config{
		Address: serve(t, i, 0),
		Accept:  func(id scpi.Identity) error { return instrument.ErrIdentity },
	})
	if err := wrong.Open(t.Context()); !errors.Is(err, instrument.ErrIdentity) {
		t.Errorf("got %v", err)
	}
	if _, err := wrong.Query(t.Context(), "*IDN?"); err == nil {
		t.Error("a client that is not open answers")
	}
}

// A second user of the same instrument is told, not served.
func TestOneUserAtATime(t *testing.T) {
	address := serve(t, scope(), 0)
	_ = open(t, scpi.Config{Address: address})
	if err := scpi.New(scpi.Config{Address: address}).Open(t.Context()); !errors.Is(err, transport.ErrBusy) {
		t.Errorf("got %v", err)
	}
}

func TestACancelledQueryEndsAtOnce(t *testing.T) {
	i := scope()
	client := open(t, scpi.Config{Address: serve(t, i, 0), Timeout: time.Minute})
	i.Inject(scpiface.Fault{Kind: scpiface.Mute, Match: ":LEV?"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for i.Pending() > 0 && ctx.Err() == nil { // until the instrument has taken the query
			runtime.Gosched()
		}
	}()
	begin := time.Now()
	if _, err := client.Query(ctx, ":LEV?"); !errors.Is(err, context.Canceled) || errors.Is(err, instrument.ErrSilent) {
		t.Errorf("got %v", err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
	good(t, client)
}

// Over whole messages the device speaks only when read from: the client must
// never read without having asked.
func TestWholeMessages(t *testing.T) {
	dial := montest.Messages(t, scope().NewSession())
	client := open(t, scpi.Config{Address: "usbtmc:test", Dial: dial, Timeout: silence})
	for range 3 {
		good(t, client)
	}
	if _, err := client.Query(t.Context(), ":NONE?"); !errors.Is(err, instrument.ErrSilent) {
		t.Errorf("got %v", err)
	}
	good(t, client)
	if s := client.Stats(); s.Reconnects != 0 {
		t.Errorf("%+v", s)
	}
}

func TestNothingLeaks(t *testing.T) {
	address := serve(t, scope(), 0)
	client := scpi.New(scpi.Config{Address: address, Quiet: time.Millisecond})
	descriptors := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc here")
		}
		return len(d)
	}
	cycle := func() {
		if err := client.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	fds, routines := descriptors(), runtime.NumGoroutine()
	for range 1000 {
		cycle()
	}
	if n := settled(runtime.NumGoroutine, routines); n > routines+2 {
		t.Errorf("%d goroutines, %d before", n, routines)
	}
	if n := settled(descriptors, fds); n > fds+2 {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
}

// settled waits until the other side has noticed what was closed.
func settled(count func() int, goal int) int {
	for end := time.Now().Add(2 * time.Second); count() > goal && time.Now().Before(end); {
		runtime.Gosched()
	}
	return count()
}

// The reply to a query of another program, which comes late, is not taken for an identity.
func TestALateReplyIsNoIdentity(t *testing.T) {
	mine, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		lines := bufio.NewScanner(theirs)
		for late := "+1.25E+00\n"; lines.Scan(); {
			if lines.Text() == "*IDN?" {
				_, _ = io.WriteString(theirs, late+"ACME,S1,42,1.0\n")
				late = ""
			}
		}
	}()
	c := scpi.New(scpi.Config{
		Address: "tcp:scope:5555",
		Dial:    func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil },
	})
	if err := c.Open(t.Context()); err != nil || c.Identity().Model != "S1" {
		t.Errorf("%+v, %v", c.Identity(), err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// An instrument that does not know a command says so once, however often it says it.
func TestAnUnknownCommandIsToldOnce(t *testing.T) {
	for name, c := range map[string]struct {
		commands []string
		want     string
		is       error
	}{
		"unknown": {
			[]string{":RUN", ":STOP", ":CHAN1:SCAL 1", ":CHAN2:SCAL 1"},
			"it answered -113 to",
			instrument.ErrIdentity,
		},
		"many faults": {[]string{"LEVel 5 6", "LEVel 7 8"}, "", scpi.ErrInstrument},
	} {
		t.Run(name, func(t *testing.T) {
			client := open(t, scpi.Config{Address: serve(t, scope(), 0)})
			for _, s := range c.commands {
				if err := client.Command(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			err := client.Check(t.Context(), "set up")
			if !errors.Is(err, c.is) || !errors.Is(err, scpi.ErrInstrument) || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "\n") || len(err.Error()) > 200 {
				t.Errorf("%v", err)
			}
		})
	}
}
