// Package quarch drives a Quarch Power Analysis Module, whose fixtures sit in a graphics card's slot
// and plugs, through Quarch's own instrument server QIS over TCP (port 9722).
//
// QIS is asked in lines of text and answers in lines, with the prompt ">" behind the last:
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
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "quarch"

const (
	quietTime = 500 * time.Millisecond // behind QIS's greeting
	pause     = 100 * time.Millisecond // between looks: quarchpy warns of many
	stopTime  = 3 * time.Second
	maxReply  = 8 << 20 // bytes; 3072 stripes take some 400 000
	maxPlaces = 256     // of a stripe
	uClock    = 1e-4    // relative; nothing is stated
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
	base, err := instrument.NewBase(Kind, address, o, transport.Options{})
	if err != nil {
		return nil, err
	}
	d := &Device{Base: base, opts: o, buf: make([]byte, 1<<16)}
	d.Steps, d.Run = []instrument.Step{d.identify, d.try}, instrument.UntilDone(d.stream)
	return d, nil
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
	switch {
	case o.Averaging > 1<<15 || o.Averaging < 1 || bits.OnesCount(uint(o.Averaging)) > 1:
		return fmt.Errorf("averaging %d: want a power of two from 1 to 32768", o.Averaging)
	case o.Silence < 500*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 500ms to 1h", o.Silence)
	}
	return nil
}

// identify waits for the greeting, finds the module in QIS's list, and asks both who they are.
func (d *Device) identify(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 4*quietTime)
	defer cancel()
	n, err := d.Conn.Drain(short, quietTime)
	switch {
	case ctx.Err() == nil && transport.Ended(err):
		return fmt.Errorf("%w: it sends without being asked: no QIS", instrument.ErrIdentity)
	case err == nil && n == 0:
		return fmt.Errorf("%w: no greeting within %v: is this QIS's port (9722)?", instrument.ErrSilent, quietTime)
	case err != nil:
		return err
	}
	version, err := d.ask(ctx, "$version")
	if err != nil {
		return err
	}
	list, err := d.ask(ctx, "$list details")
	if err != nil {
		return err
	}
	var model string
	d.module, model, err = Choose(list, d.opts.Module)
	_, serial, _ := strings.Cut(d.module, "::")
	d.Identify(model, strings.ToUpper(serial), "QIS "+version)
	return err
}

// try runs the stream for a moment: only then is there a header.
func (d *Device) try(ctx context.Context) (err error) {
	if d.head, err = d.begin(ctx); err != nil {
		return err
	}
	d.In = instrument.Inputs{
		Timebase: measure.Timebase{TickHz: measure.Hertz(1e9 / float64(d.head.Period)), UTickHz: uClock, TicksPerScan: 1},
		Response: measure.Response{Window: measure.SecondsOf(d.head.Period)}, // a stripe is a mean
		Channels: d.head.Channels,
	}
	return d.end(ctx)
}

// ask sends a line and returns the answer without its prompt.
func (d *Device) ask(ctx context.Context, command string) (string, error) {
	own, cancel := context.WithTimeout(ctx, d.opts.Silence)
	defer cancel()
	_, err := d.Conn.Write(own, []byte(command+"\r\n"))
	for d.reply = d.reply[:0]; err == nil; {
		var n int
		n, err = d.Conn.Read(own, d.buf)
		d.reply = append(d.reply, d.buf[:n]...)
		d.reply = bytes.TrimPrefix(d.reply, []byte(">")) // which QIS sends now and then unasked
		if answer, whole := bytes.CutSuffix(d.reply, []byte("\r\n>")); whole {
			return string(answer), nil
		}
		if len(d.reply) > maxReply {
			err = fmt.Errorf("%w: %d bytes without a prompt", instrument.ErrDisconnected, len(d.reply))
		}
	}
	if ctx.Err() == nil && transport.Ended(err) {
		err = fmt.Errorf("%w within %v (%d bytes came): is the module on?", instrument.ErrSilent, d.opts.Silence, len(d.reply))
	}
	return "", fmt.Errorf("%q: %w", command, err)
}

// set sends a command to the module that has to be answered with OK.
func (d *Device) set(ctx context.Context, command string) error {
	answer, err := d.ask(ctx, d.module+" "+command)
	if err == nil && strings.TrimSpace(answer) != "OK" {
		err = fmt.Errorf("the module answers %q to %q: is its fixture connected, QIS new enough?", measure.Excerpt(answer),
			command)
	}
	return err
}

// state asks why the stream does not run, "" where it does, and whether QIS's buffer is full. Any other
// answer is out of step.
func (d *Device) state(ctx context.Context) (stopped string, full bool, err error) {
	text, err := d.ask(ctx, d.module+" stream?")
	if err != nil {
		return "", false, err
	}
	first, rest, _ := strings.Cut(text, "\n")
	word, why, _ := strings.Cut(strings.ToLower(strings.TrimSpace(first)), ":")
	if word != "running" {
		stopped = cmp.Or(strings.TrimSpace(why), "?")
	}
	if stopped != "" && word != "stopped" {
		err = fmt.Errorf("%w: %q where the stream's state is due", instrument.ErrDisconnected, measure.Excerpt(text))
	}
	var waits, most int64
	n, _ := fmt.Sscanf(rest, "Stripes Buffered: %d of %d", &waits, &most)
	return stopped, n == 2 && waits >= most, err
}

// begin sets the module up, starts its stream and returns the header.
func (d *Device) begin(ctx context.Context) (*Header, error) {
	stopped, _, err := d.state(ctx)
	if err == nil && stopped == "" && !d.ours && !d.opts.TakeOver {
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
	for _, command := range []string{
		"record:trigger:mode manual", "record:averaging " + readings, "stream mode header v3",
		fmt.Sprintf("stream mode resample %dus", 4*n), // all channels, however fast
		"rec stream",
	} {
		if err == nil {
			d.ours = d.ours || command == "rec stream"
			err = d.set(ctx, command)
		}
	}
	text := ""
	for end := d.Now().Add(d.opts.Silence); err == nil && d.Now().Before(end); {
		if text, err = d.ask(ctx, d.module+" stream text header"); err == nil && !strings.Contains(text, "Not Available") {
			return ParseHeader(text)
		}
	}
	return nil, cmp.Or(err, fmt.Errorf("%w: no header within %v of the start", instrument.ErrSilent, d.opts.Silence))
}

// end stops a stream that runs, and empties QIS's buffer.
func (d *Device) end(ctx context.Context) error {
	err := d.set(ctx, "rec stop")
	for end := d.Now().Add(d.opts.Silence); err == nil; {
		stopped, text := "", ""
		if stopped, _, err = d.state(ctx); err == nil {
			text, err = d.ask(ctx, d.module+" stream text all")
		}
		switch {
		case err == nil && stopped != "" && strings.IndexAny(text, "0123456789") != 0: // no stripe
			d.ours = false
			return nil
		case err == nil && stopped == "" && d.Now().After(end):
			err = fmt.Errorf("%w: the stream does not end: restart QIS", instrument.ErrSilent)
		}
	}
	return err
}

// stream is one Stream call.
type stream struct {
	d            *Device
	out          *series.Builder
	counts       []measure.Count
	began, heard time.Time // of the stream, and of its last stripe
	last         int64     // time of that
	full         bool      // the buffer was, when last seen
}

// stream delivers from now on until ctx ends. Exchanges that ctx's end meets are finished: what
// is left of an answer would be taken for that to the next.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	own, cancel := instrument.Outlast(ctx, stopTime)
	defer cancel()
	s := &stream{d: d, counts: make([]measure.Count, len(d.In.Channels)), began: d.Now(), heard: d.Now()}
	s.out = series.New(series.Config{Channels: len(s.counts), Timebase: d.In.Timebase, Flush: 1024}, sink)
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

// poll takes the stripes that wait, and reports a full buffer and a stream that has ended.
func (s *stream) poll(ctx, own context.Context) error {
	stopped, full, err := s.d.state(own)
	full = full || stopped == "overrun"
	if full && !s.full && err == nil {
		err = s.out.Overflow("QIS's buffer ran full: stripes are not taken as fast as they come; set a greater averaging")
	}
	s.full = full
	for rest := true; err == nil && rest && ctx.Err() == nil; {
		var text string
		if text, err = s.d.ask(own, s.d.module+" stream text all"); err == nil {
			rest, err = s.take(text)
		}
	}
	if err == nil {
		err = s.out.Flush()
	}
	switch {
	case err != nil || ctx.Err() != nil:
		return err
	case stopped == "user":
		return errors.New("another program has stopped the stream: close it, and measure again")
	case stopped != "":
		return fmt.Errorf("%w: QIS has stopped the stream: %s", instrument.ErrDisconnected, measure.Excerpt(stopped))
	case s.d.Now().Sub(s.heard) > s.d.opts.Silence:
		return fmt.Errorf("%w: no stripe for %v (fixture unplugged?)", instrument.ErrSilent, s.d.opts.Silence)
	}
	return nil
}

// take parses an answer of stripes; rest reports that more wait.
func (s *stream) take(text string) (rest bool, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "eof" {
			return false, s.out.Flush()
		}
		t, ok := s.d.head.Stripe(line, s.counts)
		if rest = ok || rest; !ok {
			s.out.Malformed(1)
		} else if err := s.stripe(t); err != nil {
			return false, err
		}
	}
	return rest, s.out.Flush()
}

// stripe gives the counts their place by their time.
func (s *stream) stripe(t int64) error {
	step, now := s.d.head.Step, s.d.Now()
	if !s.out.Begun() {
		s.last = t - step
	}
	d := t - s.last
	if d < -1<<31 { // a counter of 32 bits has turned
		d += 1 << 32
	}
	n := (d + step/2) / step
	// No stripe is of the future, but for the difference of two clocks.
	most := (1.01*now.Sub(s.began).Seconds() + 1) * float64(s.d.In.Timebase.SampleRate())
	switch {
	case d <= 0:
		s.out.Repeated()
		return nil
	case float64(s.out.Next())+float64(n) > most || 4*max(d-n*step, n*step-d) > step:
		s.out.Malformed(1)
		return nil
	case n > 1:
		if err := s.out.Gap(uint64(n-1), true, measure.Plural(n-1, "stripe")+" missing, by their times"); err != nil {
			return err
		}
	}
	s.last, s.heard = t, now
	return s.out.Add(s.counts)
}

// listed is a line of "$list details": a number, connection::serial, and details.
var listed = regexp.MustCompile(`(?m)^\s*\d+\)\s*((\w+)::(\S+))(?:.*Stream:(\w+))?(?:.*Name:([^\r\n]*))?`)

// Choose finds the module of a serial number in the answer to "$list details", or the only one that
// streams where that is empty, and its name. USB is preferred; over REST no module streams.
func Choose(list, serial string) (module, name string, err error) {
	var have []string
	for _, m := range listed.FindAllStringSubmatch(list, -1) {
		usb, id := strings.EqualFold(m[2], "usb"), strings.ToUpper(m[3])
		if strings.EqualFold(m[2], "rest") || m[4] == "No" {
			continue
		}
		if !slices.Contains(have, id) {
			have = append(have, id)
		}
		if (serial == "" || strings.EqualFold(id, serial)) && (module == "" || usb) {
			module, name = m[1], m[5]
		}
	}
	if serial == "" && len(have) > 1 {
		return "", "", fmt.Errorf("QIS lists %.500q: set module to one of them", have)
	}
	if module == "" {
		err = fmt.Errorf("%w: QIS lists no module %s that streams, but %.500q: is it on? QIS takes up to 20 s to find it",
			instrument.ErrSilent, serial, have)
	}
	return module, name, err
}

// Header describes the stripes of a stream.
type Header struct {
	Period time.Duration
	// Step is the period in units of the stripes' times.
	Step int64
	// Channels that are volts or amperes; QIS's powers are but the products of these.
	Channels []measure.Channel
	places   []int // by place in a stripe behind the time: the channel, −1 for none of these
}

// quantities by unit, with uncertainties. Quarch's depend on the fixture and are on its sheet, which was
// not at hand, so these are set wide on purpose. A calibration in the bench file replaces them.
var quantities = map[string]measure.Channel{
	"V": {Name: ".voltage", Unit: measure.UnitVolt, UGain: 0.005, UOffset: 0.005},
	"A": {Name: ".current", Unit: measure.UnitAmpere, UGain: 0.01, UOffset: 0.01},
}

var (
	prefixes = map[string]float64{"": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3}
	odd      = regexp.MustCompile(`[^a-z0-9]+`)
	// slot are the rails of a slot, as other instruments call them.
	slot = map[string]string{"3v3": "pcie_3v3", "3_3v": "pcie_3v3", "12v": "pcie_12v"}
)

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
		if c.Place < 1 || c.Place > maxPlaces { // 0: a status, at the time's place
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
			h.places[c.Place-1] = len(h.Channels)
			h.Channels = append(h.Channels, q)
		}
	}
	tick := time.Microsecond
	if x.Period == "" && strings.HasSuffix(strings.ToLower(x.Main), "ns") {
		tick = time.Nanosecond
	}
	var wrong error
	h.Period, wrong = time.ParseDuration(strings.ToLower(cmp.Or(x.Period, x.Main)))
	h.Step = int64(h.Period / tick)
	if err = cmp.Or(err, wrong); err != nil || x.Version != "V3" || len(h.Channels) == 0 || h.Step < 1 ||
		h.Period%tick != 0 || h.Period > time.Minute {
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
