//go:build linux

package scpi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
	"github.com/wattmark/wattmark/monitor/transport"
)

// foreign is an instrument that is not built on our own face: bytes in, bytes out,
// as they were seen in the field. Replies are by message; "" is no reply.
type foreign struct {
	replies map[string][]string // each is one write, so that a reply comes in pieces
	// after, which may be nil, gets the number of messages so far and may put more
	// on the line.
	after func(n int, c net.Conn)
	seen  chan string // what was asked; nil for nobody who looks
}

func (f *foreign) serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			return nil
		}
		end := context.AfterFunc(ctx, func() { _ = c.Close() })
		f.client(c)
		end()
		_ = c.Close()
	}
}

func (f *foreign) client(c net.Conn) {
	lines := bufio.NewScanner(c)
	for n := 1; lines.Scan(); n++ {
		message := strings.TrimRight(lines.Text(), "\r")
		if f.seen != nil {
			f.seen <- message
		}
		for _, part := range f.replies[message] {
			if _, err := c.Write([]byte(part)); err != nil {
				return
			}
		}
		if f.after != nil {
			f.after(n, c)
		}
	}
}

// reach puts a foreign instrument on the net and a client on it.
func reach(t *testing.T, f *foreign, timeout time.Duration) *scpi.Client {
	t.Helper()
	at, _ := montest.Serve(t, "127.0.0.1:0", f.serve)
	return open(t, scpi.Config{Address: "tcp:" + at, Timeout: timeout})
}

const waveform = "\x00\n\r\n#80\xff\x7f\n" // ten bytes, with all that a parser could trip over

// makers are how instruments of different makers answer the same: the sign of no
// error, the ends of lines, what comes behind a block, how its length is written.
var makers = map[string]map[string][]string{
	"Rigol": {
		"*IDN?": {"RIGOL TECHNOLOGIES,DS1104Z,DS1ZA1,00.04.05\n"}, "SYST:ERR?": {"0,\"No error\"\n"},
		"WAV?": {"#9000000010" + waveform + "\n"}, "EMPTY?": {"#9000000000\n"},
	},
	"Keysight": {
		"*IDN?": {"Keysight Technologies,U2356A,MY1,A.2\n"}, "SYST:ERR?": {"+0,\"No error\"\n"},
		"WAV?": {"#800000010" + waveform}, "EMPTY?": {"#800000000"},
	},
	"Siglent": {
		"*IDN?": {"Siglent Technologies,SDS1104X-E,SDS1,8.1\n"}, "SYST:ERR?": {"0,No Error\n\n"},
		"WAV?": {"DAT2,#9000000010" + waveform + "\n\n"}, "EMPTY?": {"DAT2,#9000000000\n\n"},
	},
	"Rohde & Schwarz": {
		"*IDN?": {"Rohde&Schwarz,RTB2004,1333.1005k04/1,02.400\n"}, "SYST:ERR?": {"0,\"No error\"\n"},
		"WAV?": {"#210" + waveform + "\n"}, "EMPTY?": {"#10\n"},
	},
	"Tektronix": {
		"*IDN?":     {"TEKTRONIX,TDS 2024B,C1,CF:91.1CT FV:v22.11\r\n"},
		"SYST:ERR?": {"0,\"No events to report - queue empty\"\r\n"},
		"WAV?":      {"#210" + waveform + "\n\xff\xffgarbage\n"}, "EMPTY?": {"#10\r\n"},
	},
	"Yokogawa": {
		"*IDN?": {"YOKOGAWA,WT310,C2,F1.03\n"}, "SYST:ERR?": {"0,\"No error\"\n"},
		"WAV?": {"#40010" + waveform + "\n"}, "EMPTY?": {"#40000\n"},
	},
}

// reads checks that a client gets from a maker's instrument what it means.
func reads(t *testing.T, c *scpi.Client) {
	t.Helper()
	if b, err := c.QueryBlock(t.Context(), "WAV?", 100, nil); err != nil || string(b) != waveform {
		t.Errorf("a block: %q, %v", b, err)
	}
	if b, err := c.QueryBlock(t.Context(), "EMPTY?", 100, []byte("before")); err != nil || string(b) != "before" {
		t.Errorf("an empty block: %q, %v", b, err)
	}
	if err := c.Check(t.Context(), "all"); err != nil {
		t.Error(err)
	}
}

func TestMakers(t *testing.T) {
	for name, replies := range makers {
		t.Run(name, func(t *testing.T) {
			c := reach(t, &foreign{replies: replies}, time.Minute)
			for range 3 {
				reads(t, c)
			}
			if s := c.Stats(); s.Resyncs+s.Timeouts+s.Reconnects != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// However a network cuts a reply in two, it is the same reply. A pipe gives each
// write to a read of its own.
func TestASplitAtEveryByte(t *testing.T) {
	whole := makers["Siglent"]
	for at := 1; at < len(whole["WAV?"][0]); at++ {
		replies := map[string][]string{}
		for message, r := range whole {
			cut := min(at, len(r[0])-1)
			replies[message] = []string{r[0][:cut], r[0][cut:]}
		}
		c := open(t, scpi.Config{Address: "tcp:pipe:1", Dial: func(context.Context) (transport.Conn, error) {
			mine, theirs := net.Pipe()
			go (&foreign{replies: replies}).client(theirs)
			return transport.NewNet(mine), nil
		}})
		reads(t, c)
		if s := c.Stats(); s.Resyncs+s.Timeouts != 0 {
			t.Errorf("cut at byte %d: %+v", at, s)
		}
		_ = c.Close()
	}
}

func TestBlocksThatCannotBeTaken(t *testing.T) {
	for reply, want := range map[string]error{
		"#0abc\n":           scpi.ErrIndefinite,
		"#9999999999abc":    scpi.ErrTooLong,
		"#4abcd":            scpi.ErrReply,
		"#A10":              scpi.ErrReply,
		"+1.25E+00\n":       scpi.ErrReply,
		"#800000100short\n": instrument.ErrSilent,
		"":                  instrument.ErrSilent,
	} {
		replies := map[string][]string{"*IDN?": {"ACME,S1,1,1\n"}, "BAD?": {reply}, "LEV?": {"1.25\n"}}
		c := reach(t, &foreign{replies: replies}, silence)
		if b, err := c.QueryBlock(t.Context(), "BAD?", 200, []byte("x")); !errors.Is(err, want) || string(b) != "x" {
			t.Errorf("%q: %q, %v", reply, b, err)
		}
		// Whatever is left of it belongs to nobody.
		if v, err := scpi.Ask(t.Context(), c, "LEV?", scpi.ParseNumber); err != nil || v != 1.25 {
			t.Errorf("after %q: %v, %v", reply, v, err)
		}
		_ = c.Close()
	}
}

// The complaint heard most: a time-out, and from then on every reply belongs to
// the query before it. Here the waveform comes when nobody waits for it any more,
// in the middle of what follows.
func TestALateWaveformPoisonsNothing(t *testing.T) {
	late := make(chan struct{})
	f := &foreign{replies: map[string][]string{"*IDN?": {"ACME,S1,1,1\n"}, "LEV?": {"1.25\n"}}}
	at := 0
	f.after = func(n int, c net.Conn) {
		if at++; at == 4 { // *CLS, *IDN?, WAV?, and then the *CLS of the recovery
			_, _ = fmt.Fprintf(c, "#800000010%s\n", waveform)
			close(late)
		}
	}
	c := reach(t, f, silence)
	if _, err := c.QueryBlock(t.Context(), "WAV?", 100, nil); !errors.Is(err, instrument.ErrSilent) {
		t.Fatalf("got %v", err)
	}
	if v, err := scpi.Ask(t.Context(), c, "LEV?", scpi.ParseNumber); err != nil || v != 1.25 {
		t.Errorf("%v, %v", v, err)
	}
	<-late
	if s := c.Stats(); s.Timeouts != 1 || s.Reconnects != 0 || s.Discarded == 0 {
		t.Errorf("%+v", s)
	}
}

// A new connection to an instrument that still holds the last user's reply and
// errors: *IDN? must not be believed to be a piece of a waveform.
func TestLeftOvers(t *testing.T) {
	for name, left := range map[string]string{
		"a waveform": waveform + waveform, "a line": "1.25\n",
		"half a line": "RIGOL TECH",
	} {
		f := &foreign{replies: makers["Rigol"], seen: make(chan string, 100)}
		at, _ := montest.Serve(t, "127.0.0.1:0", func(ctx context.Context, l net.Listener) error {
			return f.serve(ctx, greeting{l, left})
		})
		c := open(t, scpi.Config{Address: "tcp:" + at})
		if c.Identity().Maker != "RIGOL TECHNOLOGIES" || c.Stats().Discarded != uint64(len(left)) {
			t.Errorf("%s: %+v, %+v", name, c.Identity(), c.Stats())
		}
		if first := <-f.seen; first != "*CLS" {
			t.Errorf("%s: the first message is %q", name, first)
		}
		reads(t, c)
	}
}

// greeting makes every connection begin with bytes that nobody asked for.
type greeting struct {
	net.Listener
	text string
}

func (g greeting) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err == nil {
		_, err = c.Write([]byte(g.text))
	}
	return c, err
}

// An unknown query has no reply; an instrument with its own error query says why.
func TestUnknownQueries(t *testing.T) {
	f := &foreign{replies: map[string][]string{
		"*IDN?": {"YOKOGAWA,WT310,C2,F1.03\n"}, ":STAT:ERR?": {"113,\"Undefined header\"\n"}, ":RATE?": {"100.0E-03\n"},
	}}
	at, _ := montest.Serve(t, "127.0.0.1:0", f.serve)
	c := open(t, scpi.Config{Address: "tcp:" + at, Timeout: silence, ErrorQuery: ":STAT:ERR?"})
	if _, err := c.Query(t.Context(), "SYST:ERR?"); !errors.Is(err, instrument.ErrSilent) ||
		!strings.Contains(err.Error(), "does it know this query") {
		t.Errorf("got %v", err)
	}
	if v, err := scpi.Ask(t.Context(), c, ":RATE?", scpi.ParseNumber); err != nil || v != 0.1 {
		t.Errorf("%v, %v", v, err)
	}
	// It says the same for ever: that is no queue.
	queue, err := c.Errors(t.Context())
	if !errors.Is(err, scpi.ErrReply) || len(queue) == 0 || queue[0].Code != 113 {
		t.Errorf("%v, %v", queue, err)
	}
}

// Over whole messages nothing is asked before the reply was read, and nothing read
// that was not asked for: an instrument that minds, says -410 and -420.
func TestNoMessageOutOfTurn(t *testing.T) {
	client := open(t, scpi.Config{Address: "usbtmc:test", Dial: montest.Messages(t, scope().NewSession())})
	for range 3 {
		if b, err := client.QueryBlock(t.Context(), ":DATA?", 1000, nil); err != nil || string(b) != string(wave()) {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		if err := client.Command(t.Context(), ":RUN"); err != nil { // unknown to it
			t.Fatal(err)
		}
		if _, err := scpi.Ask(t.Context(), client, ":LEV?", scpi.ParseNumber); err != nil {
			t.Fatal(err)
		}
	}
	queue, err := client.Errors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(queue) != 3 {
		t.Errorf("%v: want three unknown headers", queue)
	}
	for _, e := range queue {
		if e.Code != -113 {
			t.Errorf("it says %v", e)
		}
	}
}
