package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// Kind is the driver's name in bench files.
const Kind = "replay"

// ErrEnd: the recording has been played to its end.
var ErrEnd = errors.New("end of the recording")

// Options are the settings of the driver in a bench file.
type Options struct {
	// Speed is how fast to play: 1 as recorded (default), 0 as fast as it is taken.
	Speed float64 `yaml:"speed"`
	// AtEnd is what follows the last scan: "wait" (default) says nothing more, as
	// a meter at rest would; "stop" ends the stream with ErrEnd.
	AtEnd string `yaml:"at_end"`
}

// Defaults are the options of a recording that is not described further.
func Defaults() Options { return Options{Speed: 1, AtEnd: "wait"} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	if !(o.Speed >= 0) || math.IsInf(o.Speed, 0) {
		return fmt.Errorf("speed %v: want 0 (as fast as possible) or more", o.Speed)
	}
	if o.AtEnd != "wait" && o.AtEnd != "stop" {
		return fmt.Errorf("at_end %q: want wait or stop", o.AtEnd)
	}
	return nil
}

// Device plays a recording. It implements instrument.Instrument.
type Device struct {
	dir      string
	opts     Options
	identity instrument.Identity
	inputs   instrument.Inputs
	events   []measure.Event
	open     bool
}

// New makes a player of a folder; nothing is read yet.
func New(dir string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if dir == "" {
		return nil, fmt.Errorf("%s: no folder: give the recording's as address", Kind)
	}
	return &Device{dir: dir, opts: o, identity: instrument.Identity{Kind: Kind, Address: dir}}, nil
}

// Identity is that of the recorded instrument, once opened; the kind stays replay.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are those of the recorded instrument, once opened.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open reads what was recorded. Errors wrap ErrFormat.
func (d *Device) Open(ctx context.Context) error {
	if d.open {
		return fmt.Errorf("%s: open %s: already open", Kind, d.dir)
	}
	m, err := readMeta(d.dir)
	if err == nil {
		d.events, err = readEvents(d.dir)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: open %s: %w", Kind, d.dir, err)
	}
	d.identity = instrument.Identity(m.Identity)
	d.identity.Model = fmt.Sprintf("%s %s", d.identity.Kind, d.identity.Model)
	d.identity.Kind, d.identity.Address = Kind, d.dir
	d.inputs, d.open = m.inputs(), true
	return nil
}

// Close forgets the recording.
func (d *Device) Close() error {
	d.open = false
	return nil
}

// Stream plays the recording from its beginning.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if !d.open {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	r, err := openRows(d.dir)
	if err != nil {
		return fmt.Errorf("%s: %w", Kind, err)
	}
	defer r.f.Close()
	p := newPlayer(d, sink)
	err = p.play(ctx, r)
	if errors.Is(err, io.EOF) {
		if err = p.finish(); err == nil && d.opts.AtEnd == "stop" {
			err = ErrEnd
		}
		if err == nil {
			<-ctx.Done()
		}
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = p.flush()
	}
	if err != nil {
		return fmt.Errorf("%s: play %s: %w", Kind, d.dir, err)
	}
	return nil
}

// playTime is how much of the recording one block holds.
const playTime = 10 * time.Millisecond
