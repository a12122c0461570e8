// Package quarch drives a Quarch Power Analysis Module, whose fixtures sit in a graphics card's slot and
// plugs, through Quarch's instrument server QIS over TCP (port 9722). It answers a line of text with
// lines, and with the prompt ">" behind the last:
//
//	$list details               1) usb::QTL2312-01-035 Port:9 Stream:Yes Name:Power Analysis Module
//	MODULE record:averaging 16  OK
//	MODULE rec stream           OK: stripes, of a time and a whole number a channel, wait in QIS's buffer
//	MODULE stream?              Running, or Stopped: and why; Stripes Buffered: 94 of 8388608
//	MODULE stream text header   XML: period, and of each channel name, unit, range and place
//	MODULE stream text all      the oldest stripes, "64 3310 362204 …", and eof behind the last there is
//
// This follows quarchpy, Quarch's client in Python, and the help of QIS 1.38 that comes with it.
package quarch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/transport"
)

const (
	// Kind is the driver's name in bench files.
	Kind = "quarch"

	quietTime = 500 * time.Millisecond // behind QIS's greeting
	pause     = 100 * time.Millisecond // between looks: quarchpy warns of many
	stopTime  = 3 * time.Second
	maxReply  = 8 << 20 // bytes; 3072 stripes take some 400 000
)

// Device is a module behind a QIS. It implements instrument.Instrument.
type Device struct {
	instrument.Base
	opts       Options
	module     string // as QIS lists it, with the connection before its serial number
	head       *Header
	ours       bool // the stream that may run was started here
	buf, reply []byte
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	d := &Device{opts: o, buf: make([]byte, 1<<16)}
	d.Steps, d.Run = []instrument.Step{d.identify}, instrument.UntilDone(d.stream)
	return d, instrument.Init(&d.Base, Kind, address, o, transport.Options{}, nil)
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Module is the serial number as QIS lists it, QTL2312-01-035; empty for the only one there is.
	Module string `yaml:"module"`
	// Averaging is how many readings of 4 µs make one: a power of two up to 32768; default 16.
	Averaging int `yaml:"averaging"`
	// TakeOver stops a stream that another program has started.
	TakeOver bool `yaml:"take_over"`
	// Silence is how long an answer may take, and how long no stripe may come; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of a module that is not described further.
func Defaults() Options { return Options{Averaging: 16, Silence: 5 * time.Second} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	if o.Averaging > 1<<15 || o.Averaging < 1 || bits.OnesCount(uint(o.Averaging)) > 1 || o.Silence < time.Second/2 {
		return fmt.Errorf("averaging %d, silence %v: want a power of two from 1 to 32768, and at least 500ms", o.Averaging,
			o.Silence)
	}
	return nil
}

// identify waits for the greeting, finds the module in QIS's list, and runs its stream for a moment: only
// then is there a header.
func (d *Device) identify(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 4*quietTime)
	defer cancel()
	n, err := transport.Drain(short, d.Conn, quietTime)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: no greeting within %v: is this QIS's port (9722)?", instrument.ErrSilent, quietTime)
	}
	version, list, model := d.ask(ctx, "$version", &err), d.ask(ctx, "$list details", &err), ""
	if err == nil {
		d.module, model, err = Choose(list, d.opts.Module)
	}
	_, serial, _ := strings.Cut(d.module, "::")
	d.Identify(model, strings.ToUpper(serial), "QIS "+version)
	if err == nil {
		d.head, err = d.begin(ctx)
	}
	if err == nil {
		d.In = d.head.In
		err = d.end(ctx)
	}
	return err
}

// ask sends a line, unless there is an error already, and returns the answer without its prompt.
func (d *Device) ask(ctx context.Context, command string, failed *error) string {
	if *failed != nil {
		return ""
	}
	own, cancel := context.WithTimeout(ctx, d.opts.Silence)
	defer cancel()
	d.reply = d.reply[:0]
	_, err := d.Conn.Write(own, []byte(command+"\r\n"))
	for n := 0; err == nil; {
		n, err = d.Conn.Read(own, d.buf)
		d.reply = append(d.reply, d.buf[:n]...)
		d.reply = bytes.TrimPrefix(d.reply, []byte(">")) // which QIS sends now and then unasked
		if answer, whole := bytes.CutSuffix(d.reply, []byte("\r\n>")); whole {
			return string(answer)
		}
		if len(d.reply) > maxReply {
			err = fmt.Errorf("%w: %d bytes without a prompt", instrument.ErrDisconnected, len(d.reply))
		}
	}
	if ctx.Err() == nil && transport.Ended(err) {
		err = fmt.Errorf("%w within %v (%d bytes): is the module on?", instrument.ErrSilent, d.opts.Silence, len(d.reply))
	}
	*failed = fmt.Errorf("%q: %w", command, err)
	return ""
}

// set sends commands to the module that have to be answered with OK.
func (d *Device) set(ctx context.Context, commands ...string) (err error) {
	for _, c := range commands {
		answer := d.ask(ctx, d.module+" "+c, &err)
		if err == nil && strings.TrimSpace(answer) != "OK" {
			err = fmt.Errorf("the module answers %q to %q: is a fixture connected, QIS new?", measure.Excerpt(answer), c)
		}
	}
	return err
}

// state asks why the stream does not run, "" where it does. Any other answer is out of step.
func (d *Device) state(ctx context.Context, err *error) (stopped string) {
	text := d.ask(ctx, d.module+" stream?", err)
	m := states.FindStringSubmatch(text)
	switch {
	case *err != nil:
	case m == nil:
		*err = fmt.Errorf("%w: %q where the stream's state is due", instrument.ErrDisconnected, measure.Excerpt(text))
	case m[1] == "":
		stopped = cmp.Or(strings.ToLower(m[2]), "?")
	}
	return stopped
}

// begin sets the module up, starts its stream and returns the header.
func (d *Device) begin(ctx context.Context) (h *Header, err error) {
	if d.state(ctx, &err) == "" && err == nil && !d.ours && !d.opts.TakeOver {
		err = fmt.Errorf("%w: another program streams from %s: stop it (QPS? a monitor that was killed?), or set "+
			"take_over: true", transport.ErrBusy, d.module)
	}
	if err == nil {
		err = d.end(ctx)
	}
	n, readings := d.opts.Averaging, fmt.Sprint(d.opts.Averaging&^1)
	if n >= 1024 {
		readings = fmt.Sprintf("%dk", n/1024)
	}
	if err == nil {
		d.ours = true
		err = d.set(ctx, "record:trigger:mode manual", "record:averaging "+readings, "stream mode header v3",
			fmt.Sprintf("stream mode resample %dus", 4*n), "rec stream") // channels that are faster are resampled
	}
	for end := d.Now().Add(d.opts.Silence); err == nil && d.Now().Before(end); {
		if text := d.ask(ctx, d.module+" stream text header", &err); err == nil && !strings.Contains(text, "Not Available") {
			return ParseHeader(text)
		} else if err == nil {
			_, err = transport.ReadWithin(ctx, d.Conn, d.buf, pause)
		}
	}
	return nil, cmp.Or(err, fmt.Errorf("%w: no header within %v of the start", instrument.ErrSilent, d.opts.Silence))
}

// end stops a stream that runs, and empties QIS's buffer.
func (d *Device) end(ctx context.Context) error {
	err := d.set(ctx, "rec stop")
	for end := d.Now().Add(d.opts.Silence); err == nil && d.Now().Before(end); {
		stopped := d.state(ctx, &err)
		text := d.ask(ctx, d.module+" stream text all", &err)
		switch {
		case err != nil || strings.IndexAny(text, "0123456789") == 0: // a stripe
		case stopped == "":
			_, err = transport.ReadWithin(ctx, d.Conn, d.buf, pause)
		default:
			d.ours = false
			return nil
		}
	}
	return cmp.Or(err, fmt.Errorf("%w: the stream does not end: restart QIS", instrument.ErrSilent))
}

// stream is one Stream call.
type stream struct {
	d      *Device
	out    *series.Builder
	counts []measure.Count
	heard  time.Time // arrival of the last stripe
	last   int64     // its time
}

// stream delivers from now on until ctx ends. Exchanges that ctx's end meets are finished: what
// is left of an answer would be taken for that to the next.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	own, cancel := instrument.Outlast(ctx, stopTime)
	defer cancel()
	s := &stream{d: d, counts: make([]measure.Count, len(d.In.Channels)), heard: d.Now()}
	s.out = series.New(d.In, 1024, sink)
	h, err := d.begin(own)
	if err == nil && !reflect.DeepEqual(h, d.head) {
		err = fmt.Errorf("%w: the module's channels or period have changed (another fixture?)", instrument.ErrDisconnected)
	}
	if err == nil {
		err = series.Grid(ctx, pause, func() error { return s.poll(ctx, own) })
	}
	if err == nil {
		err = d.end(own)
	}
	return err
}

// poll takes the stripes that wait, and reports a stream that has ended.
func (s *stream) poll(ctx, own context.Context) (err error) {
	stopped := s.d.state(own, &err)
	for rest := true; rest && err == nil && ctx.Err() == nil; {
		rest = false
		for line := range strings.Lines(s.d.ask(own, s.d.module+" stream text all", &err)) {
			if t, ok := s.d.head.Stripe(line, s.counts); ok && err == nil {
				err, rest = s.stripe(t), true
			} else if rest = false; strings.TrimSpace(line) != "eof" {
				s.out.Malformed(1)
			}
		}
		if err == nil {
			err = s.out.Flush()
		}
	}
	if stopped == "overrun" && err == nil {
		err = s.out.Overflow("QIS's buffer ran full: stripes are not taken as fast as they come; set a greater averaging")
	}
	switch {
	case err != nil || ctx.Err() != nil:
		return err
	case stopped != "": // "user" is another program
		return fmt.Errorf("%w: QIS has stopped the stream: %s", instrument.ErrDisconnected, measure.Excerpt(stopped))
	case s.d.Now().Sub(s.heard) > s.d.opts.Silence:
		return fmt.Errorf("%w: no stripe for %v (fixture unplugged?)", instrument.ErrSilent, s.d.opts.Silence)
	}
	return nil
}

// stripe gives the counts their place by their time.
func (s *stream) stripe(t int64) error {
	step := s.d.head.Step
	if !s.out.Begun() {
		s.last = t - step
	}
	d := t - s.last
	if d < -1<<31 { // a counter of 32 bits has turned
		d += 1 << 32
	}
	n := (d + step/2) / step
	switch {
	case d <= 0:
		s.out.Repeated()
		return nil
	case 4*max(d-n*step, n*step-d) > step:
		s.out.Malformed(1)
		return nil
	case n > 1:
		missing := measure.Plural(n-1, "stripe")
		if err := s.out.Gap(uint64(n-1), true, "%s missing, by their times", missing); err != nil {
			return err
		}
	}
	s.last, s.heard = t, s.d.Now()
	return s.out.Add(s.counts)
}

var (
	// Answers to "stream?"; a line of "$list details": a number, connection::serial, and details.
	states = regexp.MustCompile(`^(?i:(Running)|Stopped)[: ]*([^\r\n]*)`)
	listed = regexp.MustCompile(`(?m)^\s*\d+\)\s*((\w+)::(\S+))(?:.*Stream:(\w+))?(?:.*Name:([^\r\n]*))?`)
	odd    = regexp.MustCompile(`[^a-z0-9]+`) // in a name

	prefixes = map[string]float64{"": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3}
	slot     = map[string]string{"3v3": "pcie_3v3", "3_3v": "pcie_3v3", "12v": "pcie_12v"} // as other instruments call it
)

// Choose finds the module of a serial number in the answer to "$list details", or the only one that
// streams where that is empty, and its name. USB is preferred; over REST no module streams.
func Choose(list, serial string) (module, name string, err error) {
	only := serial
	for _, m := range listed.FindAllStringSubmatch(list, -1) {
		if strings.EqualFold(m[2], "rest") || m[4] == "No" || serial != "" && !strings.EqualFold(m[3], serial) {
			continue
		}
		if only = cmp.Or(only, m[3]); !strings.EqualFold(m[3], only) {
			return "", "", fmt.Errorf("QIS lists several modules: set module to one of them: %.500q", list)
		}
		if module == "" || strings.EqualFold(m[2], "usb") {
			module, name = m[1], m[5]
		}
	}
	if module == "" {
		err = fmt.Errorf("%w: QIS lists no module %s that streams: is it on? QIS takes up to 20 s to find it: %.500q",
			instrument.ErrSilent, serial, list)
	}
	return module, name, err
}

// Header describes the stripes of a stream.
type Header struct {
	In     instrument.Inputs // volts and amperes; QIS's powers are but the products of these
	Step   int64             // period in units of the stripes' times
	places []int             // by place in a stripe behind the time: the channel, −1 for none of these
}

// quantities by unit, with uncertainties. Quarch's depend on the fixture and are on its sheet, which was
// not at hand, so these are set wide on purpose. A calibration in the bench file replaces them.
var quantities = map[string]measure.Channel{
	"V": {Name: ".voltage", Unit: measure.UnitVolt, UGain: 0.005, UOffset: 0.005},
	"A": {Name: ".current", Unit: measure.UnitAmpere, UGain: 0.01, UOffset: 0.01},
}

// ParseHeader reads the answer to "stream text header", in its third form. Names get small letters, and
// underscores for other signs. Stripes' times are in µs, but in ns where a main period in ns is all there is.
func ParseHeader(text string) (*Header, error) {
	var x struct {
		Version  string `xml:"version"`
		Period   string `xml:"devicePeriod"`
		Main     string `xml:"mainPeriod"`
		Channels []struct {
			Name  string        `xml:"name"`
			Units string        `xml:"units"`
			Most  measure.Count `xml:"maxTValue"`
			Place int           `xml:"dataPosition"`
		} `xml:"channels>channel"`
	}
	h := &Header{}
	err := xml.Unmarshal([]byte(text), &x)
	for _, c := range x.Channels {
		if c.Place < 1 || c.Place > 256 { // 0: a status, at the time's place
			continue
		}
		for len(h.places) < c.Place {
			h.places = append(h.places, -1)
		}
		units := strings.TrimSpace(c.Units)
		cut := max(0, len(units)-1)
		q, known := quantities[units[cut:]]
		var scaled bool
		if q.Gain, scaled = prefixes[units[:cut]]; known && scaled { // else a digital line, a power
			name := odd.ReplaceAllString(strings.ToLower(strings.TrimSpace(c.Name)), "_")
			q.Name = cmp.Or(slot[name], name) + q.Name
			q.MaxCount, q.MinCount = max(0, c.Most), -max(0, c.Most)
			h.places[c.Place-1] = len(h.In.Channels)
			h.In.Channels = append(h.In.Channels, q)
		}
	}
	tick := time.Microsecond
	if x.Period == "" && strings.HasSuffix(strings.ToLower(x.Main), "ns") {
		tick = time.Nanosecond
	}
	period, wrong := time.ParseDuration(strings.ToLower(cmp.Or(x.Period, x.Main)))
	h.Step = int64(period / tick)
	h.In.Timebase = measure.Timebase{TickHz: measure.Hertz(1e9 / float64(period)), UTickHz: 1e-4, TicksPerScan: 1}
	h.In.Response.Window = measure.SecondsOf(period) // a stripe is a mean
	if err = cmp.Or(err, wrong); err != nil || x.Version != "V3" || len(h.In.Channels) == 0 || h.Step < 1 ||
		period%tick != 0 || period > time.Minute {
		return nil, fmt.Errorf("the stream's header is none of form V3 with a period and channels in V or A (%v): is the "+
			"fixture connected, QIS new enough? %.300q", err, text)
	}
	return h, nil
}

// Stripe reads a line: a time, and a whole number a place. ok is false for any other line.
func (h *Header) Stripe(line string, counts []measure.Count) (t int64, ok bool) {
	n := 0
	for field := range strings.FieldsSeq(line) {
		v, err := strconv.ParseInt(field, 10, 64)
		switch {
		case err != nil || n > len(h.places):
			return 0, false
		case n == 0:
			t = v
		case h.places[n-1] >= 0:
			counts[h.places[n-1]] = measure.Count(min(max(v, -math.MaxInt32), math.MaxInt32))
		}
		n++
	}
	return t, n == len(h.places)+1 && max(t, -t) < 1<<53
}
