package scope

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// recording is one acquisition, by the host's clock.
type recording struct {
	sent, back time.Time // around the trigger
	sampling   time.Time // when it was last known to sample
	full       time.Time // when it was first seen to stand by itself
	before     int       // points in memory from before the trigger
}

// state asks for the trigger's state, again where the link broke.
func (d *Device) state(ctx context.Context) (State, error) {
	return again(ctx, d, d.dialect.State)
}

// stream takes one acquisition: it arms the scope, samples until ctx ends, and then fetches its memory;
// see the package's comment.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	r, err := d.arm(ctx, sink)
	if err == nil && sink.Armed != nil {
		err = sink.Armed(r.sent.Add(r.back.Sub(r.sent) / 2))
	}
	if err == nil {
		err = d.sample(ctx, &r)
	}
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.DeadlineExceeded)) {
		// Also where an exchange ran out of its own time as ctx ended.
		if r.sent.IsZero() {
			return nil // it was not armed yet
		}
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.patience())
		defer cancel()
		own, release := sink.WhileWanted(own)
		defer release()
		err = d.collect(own, r, sink)
	}
	return err
}

// armTime bounds the wait for a scope to be ready for its trigger.
const armTime = 5 * time.Second

// arm starts a single acquisition and triggers it, or waits for its trigger.
func (d *Device) arm(ctx context.Context, sink instrument.Sink) (r recording, err error) {
	d.dialect.SetTriggered(false)
	l := d.client.Link(ctx)
	if d.dialect.Arm(l); l.Err != nil {
		return r, l.Err
	}
	own, cancel := context.WithTimeout(ctx, armTime)
	defer cancel()
	for s := State(0); s != Waiting; {
		s, err = d.state(own)
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return r, fmt.Errorf("%w: it did not arm within %v: %w", scpi.ErrInstrument, armTime, err)
		case err != nil:
			return r, err
		case s == Sampling && d.plan.Trigger.external():
			return r, fmt.Errorf("%w: it triggered before anybody waited for it: is there an edge on %s already, of a "+
				"scope that runs freely?", scpi.ErrInstrument, d.plan.Trigger.Channel)
		case s == Sampling:
			return r, fmt.Errorf("%w: it triggered by itself: set its trigger level out of the signal's reach",
				scpi.ErrInstrument)
		}
	}
	if d.plan.Trigger.external() {
		return d.await(ctx, sink)
	}
	sent := d.Now()
	d.dialect.SetTriggered(true)
	if err := d.client.Command(ctx, d.cfg.Family.Force); err != nil {
		return r, err
	}
	if _, err := d.state(ctx); err != nil { // its reply reports that the trigger was taken
		return r, err
	}
	r.sent, r.back = sent, d.Now()
	r.sampling = r.back
	return r, nil
}

// sample waits until ctx ends and watches the scope meanwhile. A link that is
// lost is tried again by the client: the scope samples on.
func (d *Device) sample(ctx context.Context, r *recording) error {
	for range backoff.Every(ctx.Done(), d.cfg.Poll) {
		if !r.full.IsZero() {
			continue
		}
		asked := d.Now()
		s, err := d.state(ctx)
		if err != nil {
			return err
		}
		switch s {
		case Stopped:
			r.full = d.Now()
		case Sampling:
			r.sampling = asked
		default:
			return fmt.Errorf("%w: it is %v in the middle of a recording: was it switched off, or its front panel "+
				"used?", scpi.ErrInstrument, s)
		}
	}
	return nil
}

// blockScans is the size of the blocks delivered.
const blockScans = 1 << 14

// download reads memory behind its first points, in pieces, each from
// all channels, and delivers it.
func (d *Device) download(ctx context.Context, before, held int, sink instrument.Sink) error {
	codes := make([][]byte, len(d.plan.Used))
	b := measure.Block{Counts: make([][]measure.Count, len(d.plan.Used))}
	for i := range b.Counts {
		b.Counts[i] = make([]measure.Count, blockScans)
	}
	for first := 0; first < held; first += d.mem.Piece {
		n := min(d.mem.Piece, held-first)
		for i, channel := range d.plan.Used {
			var err error
			codes[i], err = again(ctx, d, func(l *Link) []byte {
				out := d.dialect.Read(l, channel, before+first, n, codes[i][:0])
				if want := n * d.mem.Codes.Bytes; len(out) != want {
					l.Fail("%w: %d of %d bytes", ErrFewer, len(out), want)
				}
				return out
			})
			if err != nil {
				return fmt.Errorf("read points %d to %d of channel %d: %w", first+1, first+n, channel, err)
			}
		}
		for from := 0; from < n; from += blockScans {
			for i := range codes {
				b.Counts[i] = b.Counts[i][:min(blockScans, n-from)]
				d.mem.Codes.Decode(b.Counts[i], codes[i][from*d.mem.Codes.Bytes:])
			}
			b.FirstScan = uint64(first + from)
			b.FirstTick = int64(math.Round(float64(first+from) * d.In.Timebase.TicksPerScan))
			if err := sink.Block(&b); err != nil {
				return err
			}
		}
		if sink.Progress != nil {
			sink.Progress(uint64(first+n), uint64(held))
		}
	}
	return nil
}

// NaturalRails pairs a current on chN with the voltage on the channel after it;
// a scope reports nothing of its probes, so that this is a guess for a first look.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	for i := 0; i+1 < len(in.Channels); i++ {
		x, y := in.Channels[i], in.Channels[i+1]
		if x.Unit == measure.UnitAmpere && y.Unit == measure.UnitVolt {
			rails = append(rails, measure.Rail{
				Name: x.Name, Role: instrument.RoleOf(x.Name), Wiring: measure.WiringClamp, X: i, Y: i + 1,
			})
		}
	}
	return rails, nil
}

// whole waits until memory is full, and returns how many points all channels
// hold; s is the scope's last state. A scope that stands earlier was stopped at its
// front panel, and the contents of its memory are unknown.
func (d *Device) whole(ctx context.Context, r *recording, s State) (held int, err error) {
	own, cancel := context.WithTimeout(ctx, d.span()+armTime)
	defer cancel()
	for s != Stopped {
		if err = backoff.Sleep(own, min(d.cfg.Poll, 50*time.Millisecond)); err == nil {
			s, err = d.state(own)
		}
		if err != nil {
			return 0, fmt.Errorf("wait until memory is full: %w", err)
		}
		if s == Free {
			return 0, fmt.Errorf("%w: it is %v in the middle of a recording: was its front panel used?",
				scpi.ErrInstrument, s)
		}
		if s == Stopped {
			r.full = d.Now()
		}
	}
	if held, err = d.held(ctx, r); err != nil {
		return 0, err
	}
	const part = 100 // of the window, that its begin may be rounded by
	span := time.Duration(float64(d.room(r)) * d.mem.Step * float64(time.Second))
	if took := r.full.Sub(r.sent); took < span-span/part {
		return 0, fmt.Errorf("%w: it stood after %v of the %v that its memory spans: was it stopped at its front panel?",
			scpi.ErrInstrument, took.Round(time.Millisecond), span)
	}
	return held, nil
}

// span is the time that memory spans.
func (d *Device) span() time.Duration {
	return time.Duration(float64(d.mem.Points) * d.mem.Step * float64(time.Second))
}

// Codes describes how a converter's codes stand in a block.
type Codes struct {
	Bytes     int // a code: 1 or 2
	Signed    bool
	BigEndian bool
}

// Decode writes as many codes as dst has room for, or raw holds, and returns
// their number. A trailing half of a code is none.
func (c Codes) Decode(dst []measure.Count, raw []byte) int {
	size, low, shift := 1, 0, 8 // bytes a code, the place of its low byte, and of its sign below bit 15
	if c.Bytes == 2 {
		size, shift = 2, 0
	}
	if c.BigEndian {
		low = size - 1
	}
	n := min(len(dst), len(raw)/size)
	for i := range dst[:n] {
		v := uint16(raw[size*i+low])
		if size == 2 {
			v |= uint16(raw[2*i+1-low]) << 8
		}
		if dst[i] = measure.Count(v); c.Signed {
			dst[i] = measure.Count(int16(v<<shift) >> shift)
		}
	}
	return n
}

// Trigger is an edge to wait for.
type Trigger struct {
	// Channel of the edge, one of the inputs; empty for a forced trigger.
	Channel string `yaml:"channel"`
	// Level of the edge, in volts at the probe's tip; default 1.5.
	Level float64 `yaml:"level"`
}

// external reports whether a trigger from outside is waited for.
func (t Trigger) external() bool { return t.Channel != "" }

// level is where the edge is looked for, in volts.
func (t Trigger) level() float64 {
	const logic = 1.5
	return cmp.Or(t.Level, logic)
}

// validTrigger reports a trigger on a channel that is not shown, or whose level is off its screen.
func (o Options) validTrigger() error {
	t := o.Trigger
	if !t.external() {
		if t.Level != 0 {
			return errors.New("a level without a channel")
		}
		return nil
	}
	in, ok := o.Inputs[t.Channel]
	if !ok {
		return fmt.Errorf("channel %q is none of the inputs: name it there, the scope must see its edge", t.Channel)
	}
	const half = 4 // divisions from the screen's middle to its edge
	if reach := math.Abs(t.level() + in.Offset); !(reach <= half*in.Scale) {
		return fmt.Errorf("a level of %v V is off the screen of %s: want %v to %v V", t.level(), t.Channel,
			-half*in.Scale-in.Offset, half*in.Scale-in.Offset)
	}
	return nil
}

// await waits for a trigger from outside, until ctx ends.
func (d *Device) await(ctx context.Context, sink instrument.Sink) (r recording, err error) {
	if sink.Waiting != nil {
		if err := sink.Waiting(); err != nil {
			return r, err
		}
	}
	const often = 10 // polls in the time of one later on: each reports when the trigger came
	waited := d.Now()
	for range backoff.Rounds(ctx.Done(), d.cfg.Poll/often) {
		asked := d.Now()
		s, err := d.state(ctx)
		if err != nil {
			return r, err
		}
		if s == Sampling || s == Stopped {
			return d.triggered(s, waited)
		}
		if s == Waiting {
			waited = asked
		} else if asked.Sub(waited) > unclear {
			return r, fmt.Errorf("%w: it is %v where it should wait for its trigger: was its front panel used?",
				scpi.ErrInstrument, s)
		}
	}
	return r, ctx.Err()
}

// unclear is how long a scope may answer otherwise around its trigger.
const unclear = time.Second

// triggered is a recording whose trigger came after a scope was last known to wait.
func (d *Device) triggered(s State, waited time.Time) (r recording, err error) {
	now := d.Now()
	const part = 100 // of the window, that it may be rounded by
	if s == Stopped && now.Sub(waited) < d.span()-d.span()/part {
		return r, fmt.Errorf("%w: it stopped without a trigger: was its front panel used?", scpi.ErrInstrument)
	}
	d.dialect.SetTriggered(true)
	return recording{sent: waited, back: now, sampling: now}, nil
}

// stop ends the acquisition and returns how many points of each channel memory
// holds, and how many scans there would be until now.
func (d *Device) stop(ctx context.Context, r *recording) (held int, due uint64, err error) {
	asked := d.Now()
	s, err := d.state(ctx)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case s == Sampling:
		r.sampling = asked
	case s == Stopped && r.full.IsZero():
		r.full = d.Now()
	}
	if d.cfg.Family.Whole {
		due = d.due(r, asked)
		held, err = d.whole(ctx, r, s)
		return int(min(uint64(held), due)), due, err // points behind the stop do not count
	}
	if s != Stopped {
		if err := d.client.Command(ctx, d.cfg.Family.Stop); err != nil {
			return 0, 0, err
		}
	}
	end := d.Now()
	own, cancel := context.WithTimeout(ctx, armTime)
	defer cancel()
	for s != Stopped {
		if s, err = d.state(own); err != nil {
			return 0, 0, err
		}
	}
	held, err = d.held(ctx, r)
	return held, d.due(r, end), err
}

// due is how many scans there would be from the trigger to an instant.
func (d *Device) due(r *recording, end time.Time) uint64 {
	return uint64(max(0, end.Sub(r.sent).Seconds()/d.mem.Step))
}

// held compares every channel's scale with that of Open, and returns how many
// points all channels hold.
func (d *Device) held(ctx context.Context, r *recording) (int, error) {
	held := d.mem.Points
	for i, n := range d.plan.Used {
		before, err := d.compare(ctx, i, n)
		if err != nil {
			return 0, err
		}
		if i > 0 && before != r.before {
			return 0, fmt.Errorf("%w: its channels hold %d and %s from before the trigger", scpi.ErrInstrument,
				r.before, measure.Plural(before, "point"))
		}
		r.before = before
		exact := false
		points, err := again(ctx, d, func(l *Link) (p int) {
			p, exact = d.dialect.Held(l, n)
			return p
		})
		if err != nil {
			return 0, err
		}
		// A scope that pads an unfinished memory must not invent samples.
		// It is full where it stood by itself, and as late as a full memory makes it: one that was stopped
		// at its front panel is not.
		const ahead = 4 // times the clock's limit
		most := float64(d.room(r))
		span := most * d.mem.Step * (1 - ahead*d.cfg.Family.Spec.Clock)
		if exact {
			most = math.Ceil(d.Now().Sub(r.sent).Seconds() / d.mem.Step)
		} else if r.full.IsZero() || r.full.Sub(r.sent).Seconds() < span {
			most = math.Floor(r.sampling.Sub(r.back).Seconds() / d.mem.Step)
		}
		held = min(held, points-before, int(min(most, float64(d.room(r)))))
	}
	return max(0, held), nil
}

// room is how many points a full memory holds behind the trigger.
func (d *Device) room(r *recording) int { return d.mem.Points - r.before }

// compare refuses a channel that is not set as it was at Open, and reports how many
// points lie before the trigger.
func (d *Device) compare(ctx context.Context, i, channel int) (before int, err error) {
	s, err := d.scale(ctx, channel)
	if err != nil {
		return 0, err
	}
	was := d.scales[i]
	was.Begin = s.Begin
	if s != was {
		return 0, fmt.Errorf("%w: channel %d was set otherwise while it measured: was its front panel used?",
			scpi.ErrInstrument, channel)
	}
	const jitter = 2 // points that the trigger may lie before the first, between two of them
	b := math.Round(-s.Begin / s.Step)
	if !(b >= -jitter && b < float64(d.mem.Points)) {
		return 0, fmt.Errorf("%w: memory begins %v s behind the trigger", scpi.ErrInstrument, s.Begin)
	}
	return max(0, int(b)), nil
}

// overrun is how many scans a stop may come late without anything being missed:
// the trigger's and the stop's own travel.
const overrun = 50 * time.Millisecond

// collect stops the scope and delivers its memory.
func (d *Device) collect(ctx context.Context, r recording, sink instrument.Sink) error {
	held, due, err := d.stop(ctx, &r)
	if err != nil {
		return err
	}
	if err := d.download(ctx, r.before, held, sink); err != nil {
		return err
	}
	if r.full.IsZero() || due <= uint64(held)+uint64(overrun.Seconds()/d.mem.Step) {
		return nil
	}
	what, hint := "memory was full", "choose a longer window"
	if held < d.room(&r) {
		what, hint = "it stopped by itself", "was its front panel used?"
	}
	return sink.Event(measure.Event{
		Kind: measure.EventGap, FirstScan: uint64(held), Scans: due - uint64(held), Channel: -1,
		Detail: fmt.Sprintf("%s after %.3f s of %.3f s: %s", what, float64(held)*d.mem.Step, float64(due)*d.mem.Step, hint),
	})
}

// patience bounds a download: the slowest scope gives some 1.7 MB/s, a bad
// network less.
func (d *Device) patience() time.Duration {
	const slowest = 100_000 // bytes a second
	return time.Minute + d.span() + time.Duration(d.mem.Points*d.mem.Codes.Bytes*len(d.plan.Used)/slowest)*time.Second
}
