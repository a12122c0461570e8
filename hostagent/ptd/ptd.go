// Package ptd answers the controllers of MLPerf Power in place of SPEC's PTDaemon: the line protocol over TCP, the file
// of samples and the messages that power-dev's server and its compliance check read (mlcommons/power-dev c4b3ad8,
// ptd_client_server/lib/server.py, compliance/check.py). The watts are the sum of a bench's rails, by a monitor.
//
// Where the protocol has no word for a direct-current bench of several rails: amperes are the sum of the rails'
// currents, volts the power by them, the power factor is 1. Ranges are accepted and change nothing: those of a bench
// are its own.
package ptd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// Monitor streams the means of a bench's rails; monitorclient.Client implements it.
type Monitor interface {
	Watch(ctx context.Context, o session.WatchOptions, see func(session.Moment) error) error
}

// Config is a Daemon's.
type Config struct {
	Monitor  Monitor
	Bench    session.Bench
	Version  string
	Samples  io.Writer // a line a sample, while a measurement runs
	Messages io.Writer // a line an event, with warnings and errors; safe for concurrent use
}

// The protocol's limits.
const (
	maxSamples = 500_000 // of a measurement
	maxLine    = 4096    // bytes of a command
	// limitU is the uncertainty in per cent above which a sample has a warning: MLPerf's bound.
	limitU = 1.0
	// The monitor is asked for so many means a sample: its view begins anew where a capture begins or ends, and samples
	// are of one length.
	finer = 10
	again = time.Second // from a failure of the monitor to the next call
	stamp = "01-02-2006 15:04:05.000"
)

// Daemon measures for one controller at a time. Its methods are safe for concurrent use.
type Daemon struct {
	cfg Config

	mu      sync.Mutex
	running context.CancelFunc // ends the measurement; nil without one
	ended   chan struct{}      // closed when it has ended
	mark    string
	unread  []string // of the measurement, for RL
	every   time.Duration
	next    time.Time // of the next sample
	mean    mean
	last    sample
	taken   int
	sum     float64 // of watts
	sumU    float64 // of uncertainties in per cent
	failed  error   // the first line that could not be written
}

// sample is a mean over the time between two samples.
type sample struct {
	watts measure.Watt
	amps  measure.Ampere
	u     float64 // per cent, k = 2
}

// mean sums moments, each by its length, up to the next sample.
type mean struct {
	length measure.Seconds
	watts  measure.Joule
	rails  map[string]railSum
}

type railSum struct{ amps, volts, watts float64 } // times seconds

func (a *mean) add(m *session.Moment, length measure.Seconds) {
	if length <= 0 {
		return
	}
	if a.rails == nil {
		a.rails = map[string]railSum{}
	}
	s := float64(length)
	a.length, a.watts = a.length+length, a.watts+measure.Joule(float64(m.Total)*s)
	for _, v := range m.Rails {
		r := a.rails[v.Rail]
		a.rails[v.Rail] = railSum{r.amps + float64(v.Current)*s, r.volts + float64(v.Voltage)*s, r.watts + float64(v.Power)*s}
	}
}

// sample returns the mean; its U adds up the rails', whose errors may be one.
func (a *mean) sample(s *measure.Setup) (out sample) {
	k := 1 / float64(a.length)
	out.watts = measure.Watt(float64(a.watts) * k)
	var u measure.Watt
	for i := range s.Rails {
		if r, ok := a.rails[s.Rails[i].Name]; ok {
			amps := measure.Ampere(r.amps * k)
			out.amps += amps
			u += s.SteadyU(i, amps, measure.Volt(r.volts*k), measure.Watt(r.watts*k))
		}
	}
	out.u = math.Abs(100 * float64(u/out.watts))
	return out
}

// New returns a daemon of a bench whose setup is known.
func New(cfg Config) (*Daemon, error) {
	if !cfg.Bench.Known() {
		return nil, fmt.Errorf("bench %s: its meter was never opened: run wattmark instruments check at the monitor",
			cfg.Bench.Name)
	}
	return &Daemon{cfg: cfg}, nil
}

// Serve answers controllers until ctx ends, which ends the measurement too and is no error, or a sample cannot be
// written. It closes l.
func (d *Daemon) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { l.Close() })
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			d.stop()
			if ctx.Err() != nil {
				err = nil
			}
			return errors.Join(d.failed, err)
		}
		all.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })()
			defer c.Close()
			if d.talk(ctx, c) != nil {
				cancel()
			}
		})
	}
}

// talk answers one controller until it hangs up. An error is of the samples' file.
func (d *Daemon) talk(ctx context.Context, c net.Conn) error {
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, maxLine)
	for d.failure() == nil && lines.Scan() {
		answer := d.Command(ctx, strings.TrimSpace(lines.Text()))
		if _, err := io.WriteString(c, strings.Join(answer, "\r\n")+"\r\n"); err != nil {
			return nil // the controller has gone
		}
	}
	return d.failure()
}

func (d *Daemon) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Command carries out a command and returns the lines of its answer. A measurement that it starts goes on until Stop,
// the protocol's most samples, or ctx ends.
func (d *Daemon) Command(ctx context.Context, line string) []string {
	name, rest, _ := strings.Cut(line, ",")
	switch name {
	case "Hello":
		return []string{"Hello, PTDaemon here!"}
	case "Identify":
		in := d.cfg.Bench.Instrument
		return []string{fmt.Sprintf("wattmark_%s,version=%s-wattmark,bench=%s,meter=%s,DC", in.Kind, d.cfg.Version,
			d.cfg.Bench.Name, strings.TrimSpace(in.Model+" "+in.Serial))}
	case "RR":
		return []string{"Ranges,1,-1.0,1,-1.0"} // both automatic, at an unknown range
	case "SR":
		return []string{ranged(rest)}
	case "Go":
		return []string{d.start(ctx, rest)}
	case "Stop":
		if !d.stop() {
			return []string{"Error: no measurement to stop"}
		}
		return []string{"Stopping untimed measurement"}
	case "RL":
		if rest != "" {
			return []string{"Error: Invalid number of parameters"} // of the bench's sum alone
		}
		return d.read()
	case "Watts", "Uncertainty":
		return []string{d.summary(name)}
	default:
		return []string{fmt.Sprintf("Error: Unknown command %.40q", name)}
	}
}

// ranged answers a wish for a range.
func ranged(rest string) string {
	of, to, _ := strings.Cut(rest, ",")
	v, err := strconv.ParseFloat(to, 64)
	switch {
	case of != "A" && of != "V":
		return "Error: want SR,A,… or SR,V,…"
	case to != "Auto" && (err != nil || !(v > 0)):
		return fmt.Sprintf("Error: range %.40q: want Auto or a positive number", to)
	}
	return fmt.Sprintf("Range %s changed", of)
}

// start begins a measurement: "1000,0,mark" has a sample a second from now on.
func (d *Daemon) start(ctx context.Context, rest string) string {
	parts := strings.SplitN(rest, ",", 3)
	if len(parts) != 3 {
		return "Error: Invalid number of parameters, want Go,MILLISECONDS,RAMPUP,MARK"
	}
	ms, err := strconv.Atoi(parts[0])
	if err != nil || ms < 100 || ms > 10_000 {
		return fmt.Sprintf("Error: %.40q: want 100 to 10000 milliseconds from sample to sample", parts[0])
	}
	if parts[1] != "0" {
		return "Error: no rampup samples: want 0"
	}
	if strings.ContainsFunc(parts[2], func(r rune) bool { return r < ' ' || r == ',' }) || parts[2] == "" {
		return fmt.Sprintf("Error: mark %.40q: want one without commas", parts[2])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running != nil {
		return "Error: a measurement is running, Stop it first"
	}
	d.mark, d.unread, d.last, d.taken, d.sum, d.sumU, d.mean = parts[2], nil, sample{}, 0, 0, 0, mean{}
	d.every = time.Duration(ms) * time.Millisecond
	d.next = time.Now().Add(d.every)
	ctx, d.running = context.WithCancel(ctx)
	d.ended = make(chan struct{})
	d.message("Go with mark '%s'", d.mark)
	go d.measure(ctx, d.every/finer, d.ended)
	return fmt.Sprintf("Starting untimed measurement, maximum %d samples at %dms with 0 rampup samples", maxSamples, ms)
}

// stop ends the measurement and waits for its last sample; false where there is none.
func (d *Daemon) stop() bool {
	d.mu.Lock()
	cancel, ended := d.running, d.ended
	d.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel()
	<-ended
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == ended && d.running != nil { // else another Stop came first
		d.running = nil
		d.message("Completed test")
	}
	return true
}

// errFull ends a measurement of the most samples.
var errFull = errors.New("the most samples are taken")

// measure takes samples until ctx ends. What fails at the monitor is reported, and tried again.
func (d *Daemon) measure(ctx context.Context, every time.Duration, ended chan<- struct{}) {
	defer close(ended)
	for ctx.Err() == nil {
		var last session.Moment
		err := d.cfg.Monitor.Watch(ctx, session.WatchOptions{Every: every, Idle: true}, func(m session.Moment) error {
			if m.Dropped > last.Dropped {
				d.message("ERROR: %d means were lost on the way from the monitor", m.Dropped-last.Dropped)
			}
			if m.Trouble != "" {
				return errors.New(m.Trouble)
			}
			length := measure.Seconds(every.Seconds())
			if m.CaptureID == last.CaptureID && m.T > last.T && last.T > 0 {
				length = m.T - last.T
			}
			last = m
			return d.take(time.Now(), &m, length)
		})
		switch {
		case errors.Is(err, errFull):
			return
		case ctx.Err() == nil:
			if err == nil {
				err = errors.New("the monitor ended the view")
			}
			d.message("ERROR: no samples: %v", err)
			_ = backoff.Sleep(ctx, again) // the loop's condition has its error
		}
	}
}

// take books a mean that ends now, and the samples that end within it.
func (d *Daemon) take(now time.Time, m *session.Moment, length measure.Seconds) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	begin := now.Add(-time.Duration(float64(length) * float64(time.Second)))
	for ; !now.Before(d.next); d.next = d.next.Add(d.every) {
		d.mean.add(m, measure.Seconds(d.next.Sub(begin).Seconds()))
		begin = d.next
		if d.mean.length == 0 {
			d.message("ERROR: no readings for %v", d.every)
			continue
		}
		if err := d.book(d.next, d.mean.sample(&d.cfg.Bench.Setup)); err != nil {
			return err
		}
		d.mean = mean{}
	}
	d.mean.add(m, measure.Seconds(now.Sub(begin).Seconds()))
	return nil
}

// book writes and keeps a sample.
func (d *Daemon) book(end time.Time, s sample) error {
	if d.taken == maxSamples {
		d.message("ERROR: %d samples, the most of a measurement: the rest is not measured", maxSamples)
		return errFull
	}
	volts := measure.Volt(0)
	if s.amps != 0 {
		volts = measure.Volt(float64(s.watts) / float64(s.amps))
	}
	line := fmt.Sprintf("Time,%s,Watts,%.6f,Volts,%.6f,Amps,%.6f,PF,1.000000", end.Format(stamp), float64(s.watts),
		float64(volts), float64(s.amps))
	if _, err := fmt.Fprintf(d.cfg.Samples, "%s,Mark,%s\n", line, d.mark); err != nil {
		d.failed = errors.Join(d.failed, err)
		d.message("ERROR: %v", err)
		return errFull
	}
	d.unread, d.last = append(d.unread, line), s
	d.taken, d.sum, d.sumU = d.taken+1, d.sum+float64(s.watts), d.sumU+s.u
	if s.u > limitU {
		d.message("WARNING: Uncertainty %.2f%%, which is above %.2f%% limit for the last sample!", s.u, limitU)
	}
	return nil
}

// read returns the samples since the last call.
func (d *Daemon) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := append([]string{fmt.Sprintf("Last %d samples", len(d.unread))}, d.unread...)
	d.unread = nil
	return out
}

// summary returns the newest and the mean value of the measurement, of so many samples; −1 without one.
func (d *Daemon) summary(of string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, sum, unit := float64(d.last.watts), d.sum, ""
	if of == "Uncertainty" {
		last, sum, unit = d.last.u, d.sumU, "%"
	}
	if d.taken == 0 {
		last, sum = -1, -1
	}
	return fmt.Sprintf("%s,%.6f%s,average,%.6f%s,samples,%d", of, last, unit, sum/float64(max(d.taken, 1)), unit, d.taken)
}

// message writes a line of the daemon's log. It is a single write, and its failure loses that line alone.
func (d *Daemon) message(format string, a ...any) {
	_, _ = fmt.Fprintf(d.cfg.Messages, "%s: %s\n", time.Now().Format(stamp), fmt.Sprintf(format, a...))
}
