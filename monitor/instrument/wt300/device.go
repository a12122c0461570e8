package wt300

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
	"wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "yokogawa-wt300"

// Device is a WT300. It implements instrument.Instrument.
type Device struct {
	address string
	opts    Options
	client  *scpi.Client
	now     func() time.Time

	open     bool
	identity instrument.Identity
	inputs   instrument.Inputs
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if _, err := transport.ParseAddress(address); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	d := &Device{address: address, opts: o, now: time.Now, inputs: Inputs(o)}
	d.client = scpi.New(d.config())
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	return d, nil
}

// config is the client's: an exchange may have to wait for an update, and after
// one that failed for the one that the meter still waits for.
func (d *Device) config() scpi.Config {
	return scpi.Config{
		Address: d.address, Timeout: d.opts.Timeout + 2*d.opts.Rate, Reconnect: d.opts.Silence, ErrorQuery: ":STAT:ERR?", Accept: accept,
	}
}

// elements of each model; the WT332 has the first and the third.
var elements = map[string][]int{
	"WT310": {1}, "WT310HC": {1}, "WT332": {1, 3}, "WT333": {1, 2, 3},
	"WT310E": {1}, "WT310EH": {1}, "WT332E": {1, 3}, "WT333E": {1, 2, 3},
}

func accept(id scpi.Identity) error {
	if _, ok := elements[strings.ToUpper(id.Model)]; !ok || !strings.Contains(strings.ToUpper(id.Maker), "YOKOGAWA") {
		return fmt.Errorf("%w: it is a %s %s, wanted a Yokogawa WT310, WT332 or WT333", instrument.ErrIdentity, id.Maker, id.Model)
	}
	return nil
}

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the channels of the elements.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open connects, identifies the meter and sets it up; every setting is read back.
func (d *Device) Open(ctx context.Context) error {
	if d.open {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	d.client.Forget() // the capture itself insists on the same meter
	err := d.client.Open(ctx)
	if err == nil {
		err = d.identify()
	}
	if err == nil {
		err = d.setUp(ctx)
	}
	if err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	d.open = true
	return nil
}

// Close releases the link; the meter keeps its settings. It is safe to call twice.
func (d *Device) Close() error {
	d.open = false
	return d.client.Close()
}

func (d *Device) identify() error {
	id := d.client.Identity()
	d.identity.Model, d.identity.Serial, d.identity.Firmware = id.Model, id.Serial, id.Firmware
	d.inputs = Inputs(d.opts)
	model := strings.ToUpper(id.Model)
	if strings.HasSuffix(model, "HC") || strings.HasSuffix(model, "EH") {
		for i := range d.inputs.Channels { // its shunt for 40 A is less accurate
			if c := &d.inputs.Channels[i]; c.Unit != measure.UnitVolt && d.opts.UGain == Defaults().UGain {
				c.UGain = highCurrent / math.Sqrt(3)
			}
		}
	}
	has := elements[model]
	for k, e := range d.opts.Elements {
		there := false
		for _, n := range has {
			there = there || n == e.Element
		}
		if !there {
			return fmt.Errorf("elements[%d].element %d: a %s has %v", k, e.Element, id.Model, has)
		}
	}
	return nil
}

// setting is a command with what its query must then give, and the option to
// change where the meter does not take it.
type setting struct {
	command, query string
	want           float64
	option         string
}

// settings put the meter into a known state: a fixed range, the mean of each
// update alone, numbers without headers.
func (d *Device) settings() []setting {
	o := d.opts
	out := []setting{
		{command: ":COMM:HEAD OFF"},
		{command: ":COMM:VERB OFF"},
		{command: ":HOLD OFF"},
		{command: ":MEAS:AVER:STAT OFF", option: "its averaging"},
		{command: ":INP:MODE " + modes[o.Mode], option: "mode"},
		{command: ":INP:SYNC OFF", option: "its synchronisation"},
		{command: ":INP:CFAC 3", query: ":INP:CFAC?", want: 3, option: "its crest factor"},
		{fmt.Sprintf(":INP:VOLT:RANG %gV", o.VoltRange), ":INP:VOLT:RANG?", o.VoltRange, "volt_range"},
		{fmt.Sprintf(":INP:CURR:RANG %gA", o.AmpereRange), ":INP:CURR:RANG?", o.AmpereRange, "ampere_range"},
		{fmt.Sprintf(":RATE %dMS", o.Rate.Milliseconds()), ":RATE?", o.Rate.Seconds(), "rate"},
		{command: ":NUM:FORM FLO"},
		{command: fmt.Sprintf(":NUM:NORM:NUM %d", perElement*len(o.Elements)), query: ":NUM:NORM:NUM?", want: float64(perElement * len(o.Elements))},
	}
	for k, e := range o.Elements {
		for i, q := range o.quantities() {
			out = append(out, setting{command: fmt.Sprintf(":NUM:NORM:ITEM%d %s,%d", perElement*k+i+1, q.function, e.Element), option: "elements"})
		}
	}
	return append(out, setting{command: ":STAT:FILT1 FALL"})
}

func (d *Device) setUp(ctx context.Context) error {
	for _, s := range d.settings() {
		if err := d.client.Command(ctx, s.command); err != nil {
			return err
		}
		if err := d.client.Check(ctx, s.command); err != nil {
			if errors.Is(err, scpi.ErrInstrument) && s.option != "" {
				err = fmt.Errorf("%w: this meter does not take that: change %s", err, s.option)
			}
			return err
		}
		if s.query == "" {
			continue
		}
		v, err := d.client.QueryNumber(ctx, s.query)
		if err != nil {
			return err
		}
		if math.Abs(v-s.want) > 1e-3*s.want {
			return fmt.Errorf("%w: %s gives %v after %v was set: set %s to what it has, or choose another", scpi.ErrInstrument, s.query, v, s.want, s.option)
		}
	}
	return nil
}
