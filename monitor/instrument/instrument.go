// Package instrument is the monitor's view of a meter: it opens, identifies itself, and
// delivers blocks of raw counts until it is stopped.
//
//	Instrument  one meter: Open → Identity, Inputs → Stream (again and again) → Close
//	Sink        the receiver of a stream: blocks, events, and optional features, nil where not wanted
//	Inputs      a meter's channels with scale and uncertainty, its timebase and response
//	Base        the skeleton of a driver: address, link, identity, order of opening and closing
//	Gate        makes the texts of a device printable before they are shown or sent
//
// Below it, a folder a driver, and the parts that drivers share:
//
//	assemble   scans with a short, wrapping stamp → blocks    (powersensor3, pmd)
//	series     scans whose number is known → blocks           (all others but scopes)
//	analog     inputs of data acquisition boxes               (labjack, dataq, u2300)
//	scope      oscilloscopes: one Device, a Dialect a maker
//	composite  several instruments as one; replay a recording as an instrument
//	registry   the table of all kinds
//
// # Adding a meter
//
// A device that prints lines or sends frames over a serial port usually needs no code: a bench file with a pattern
// (package serialtext), as an example to copy in docs/benches, which docs/bench-file.md explains. Else:
//
//  1. A folder here: device.go with Kind, Options (Defaults, Validate), Inputs and a Device
//     that embeds Base and sets its Steps, by which it is opened, and Run, which is one Stream
//     (of a device that sends by itself it ends in Pump); raw counts, gaps as events, stated
//     uncertainties; the parser beside it, in a file of its own where it is long. A new
//     oscilloscope is a scope.Family with a Dialect. Without rails of its own it needs no
//     NaturalRails. Package powenetics is one to copy: numbered frames over a serial port.
//  2. One line in kinds of registry: name, summary, form of the address, and the four functions.
//  3. A folder in monitor/emulator that speaks the device's protocol, and its line in emulators
//     (cmd/internal/bench/emulate.go).
//  4. Tests of the driver against that emulator, over a pty or a socket, with the rigs of
//     monitor/internal/montest: losses, interruption, reopening, energy. A row in emulated
//     (monitor/emulator/hostile_test.go) for hostile bytes, and one in benchSubjects
//     (cmd/internal/perf/decode_test.go) for the speed of its decoder.
//  5. In known of package discover what its port looks like.
//  6. A file KIND.yaml in monitor/bench/examples; in docs/instruments.md a row of the table at
//     the top and a section "## KIND", with what is known from memory alone.
//  7. The recorded help: go test ./cmd/wattmark -run Golden -update.
//
// What was left out of 4 and 6 is named by
//
//	go test ./monitor/bench ./monitor/emulator ./cmd/internal/perf -run 'Kinds|Examples|Documentation'
//
// One goroutine owns an instrument; nothing here is safe for concurrent use unless its
// comment states otherwise.
package instrument

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Sink takes the data of an instrument, on the instrument's goroutine. Block and Event
// are always set; each of the others is nil where its feature is not wanted. An error
// from any of them ends the stream.
type Sink struct {
	// Block takes the next scans. The block is borrowed: it is valid until the call
	// returns.
	Block func(*measure.Block) error
	// Event takes a gap, an overflow or a note, in order with the blocks.
	Event func(measure.Event) error
	// BlockAt takes a block that was held back, with the time of its samples' arrival.
	BlockAt func(b *measure.Block, at time.Time) error
	// Marker returns the marker that the samples will hold; its code is marker.None
	// where there is none.
	Marker func() marker.Spec
	// Waiting reports that an instrument whose samples begin with a trigger from
	// outside would take the trigger now.
	Waiting func() error

	// The rest is for an instrument that measures into its own memory, as an
	// oscilloscope does. Its Stream calls Armed once it samples, delivers nothing until
	// ctx ends, then stops the device, delivers its memory, and returns nil. Scans
	// beyond the memory are an EventGap at the end. Unwanted ends the delivery.

	// Armed reports that the device samples now. at is the host's time of the first
	// scan, as exactly as the driver knows it.
	Armed func(at time.Time) error
	// Progress reports how many of the scans in the device's memory are delivered.
	Progress func(done, total uint64)
	// Unwanted is closed once the device's memory need not be read any more, as when
	// the monitor stops; nil where that cannot happen.
	Unwanted <-chan struct{}
}

// SinkOf returns the Sink of a receiver of blocks and events without further features.
func SinkOf(to interface {
	Block(b *measure.Block) error
	Event(e measure.Event) error
},
) Sink {
	return Sink{Block: to.Block, Event: to.Event}
}

// WhileWanted returns a context of ctx that also ends once the device's memory is unwanted. Cancel it to release it.
func (s Sink) WhileWanted(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.Unwanted:
			cancel()
		case <-own.Done():
		}
	}()
	return own, cancel
}

// Outlast returns a context that ends a while after ctx does, for the last commands to a
// device. Cancel it to release it.
func Outlast(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = backoff.Sleep(own, while)
		cancel()
	})
	return own, func() {
		stop()
		cancel()
	}
}

// Last gives the last command to a device a time of its own, also where ctx is over.
func Last(ctx context.Context, within time.Duration, command Step) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return command(own)
}

// Identity is the device's own answer, as far as it gives one.
type Identity = measure.Identity

// Instrument is one meter. FirstScan and FirstTick of its blocks count from
// the first scan after each Stream call; a stretch that the device lost is an
// EventGap before the block that follows it, whose FirstScan and FirstTick
// have moved on.
type Instrument interface {
	// Open connects, identifies the device and sets it up. It blocks until done
	// or ctx ends. It may be called again after Close.
	Open(ctx context.Context) error
	// Identity is known after Open; before, only Kind and Address are.
	Identity() Identity
	// Inputs are the device's channels with its own nominal or stored
	// calibration, and its timebase and response. Known after Open; drivers with
	// fixed inputs know them before, so that a bench file can be checked.
	Inputs() Inputs
	// Stream starts sampling and delivers until ctx ends (then it stops the
	// device and returns nil), the device is lost (an error that wraps
	// ErrDisconnected), or anything else fails.
	Stream(ctx context.Context, sink Sink) error
	// Close releases the device. It is safe to call twice.
	Close() error
}

// Inputs are a device's channels with their timebase and response.
type Inputs struct {
	Timebase measure.Timebase
	Response measure.Response
	Channels []measure.Channel
}

// Sentinel errors, wrapped with the failed operation and its remedy. They are the
// transport's own, so that errors.Is finds them wherever they arose.
var (
	ErrDisconnected = transport.ErrDisconnected
	ErrIdentity     = transport.ErrIdentity
	ErrSilent       = transport.ErrSilent
)

// Gate returns an instrument of which all texts of the device – its identity, the names
// of its channels, and its answers in errors – are printable and at most
// 1 KiB. errors.Is and errors.As see the errors unchanged.
func Gate(i Instrument) Instrument { return gate{i} }

// gate implements Gate.
type gate struct{ Instrument }

// Driver returns the instrument behind a gate; one without a gate is returned as it is.
func Driver(i Instrument) Instrument {
	if g, ok := i.(gate); ok {
		return g.Instrument
	}
	return i
}

// excerpted is an error with a printable text of at most 1 KiB.
type excerpted struct{ error }

// Error is the wrapped error's text, cut and cleaned.
func (s excerpted) Error() string { return measure.Excerpt(s.error.Error()) }

// Unwrap keeps errors.Is and errors.As working.
func (s excerpted) Unwrap() error { return s.error }

// clean wraps an error whose text holds unprintable or too many characters.
func clean(err error) error {
	if err == nil || measure.Excerpt(err.Error()) == err.Error() {
		return err
	}
	return excerpted{err}
}

// Open implements Instrument.
func (g gate) Open(ctx context.Context) error { return clean(g.Instrument.Open(ctx)) }

// Stream implements Instrument.
func (g gate) Stream(ctx context.Context, sink Sink) error {
	return clean(g.Instrument.Stream(ctx, sink))
}

// Close implements Instrument.
func (g gate) Close() error { return clean(g.Instrument.Close()) }

// Identity implements Instrument; each field is an excerpt.
func (g gate) Identity() Identity {
	id := g.Instrument.Identity()
	for _, s := range []*string{&id.Kind, &id.Model, &id.Serial, &id.Firmware, &id.Address} {
		*s = measure.Excerpt(*s)
	}
	return id
}

// Inputs implements Instrument.
func (g gate) Inputs() Inputs {
	in := g.Instrument.Inputs()
	in.Channels = slices.Clone(in.Channels)
	for i := range in.Channels {
		in.Channels[i].Name = measure.Excerpt(in.Channels[i].Name)
	}
	return in
}

// VoltAmpere returns the channels of connectors that are each a voltage and a current:
// volt and ampere, renamed NAME.voltage and NAME.current, in turn.
func VoltAmpere(names []string, volt, ampere measure.Channel) (out []measure.Channel) {
	volt.Unit, ampere.Unit = measure.UnitVolt, measure.UnitAmpere
	for _, name := range names {
		volt.Name, ampere.Name = name+".voltage", name+".current"
		out = append(out, volt, ampere)
	}
	return out
}

// ClampRails returns a rail of each of the picked connectors of VoltAmpere, by index.
func ClampRails(names []string, picked []int, role func(name string) measure.Role) (rails []measure.Rail) {
	for _, c := range picked {
		rails = append(rails, measure.Rail{Name: names[c], Role: role(names[c]), Wiring: measure.WiringClamp, X: 2*c +
			1, Y: 2 * c})
	}
	return rails
}

// Within returns an error unless the value of an option lies from least to most; want describes that range.
func Within[T cmp.Ordered](option string, v, least, most T, want string) error {
	if v >= least && v <= most { // which a NaN does not
		return nil
	}
	return fmt.Errorf("%s %v: want %s", option, v, want)
}

// CheckSilence returns an error unless the option silence lies from 100 ms to 1 h.
func CheckSilence(d time.Duration) error {
	return Within("silence", d, 100*time.Millisecond, time.Hour, "100ms to 1h")
}

// NaturalRails returns the rails that the channels' names suggest. Only a bench file
// can reports whether a rail of the card is missing.
func NaturalRails(in Inputs) (rails []measure.Rail, missing []string) {
	return PairRails(in.Channels), nil
}

// PairRails makes the rails that the channels' names suggest: x.current with
// x.voltage is a clamp rail x, and a channel in watts is a power rail. A current
// without a voltage makes none: only a bench file can state the voltage to assume.
func PairRails(channels []measure.Channel) (rails []measure.Rail) {
	index := map[string]int{}
	for i, c := range channels {
		index[c.Name] = i
	}
	for i, c := range channels {
		if c.Unit == measure.UnitWatt {
			name := strings.TrimSuffix(c.Name, ".power")
			rails = append(rails, measure.Rail{Name: name, Role: RoleOf(name), Wiring: measure.WiringPower, X: i, Y: -1})
			continue
		}
		name, ok := strings.CutSuffix(c.Name, ".current")
		if !ok || c.Unit != measure.UnitAmpere {
			continue
		}
		if v, ok := index[name+".voltage"]; ok && channels[v].Unit == measure.UnitVolt {
			rails = append(rails, measure.Rail{Name: name, Role: RoleOf(name), Wiring: measure.WiringClamp, X: i, Y: v})
		}
	}
	return rails
}

// RoleOf guesses a rail's role from its name: gpu is the whole card, 3v3 or a
// slot's 12 V are the slot's, all else is a direct supply.
func RoleOf(name string) measure.Role {
	slot := strings.Contains(name, "slot") || strings.HasPrefix(name, "pcie_") || strings.HasPrefix(name, "peg")
	switch {
	case name == "gpu":
		return measure.RoleWholeGPU
	case strings.Contains(name, "3v3") || strings.Contains(name, "3_3v"):
		return measure.RolePCIe3V3
	case slot && strings.Contains(name, "12v"):
		return measure.RolePCIe12V
	}
	return measure.RolePSU
}

// Base is the skeleton of a driver: the address, the link, the identity and the
// inputs of one device, and the order of opening and closing. Drivers embed it and
// set Steps and Run. Its methods run on the goroutine that owns the instrument.
type Base struct {
	// ID is complete after Open; before, Kind and Address are set.
	ID measure.Identity
	// In are the inputs as far as they are known: before Open from the options,
	// after it from the device.
	In Inputs
	// Dial opens Conn. A driver without a transport.Conn leaves it nil, connects in
	// its first step of Connect, and disconnects in Release.
	Dial func(context.Context) (transport.Conn, error)
	// Conn is the open link; nil while the device is closed.
	Conn transport.Conn
	// Release, where set, runs once for each Open, before Conn is closed, also where
	// a step of Connect failed: it restores the settings that the driver changed.
	Release func() error
	// Steps open the device, in order, once Dial has.
	Steps []Step
	// Run is one Stream call of the open device.
	Run func(context.Context, Sink) error
	// Now is the host's clock.
	Now func() time.Time

	open bool
}

// Step is a part of opening a device.
type Step = func(context.Context) error

// Init checks the options and the address of a device behind a transport, and sets what follows from them: ID,
// Now, Dial, and In where its inputs are known before it is opened. Errors begin with the kind and wrap
// transport.ErrAddress where the address is at fault; the device is then of no use.
func Init[O interface{ Validate() error }](b *Base, kind, address string, o O, link transport.Options,
	inputs func(O) Inputs,
) error {
	err := o.Validate()
	if err == nil {
		_, err = transport.ParseAddress(address)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	b.ID = measure.Identity{Kind: kind, Address: address}
	b.Now, b.Dial = time.Now, transport.Dialer(address, link)
	if inputs != nil {
		b.In = inputs(o)
	}
	return nil
}

// Identity implements Instrument.
func (b *Base) Identity() measure.Identity { return b.ID }

// Inputs implements Instrument.
func (b *Base) Inputs() Inputs { return b.In }

// Identify completes the identity with the device's own answers.
func (b *Base) Identify(model, serial, firmware string) {
	b.ID.Model, b.ID.Serial, b.ID.Firmware = model, serial, firmware
}

// Open implements Instrument: it dials and runs Steps; see Connect.
func (b *Base) Open(ctx context.Context) error { return b.Connect(ctx, b.Steps...) }

// Stream implements Instrument by Run, whose errors then name kind and address.
func (b *Base) Stream(ctx context.Context, sink Sink) error {
	if !b.open {
		return fmt.Errorf("%s: stream: not open", b.ID.Kind)
	}
	if err := b.Run(ctx, sink); err != nil {
		return fmt.Errorf("%s: stream from %s: %w", b.ID.Kind, b.ID.Address, err)
	}
	return nil
}

// UntilDone is a Run without the errors of calls that the end of ctx has ended.
func UntilDone(run func(context.Context, Sink) error) func(context.Context, Sink) error {
	return func(ctx context.Context, sink Sink) error {
		if err := run(ctx, sink); ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			return err
		}
		return nil
	}
}

// Listen reads from Conn until take has had enough of what came, or short ends, within which the step has to be
// done and which ctx outlasts. Its error is then ErrSilent with the text silent if nothing came, else ErrIdentity with
// strange of the number of bytes.
func (b *Base) Listen(ctx, short context.Context, step string, take func([]byte) (enough bool, err error),
	silent string, strange func(total int) string,
) error {
	buf := make([]byte, 4096)
	for total := 0; ; {
		n, err := b.Conn.Read(short, buf)
		switch {
		case err == nil:
		case ctx.Err() != nil || !transport.Ended(err):
			return fmt.Errorf("%s: %w", step, err)
		case total == 0:
			return fmt.Errorf("%w: %s", ErrSilent, silent)
		default:
			return fmt.Errorf("%w: %s", ErrIdentity, strange(total))
		}
		total += n
		if enough, err := take(buf[:n]); enough || err != nil {
			return err
		}
	}
}

// Connect dials and runs the steps in order. Where one fails, the device is closed and
// the error names kind, address and cause. A device that is open already is an error.
func (b *Base) Connect(ctx context.Context, steps ...Step) error {
	if b.open {
		return fmt.Errorf("%s: open %s: already open", b.ID.Kind, b.ID.Address)
	}
	if b.Dial != nil {
		conn, err := b.Dial(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", b.ID.Kind, err) // which names the address
		}
		b.Conn = conn
	}
	b.open = true
	for _, step := range steps {
		if err := step(ctx); err != nil {
			_ = b.Close()
			return fmt.Errorf("%s: open %s: %w", b.ID.Kind, b.ID.Address, err)
		}
	}
	return nil
}

// stopTime bounds the end of a stream: the caller's context is over by then.
const stopTime = 2 * time.Second

// Pump is a Run of a device that sends by itself. It starts the device, pumps
// until ctx ends or the line fails, delivers the rest, and stops the device within 2 s.
// After a failure of the line there is nothing to stop.
func (b *Base) Pump(ctx context.Context, start func(context.Context) error, p transport.Pump,
	stop func(context.Context) error,
) error {
	err := start(ctx)
	if err == nil {
		err = p.Run(ctx, b.Conn)
	}
	if ctx.Err() == nil || !transport.Ended(err) {
		return err
	}
	return cmp.Or(p.Finish(), Last(ctx, stopTime, stop))
}

// Write sends a command on Conn; its errors name the operation.
func (b *Base) Write(ctx context.Context, operation string, command []byte) error {
	if _, err := b.Conn.Write(ctx, command); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// Close releases the device. It is safe to call twice.
func (b *Base) Close() (err error) {
	if !b.open {
		return nil
	}
	b.open = false
	if b.Release != nil {
		err = b.Release()
	}
	if b.Conn != nil {
		err = cmp.Or(err, b.Conn.Close())
		b.Conn = nil
	}
	return err
}
