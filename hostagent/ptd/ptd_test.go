package ptd_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/hostagent/ptd"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// rails is a bench of a clamp at 12 V, 2 % of gain, and a power of 3 W that is exact.
func rails() session.Bench {
	return session.Bench{Name: "b", Instrument: measure.Identity{Kind: "meter", Model: "M1"}, Setup: measure.Setup{
		Channels: []measure.Channel{
			{Name: "i", Unit: measure.UnitAmpere, Gain: 1e-3, UGain: 0.02},
			{Name: "v", Unit: measure.UnitVolt, Gain: 1e-3},
			{Name: "p", Unit: measure.UnitWatt, Gain: 1e-6},
		},
		Rails: []measure.Rail{
			{Name: "12v", Wiring: measure.WiringClamp, X: 0, Y: 1}, {Name: "rest", Wiring: measure.WiringPower, X: 2, Y: -1},
		},
	}}
}

// monitor plays a load of amps at 12 V, by a mean each so often; its view breaks off after each of breaks.
type monitor struct {
	amps   func(time.Duration) float64
	begin  time.Time
	breaks []time.Duration
	err    error
}

func (m *monitor) Watch(ctx context.Context, o session.WatchOptions, see func(session.Moment) error) error {
	began := time.Since(m.begin)
	for {
		from := time.Since(m.begin)
		if backoff.Sleep(ctx, o.Every) != nil {
			return nil
		}
		now := time.Since(m.begin)
		if len(m.breaks) > 0 && now > m.breaks[0] {
			m.breaks = m.breaks[1:]
			return m.err
		}
		i := m.amps((from + now) / 2)
		if err := see(session.Moment{T: measure.Seconds((now - began).Seconds()), Total: measure.Watt(12*i + 3), Rails: []session.RailValue{
			{Rail: "12v", Power: measure.Watt(12 * i), Current: measure.Ampere(i), Voltage: 12}, {Rail: "rest", Power: 3},
		}}); err != nil {
			return err
		}
	}
}

// log is a writer for several goroutines.
type log struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

// The commands of power-dev's server, in its order: the answers are those that its compliance check wants, and the
// samples are means over whole seconds, whatever happens to the monitor's view.
func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &monitor{
			begin: time.Now(), breaks: []time.Duration{3300 * time.Millisecond}, err: errors.New("restarted"),
			amps: func(at time.Duration) float64 { return map[bool]float64{false: 1, true: 21}[at > 5*time.Second] },
		}
		var samples, messages log
		d, err := ptd.New(ptd.Config{Monitor: m, Bench: rails(), Version: "1", Samples: &samples, Messages: &messages})
		if err != nil {
			t.Fatal(err)
		}
		want := func(command, answer string) (lines []string) {
			t.Helper()
			lines = d.Command(t.Context(), command)
			if lines[0] != answer {
				t.Errorf("%s: %q, want %q", command, lines[0], answer)
			}
			return lines
		}
		want("Hello", "Hello, PTDaemon here!")
		want("Identify", "wattmark_meter,version=1-wattmark,bench=b,meter=M1,DC")
		want("RR", "Ranges,1,-1.0,1,-1.0")
		want("SR,V,Auto", "Range V changed")
		want("SR,A,3.3", "Range A changed")
		want("SR,A,-3", `Error: range "-3": want Auto or a positive number`)
		want("Stop", "Error: no measurement to stop")
		want("Watts", "Watts,-1.000000,average,-1.000000,samples,0")
		want("Go,1000,0,x_testing", "Starting untimed measurement, maximum 500000 samples at 1000ms with 0 rampup samples")
		want("Go,1000,0,y", "Error: a measurement is running, Stop it first")
		time.Sleep(8200 * time.Millisecond)
		want("Watts", "Watts,255.000000,average,105.000000,samples,8") // 5 of 15 W, 3 of 255 W
		want("Stop", "Stopping untimed measurement")
		want("RL,*,*", "Error: Invalid number of parameters")
		want("Last", `Error: Unknown command "Last"`)
		lines := want("RL", "Last 8 samples")
		want("RL", "Last 0 samples")
		if len(lines) != 9 || !strings.HasSuffix(lines[1], ",Watts,15.000000,Volts,15.000000,Amps,1.000000,PF,1.000000") {
			t.Errorf("%q", lines)
		}
		if got := strings.ReplaceAll(samples.String(), ",Mark,x_testing", ""); got != strings.Join(lines[1:], "\n")+"\n" {
			t.Errorf("the file has %s", got)
		}
		for _, re := range []string{
			`(?m)^\d\d-\d\d-\d{4} \d\d:\d\d:\d\d\.\d{3}: Go with mark 'x_testing'$`, `: ERROR: no samples: restarted\n`,
			`: WARNING: Uncertainty 3\.95%, which is above 1\.00% limit`, `: Completed test\n$`,
		} {
			if !regexp.MustCompile(re).MatchString(messages.String()) {
				t.Errorf("no %s in %s", re, messages.String())
			}
		}
	})
}

// U of a mean is that of gains and offsets, by every wiring.
func TestSteadyU(t *testing.T) {
	s := rails().Setup
	s.Channels[0].Gain, s.Channels[1].Gain = 1e-7, 1e-7 // rounding is nothing
	if u := s.SteadyU(0, 20, 12, 240); math.Abs(float64(u)-2*0.02*240) > 1e-3 {
		t.Errorf("%v", u)
	}
	s.Channels[0].Unit, s.Rails[0].Wiring, s.Rails[0].Shunt, s.Rails[0].UShunt = measure.UnitVolt, measure.WiringShunt, 0.01, 0.01
	s.Channels[0].UGain, s.Channels[0].UOffset = 0, 1e-4
	if u, want := s.SteadyU(0, 20, 12, 240), 2*math.Hypot(0.01*240, 1e-4/0.01*12); math.Abs(float64(u)-want) > 1e-3 {
		t.Errorf("shunt: %v, want %v", u, want)
	}
}

func TestBadCommands(t *testing.T) {
	d, err := ptd.New(ptd.Config{Monitor: &monitor{}, Bench: rails(), Samples: io.Discard, Messages: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"", "hello", "Go", "Go,1000,0", "Go,x,0,m", "Go,1,0,m", "Go,1000,5,m", "Go,1000,0,", "Go,1000,0,a,b", "Go,1000,0,a\x01", "SR", "SR,X,1", "SR,A,", "SR,A,NaN",
	} {
		if got := d.Command(t.Context(), line); len(got) != 1 || !strings.HasPrefix(got[0], "Error: ") {
			t.Errorf("%q: %q", line, got)
		}
	}
	if _, err := ptd.New(ptd.Config{Bench: session.Bench{Name: "b"}}); err == nil {
		t.Error("a bench without a setup is taken")
	}
}

// full is a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// Over TCP; a sample that cannot be written ends the daemon with the reason.
func TestServe(t *testing.T) {
	d, err := ptd.New(ptd.Config{
		Monitor: &monitor{begin: time.Now(), amps: func(time.Duration) float64 { return 1 }}, Bench: rails(), Samples: full{}, Messages: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- d.Serve(t.Context(), l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lines := bufio.NewReader(c)
	for _, command := range []string{"Hello", "Go,100,0,m"} {
		fmt.Fprintf(c, "%s\r\n", command)
		if answer, err := lines.ReadString('\n'); err != nil || !strings.HasSuffix(answer, "\r\n") || strings.HasPrefix(answer, "Error") {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	for {
		if _, err := fmt.Fprint(c, "Watts\r\n"); err != nil {
			break
		}
		if _, err := lines.ReadString('\n'); err != nil {
			break
		}
	}
	if err := <-served; err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%v", err)
	}
}
