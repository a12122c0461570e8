package u2300

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
	"wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "keysight-u2300"

// Device is a U2300A. It implements instrument.Instrument.
type Device struct {
	address string
	opts    Options
	client  *scpi.Client
	now     func() time.Time

	open     bool
	model    model
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

func (d *Device) config() scpi.Config {
	return scpi.Config{Address: d.address, Timeout: d.opts.Timeout, Reconnect: d.opts.Silence, Accept: func(id scpi.Identity) error {
		_, err := lookup(id)
		return err
	}}
}

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the channels of the scan. The model's skew is known after Open.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open connects, identifies the device, stops what an earlier program left
// running, and sets the scan up; every setting is read back.
func (d *Device) Open(ctx context.Context) error {
	if d.open {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	d.client.Forget() // the capture itself insists on the same device
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

// Close releases the link; Stream has stopped the device. It is safe to call twice.
func (d *Device) Close() error {
	d.open = false
	return d.client.Close()
}

func (d *Device) identify() (err error) {
	id := d.client.Identity()
	d.identity.Model, d.identity.Serial, d.identity.Firmware = id.Model, id.Serial, id.Firmware
	if d.model, err = lookup(id); err != nil {
		return err
	}
	d.inputs = d.opts.inputs(d.model)
	return d.model.fits(d.opts)
}

// list writes a channel list.
func list(numbers ...int) string {
	s := make([]string, len(numbers))
	for i, n := range numbers {
		s[i] = strconv.Itoa(n)
	}
	return "(@" + strings.Join(s, ",") + ")"
}

// setUp sets the scan. The rate goes down first: a device refuses a scan list
// that the rate before it does not allow.
func (d *Device) setUp(ctx context.Context) error {
	numbers := make([]int, len(d.opts.Inputs))
	setup := []string{"STOP", "TRIG:SOUR NONE", fmt.Sprintf("ACQ:SRAT %d", slowest)}
	for k, raw := range d.opts.Inputs {
		i := raw.withDefaults()
		numbers[k] = i.Channel
		at := list(i.Channel)
		setup = append(setup,
			fmt.Sprintf("ROUT:CHAN:POL %s,%s", i.polarity(), at), fmt.Sprintf("ROUT:CHAN:RANG %g,%s", i.Range, at),
			fmt.Sprintf("ROUT:CHAN:STYP %s,%s", grounds[i.Ground], at))
	}
	burst := "OFF"
	if d.opts.Burst {
		burst = "ON"
	}
	setup = append(setup, "ROUT:SCAN "+list(numbers...), "ACQ:BURS "+burst,
		fmt.Sprintf("ACQ:SRAT %g", d.opts.ScanRate), fmt.Sprintf("WAV:POIN %d", d.opts.points()))
	for _, s := range setup {
		if err := d.client.Command(ctx, s); err != nil {
			return err
		}
		if err := d.client.Check(ctx, s); err != nil {
			if errors.Is(err, scpi.ErrInstrument) {
				err = fmt.Errorf("%w: this device does not take that: change %s", err, optionOf(s))
			}
			return err
		}
	}
	return d.readBack(ctx, numbers)
}

// optionOf names the options behind a command, for the operator.
func optionOf(command string) string {
	for part, option := range map[string]string{
		"RANG": "the input's range", "POL": "the input's unipolar", "STYP": "the input's ground", "SCAN": "inputs",
		"SRAT": "scan_rate, or use fewer inputs", "POIN": "block", "BURS": "burst",
	} {
		if strings.Contains(command, part) {
			return option
		}
	}
	return "its settings from before (switch it off and on)"
}

// readBack compares what the device keeps with what was set.
func (d *Device) readBack(ctx context.Context, numbers []int) error {
	got, err := scpi.Ask(ctx, d.client, "ROUT:SCAN?", parseChannels)
	if err != nil {
		return err
	}
	if !slices.Equal(got, numbers) {
		return fmt.Errorf("%w: it scans %v after %v was set: give the inputs in the order that it keeps", scpi.ErrInstrument, got, numbers)
	}
	number := func(query, option string, want float64) error {
		v, err := d.client.QueryNumber(ctx, query)
		if err == nil && v != want {
			err = fmt.Errorf("%w: %s gives %v after %v was set: set %s: %v", scpi.ErrInstrument, query, v, want, option, v)
		}
		return err
	}
	for k, raw := range d.opts.Inputs {
		i := raw.withDefaults()
		at := " " + list(i.Channel)
		if err := number("ROUT:CHAN:RANG?"+at, fmt.Sprintf("inputs[%d].range", k), i.Range); err != nil {
			return err
		}
		for query, want := range map[string]string{"ROUT:CHAN:POL?": i.polarity(), "ROUT:CHAN:STYP?": grounds[i.Ground]} {
			s, err := d.client.Query(ctx, query+at)
			if err != nil {
				return err
			}
			if !strings.HasPrefix(strings.ToUpper(strings.TrimSpace(s)), want) {
				return fmt.Errorf("%w: %s%s gives %q after %s was set", scpi.ErrInstrument, query, at, s, want)
			}
		}
	}
	if err := number("ACQ:SRAT?", "scan_rate", d.opts.ScanRate); err != nil {
		return err
	}
	if b, err := scpi.Ask(ctx, d.client, "ACQ:BURS?", scpi.ParseBool); err != nil || b != d.opts.Burst {
		return errors.Join(err, fmt.Errorf("%w: burst is %v after %v was set", scpi.ErrInstrument, b, d.opts.Burst))
	}
	return number("WAV:POIN?", "block to the time of as many scans", float64(d.opts.points()))
}
