package quarch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	quarchface "github.com/wattmark/wattmark/monitor/emulator/quarch"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/transport"
)

// rig is an emulated QIS in virtual time, to which every Open makes a line of its own.
type rig struct {
	board *board.Board
	face  *quarchface.Face
	dev   *Device
}

func emulate(t *testing.T, cfg quarchface.Config, o Options) *rig {
	t.Helper()
	r := &rig{board: montest.Workload(t, 30*time.Second)}
	var err error
	if r.face, err = quarchface.New(r.board, pace.Real(time.Now()), cfg); err != nil {
		t.Fatal(err)
	}
	r.dev = r.driver(t, o, fault.Faults{Fragment: 5000})
	return r
}

// driver is one more client of the server.
func (r *rig) driver(t *testing.T, o Options, faults fault.Faults) *Device {
	t.Helper()
	d, err := New("tcp:qis:9722", o)
	if err != nil {
		t.Fatal(err)
	}
	var end func()
	leave := func() {
		if _ = d.Close(); end != nil {
			end()
		}
	}
	d.Dial = func(context.Context) (transport.Conn, error) {
		leave()
		var mine net.Conn
		mine, end = montest.OnPipe(t, r.face, faults)
		return transport.NewNet(mine), nil
	}
	t.Cleanup(leave)
	return d
}

func (r *rig) open(t *testing.T) {
	t.Helper()
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// placed checks that every scan has the mean power of its time.
func (r *rig) placed(t *testing.T, out *montest.Collector) {
	t.Helper()
	period := r.dev.In.Response.Window.Duration()
	v, i := out.Counts(4), out.Counts(5)
	for n, scan := range out.Scans() {
		at := r.face.StreamStart() + time.Duration(scan)*period
		want := float64(r.board.Rail(2, r.board.MeanPower(at, at+period)).I)
		if got := r.dev.In.Channels[5].Value(i[n]); math.Abs(got-want) > 0.015 || v[n] < 11_000 || v[n] > 13_000 {
			t.Fatalf("scan %d: %d mV and %v A, the board had %v A", scan, v[n], got, want)
		}
	}
}

func TestMeasuresWhatTheBoardDraws(t *testing.T) {
	for averaging, scans := range map[int]int{1: 10_000, 16: 5000, 1024: 300, 32768: 20} {
		t.Run(fmt.Sprint(averaging), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := Defaults()
				o.Averaging = averaging
				r := emulate(t, quarchface.Config{}, o)
				r.open(t)
				want := instrument.Identity{
					Kind: Kind, Model: "Power Analysis Module", Serial: "QTL2312-01-035", Firmware: "QIS 1.39", Address: "tcp:qis:9722",
				}
				if id := r.dev.Identity(); id != want {
					t.Errorf("%+v", id)
				}
				period := time.Duration(averaging) * 4 * time.Microsecond
				in := r.dev.Inputs()
				if rate := 1 / period.Seconds(); math.Abs(float64(in.Timebase.SampleRate())/rate-1) > 1e-9 ||
					in.Response.Window.Duration() != period || len(in.Channels) != 8 {
					t.Errorf("%+v", in)
				}
				for range 2 { // a second stream begins anew
					out := montest.Collect(t, r.dev, scans, nil)
					if events := out.Events(0); len(events) > 0 {
						t.Errorf("%+v", events)
					}
					r.placed(t, out)
				}
			})
		})
	}
}

// Stripes that another client takes out of QIS's buffer become a gap, and later ones keep their place.
func TestMissingStripes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := emulate(t, quarchface.Config{}, Defaults())
		r.open(t)
		thief := r.driver(t, Defaults(), fault.Faults{})
		if err := thief.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 7, 300} {
			out := montest.Collect(t, r.dev, 5000, func() {
				time.Sleep(70 * time.Millisecond) // some wait by now
				var err error
				if text := thief.ask(t.Context(), fmt.Sprint("stream text ", n), &err); err != nil || strings.Count(text, "\r\n") != n-1 {
					t.Errorf("%v, %q", err, text)
				}
			})
			r.placed(t, out)
			if e := out.Events(0); len(e) != 1 || e[0].Kind != measure.EventGap || !e[0].Exact || out.Lost() != uint64(n) {
				t.Errorf("%d: %+v", n, e)
			}
		}
	})
}

// A stream that ends by itself ends the driver's, with an event for what is lost, and all stripes that were there.
func TestEndOfTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := emulate(t, quarchface.Config{Buffer: 1000}, Defaults()) // 64 ms, of the 100 between two looks
		r.open(t)
		out, err := montest.Stream(t, r.dev, 1e6, nil)
		if !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "overrun") {
			t.Error(err)
		}
		if e := out.Events(0); len(e) != 1 || e[0].Kind != measure.EventOverflow || len(out.Scans()) != 1000 {
			t.Errorf("%d scans, %+v", len(out.Scans()), e)
		}
		r.placed(t, out)
		if _ = r.dev.Close(); r.dev.Open(t.Context()) != nil {
			t.Error("it cannot be opened again")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := emulate(t, quarchface.Config{}, Defaults())
		r.open(t)
		other := r.driver(t, Options{Averaging: 16, Silence: time.Second, TakeOver: true}, fault.Faults{})
		_, err := montest.Stream(t, r.dev, 20_000, func() {
			polite := r.driver(t, Defaults(), fault.Faults{})
			if err := polite.Open(t.Context()); !errors.Is(err, transport.ErrBusy) || !strings.Contains(err.Error(), "take_over") {
				t.Errorf("a module that streams is opened: %v", err)
			}
			if err := other.Open(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if err == nil || !strings.Contains(err.Error(), "QIS has stopped the stream: user") {
			t.Error(err)
		}
	})
}

// The energy lies within its uncertainty, whatever the module's errors.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	const seeds = 8
	inside := 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			r := emulate(t, quarchface.Config{Seed: seed, Draw: true}, Defaults())
			r.open(t)
			out := montest.Collect(t, r.dev, 20_000, nil)
			in := r.dev.Inputs()
			setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Response: in.Response}
			setup.Rails, _ = instrument.NaturalRails(in)
			got := montest.Energy(t, &setup, out, 0.1, 1.2)
			start := r.face.StreamStart()
			want, err := r.board.Energy(start+100*time.Millisecond, start+1200*time.Millisecond)
			if err != nil || len(setup.Rails) != 4 {
				t.Fatal(err, setup.Rails)
			}
			miss := math.Abs(float64(got.Energy - want.Total))
			if miss <= float64(got.U) {
				inside++
			}
			if miss > 2*float64(got.U) || float64(got.U) > 0.03*float64(got.Energy) {
				t.Errorf("%v ± %v, injected %v", got.Energy, got.U, want.Total)
			}
		})
	}
	if t.Logf("%d of %d within U", inside, seeds); inside < seeds-2 {
		t.Errorf("%d of %d within U", inside, seeds)
	}
}

// Open, broken off at each of its messages, leaves a module that the next Open takes.
func TestInterruptedOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := emulate(t, quarchface.Config{}, Defaults())
		dial := r.dev.Dial
		for at := 1; ; at++ {
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			r.dev.Dial = func(ctx context.Context) (transport.Conn, error) {
				c, err := dial(ctx)
				return counted{c, func() {
					if n++; n == at {
						cancel()
					}
				}}, err
			}
			err := r.dev.Open(ctx)
			if cancel(); n < at {
				if err != nil || at < 10 {
					t.Errorf("after %d messages: %v", at, err)
				}
				return
			}
			if err == nil {
				t.Errorf("opened without message %d", at)
			}
			r.dev.Dial = dial
			r.open(t)
			if err := r.dev.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// counted calls before each message that is written.
type counted struct {
	transport.Conn
	before func()
}

func (c counted) Write(ctx context.Context, p []byte) (int, error) {
	c.before()
	return c.Conn.Write(ctx, p)
}

const head = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<header><version>V3</version>%s<channels>
<channel><name>Status</name><group>status</group><units>NA</units><maxTValue>0</maxTValue><dataPosition>0</dataPosition></channel>
<channel><name>12V</name><group>voltage</group><units>mV</units><maxTValue>16384</maxTValue><dataPosition>1</dataPosition></channel>
<channel><name>12V</name><group>current</group><units>uA</units><maxTValue>16777216</maxTValue><dataPosition>3</dataPosition></channel>
<channel><name>Aux 12V-1</name><group>current</group><units>mA</units><maxTValue>0</maxTValue><dataPosition>2</dataPosition></channel>
<channel><name>12V</name><group>power</group><units>uW</units><maxTValue>274877906</maxTValue><dataPosition>4</dataPosition></channel>
</channels></header>`

const us64 = "<devicePeriod>64us</devicePeriod><mainPeriod>64uS</mainPeriod>"

func TestHeader(t *testing.T) {
	for period, want := range map[string]struct {
		period time.Duration
		step   int64
	}{
		us64:                                {64 * time.Microsecond, 64},
		"<devicePeriod>4mS</devicePeriod>":  {4 * time.Millisecond, 4000},
		"<mainPeriod>100uS</mainPeriod>":    {100 * time.Microsecond, 100},
		"<mainPeriod>64000nS</mainPeriod>":  {64 * time.Microsecond, 64_000},
		"":                                  {},
		"<devicePeriod>0us</devicePeriod>":  {},
		"<devicePeriod>-4us</devicePeriod>": {},
		"<devicePeriod>1ns</devicePeriod>":  {},
		"<devicePeriod>64</devicePeriod>":   {},
		"<devicePeriod>9h</devicePeriod>":   {},
	} {
		h, err := ParseHeader(fmt.Sprintf(head, period))
		if want.step == 0 {
			if err == nil || !strings.Contains(err.Error(), "is the fixture connected") || strings.Contains(err.Error(), "%!") {
				t.Errorf("%s: %v", period, err)
			}
			continue
		}
		if err != nil || h.In.Response.Window.Duration() != want.period || h.Step != want.step {
			t.Fatalf("%s: %+v, %v", period, h, err)
		}
		channels := []measure.Channel{
			{Name: "pcie_12v.voltage", Unit: measure.UnitVolt, Gain: 1e-3, UGain: 0.005, UOffset: 0.005, MinCount: -16384, MaxCount: 16384},
			{Name: "pcie_12v.current", Unit: measure.UnitAmpere, Gain: 1e-6, UGain: 0.01, UOffset: 0.01, MinCount: -16777216, MaxCount: 16777216},
			{Name: "aux_12v_1.current", Unit: measure.UnitAmpere, Gain: 1e-3, UGain: 0.01, UOffset: 0.01},
		}
		if !reflect.DeepEqual(h.In.Channels, channels) {
			t.Errorf("%+v", h.In.Channels)
		}
	}
	h, err := ParseHeader(fmt.Sprintf(head, us64))
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]measure.Count, 3)
	for line, want := range map[string][]measure.Count{
		"128 12150 -3 7000000 85": {12150, 7000000, -3}, "-4    1 2  3 4": {1, 3, 2},
		"0 9223372036854775807 0 -9223372036854775808 0": {math.MaxInt32, -math.MaxInt32, 0},
		"128 12150 -3 7000000":                           nil, "128 1 2 3 4 5": nil, "128 1 2 x 4": nil, "": nil, "9007199254740992 1 2 3 4": nil,
		"99999999999999999999 1 2 3 4": nil, "Running": nil, "1.5 1 2 3 4": nil,
	} {
		if _, ok := h.Stripe(line, counts); ok != (want != nil) || ok && !reflect.DeepEqual(counts, want) {
			t.Errorf("%q: %v, %v", line, counts, ok)
		}
	}
	for _, text := range []string{"", "OK", "Version: 5\r\nFormat: 15\r\nAverage: 14", "<header><version>V2</version></header>", head[:300]} {
		if h, err := ParseHeader(text); err == nil {
			t.Errorf("%q: %+v", text, h)
		}
	}
}

func TestChoose(t *testing.T) {
	const list = "1) rest::QTL1999-02-020 IP:192.168.1.90 Stream:Yes Name:HD Module\r\n2) tcp::QTL1999-02-020 Stream:Yes Name:HD Module\r\n" +
		"3) USB::QTL1079-03-004 Stream:No Name:Other\r\n"
	for _, c := range []struct{ list, serial, module, name, wrong string }{
		{list, "", "tcp::QTL1999-02-020", "HD Module", ""},
		{list + "4) usb::qtl1999-02-020", "qtl1999-02-020", "usb::qtl1999-02-020", "", ""},
		{list, "QTL1079-03-004", "", "", "lists no module QTL1079-03-004"},
		{list + "4) usb::QTL2312-01-263 Port:1 Stream:Yes Name:PAM", "", "", "", "set module"},
		{list + "4) usb::QTL2312-01-263 Port:1 Stream:Yes Name:PAM", "QTL2312-01-263", "usb::QTL2312-01-263", "PAM", ""},
		{"No Devices Found", "", "", "", "is it on"},
	} {
		module, name, err := Choose(c.list, c.serial)
		if module != c.module || name != c.name || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %q, %q, %v", c.serial, module, name, err)
		}
	}
}

// scripted is a server that gives answers of its own where it has them.
type scripted struct {
	greeting string
	answers  map[string][]string // by end of the command; the last one stays
}

func (s *scripted) Run(_ context.Context, rw io.ReadWriteCloser) error {
	defer rw.Close()
	_, err := io.WriteString(rw, s.greeting)
	for lines := bufio.NewScanner(rw); err == nil && lines.Scan(); {
		answer := "OK\r\n>"
		for command, say := range s.answers {
			if strings.HasSuffix(lines.Text(), command) {
				if answer = say[0]; len(say) > 1 {
					s.answers[command] = say[1:]
				}
			}
		}
		_, err = io.WriteString(rw, answer)
	}
	return err
}

// Servers that behave oddly, as they were reported to, and those that are none.
func TestOddServers(t *testing.T) {
	good := func() map[string][]string {
		return map[string][]string{
			"$version": {"1.46\r\n>"}, "$list details": {"1) usb::QTL2312-01-263\r\n>"},
			"stream?": {"Stopped: User\r\nStripes Buffered: 0 of 8388608\r\n>"}, "stream text all": {"eof\r\n>"},
			"stream text header": {fmt.Sprintf(head, us64) + "\r\n>"},
		}
	}
	for name, c := range map[string]struct {
		change func(*scripted)
		want   string
		is     error
	}{
		"good": {func(*scripted) {}, "", nil},
		"stray prompts": {func(s *scripted) {
			s.answers["$version"] = []string{">1.46\r\n>"}
			s.answers["stream?"][0] = ">" + s.answers["stream?"][0]
		}, "", nil},
		"a late header": {func(s *scripted) {
			s.answers["stream text header"] = append([]string{"Header Not Available\r\n>"}, s.answers["stream text header"]...)
		}, "", nil},
		"none":           {func(s *scripted) { s.greeting = "" }, "is this QIS's port", instrument.ErrSilent},
		"no header":      {func(s *scripted) { s.answers["stream text header"] = []string{"Header Not Available\r\n>"} }, "no header", instrument.ErrSilent},
		"no module":      {func(s *scripted) { s.answers["$list details"] = []string{"No Devices Found\r\n>"} }, "is it on", instrument.ErrSilent},
		"refuses":        {func(s *scripted) { s.answers["rec stream"] = []string{"FAIL: no fixture\r\n>"} }, `answers "FAIL: no fixture" to "rec stream"`, nil},
		"out of step":    {func(s *scripted) { s.answers["stream?"] = []string{"64 1 2 3 4\r\n>"} }, "where the stream's state is due", instrument.ErrDisconnected},
		"falls silent":   {func(s *scripted) { s.answers["rec stop"] = []string{""} }, "within 5s (0 bytes)", instrument.ErrSilent},
		"never finishes": {func(s *scripted) { s.answers["$version"] = []string{strings.Repeat("1", maxReply+1)} }, "without a prompt", instrument.ErrDisconnected},
		"never stops":    {func(s *scripted) { s.answers["stream?"] = []string{s.answers["stream?"][0], "Running\r\n>"} }, "does not end", instrument.ErrSilent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{"QIS\r\n>", good()}
				c.change(s)
				d, err := New("tcp:qis:9722", Defaults())
				if err != nil {
					t.Fatal(err)
				}
				mine, end := montest.OnPipe(t, s, fault.Faults{})
				d.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil }
				ticks := d.Now
				d.Now = func() time.Time { time.Sleep(time.Millisecond); return ticks() } // a server takes its time, virtually
				err = d.Open(t.Context())
				_ = d.Close()
				end()
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
					t.Error(err)
				}
			})
		})
	}
}

// Stripes of impossible or repeated times are left out and counted; the counter of 32 bits may wrap.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := func(t int64) string { return fmt.Sprintf("%d 1 2 3 4\r\n", t) }
		turn := int64(math.MaxInt32)/64*64 + 64 - 1<<32 // the next multiple of 64, as 32 bits have it
		text := line(turn-128+1<<32) + line(turn-64+1<<32) + line(turn-128+1<<32) + line(turn) + line(turn) + "garbage\r\n" + line(turn+64) + line(turn+64+30) +
			line(turn+128) + "eof\r\n>"
		s := &scripted{"QIS\r\n>", map[string][]string{
			"$version": {"1\r\n>"}, "$list details": {"1) usb::Q\r\n>"}, "stream text header": {fmt.Sprintf(head, us64) + "\r\n>"},
			"stream?":         {"Stopped: User\r\n>", "Stopped: User\r\n>", "Stopped: User\r\n>", "Stopped: User\r\n>", "Stopped: User\r\n>", "Running\r\n>", "Stopped: Overrun\r\n>"},
			"stream text all": {"eof\r\n>", "eof\r\n>", "eof\r\n>", text, "eof\r\n>"},
		}}
		d, err := New("tcp:qis:9722", Defaults())
		if err != nil {
			t.Fatal(err)
		}
		mine, end := montest.OnPipe(t, s, fault.Faults{})
		defer end()
		d.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil }
		if err := d.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		out, err := montest.Stream(t, d, 100, nil)
		if !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "overrun") {
			t.Error(err)
		}
		e := out.Events(0)
		if len(out.Scans()) != 5 || out.Lost() != 0 || len(e) != 3 || e[1].Kind != measure.EventNote || !strings.HasPrefix(e[1].Detail, "2 scans came twice") || e[0].Kind != measure.EventResync || !strings.HasPrefix(e[0].Detail, "2 lines") ||
			e[2].Kind != measure.EventOverflow {
			t.Errorf("%v, %+v", out.Scans(), e)
		}
	})
}

func FuzzParsers(f *testing.F) {
	f.Add(fmt.Sprintf(head, us64), "64 1 2 3 4")
	f.Add("1) usb::QTL2312-01-263 Port:1 Stream:Yes Name:PAM", "eof")
	f.Fuzz(func(t *testing.T, text, line string) {
		_, _, _ = Choose(text, "")
		h, err := ParseHeader(text)
		if err != nil {
			if len(err.Error()) > 3000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if h.Step < 1 || len(h.In.Channels) == 0 || len(h.places) > 256 {
			t.Fatalf("%+v", h)
		}
		_, _ = h.Stripe(line, make([]measure.Count, len(h.In.Channels)))
	})
}
