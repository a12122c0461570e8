package instrument

import (
	"context"
	"slices"

	"wattmark/measure"
)

// Gate returns an instrument of which all that the device said – its identity, the names
// of its channels, and what an error cites of its answers – is printable and at most
// 1 KiB. Errors are still what they were to errors.Is and errors.As.
func Gate(i Instrument) Instrument { return gate{i} }

type gate struct{ Instrument }

// Driver returns the instrument behind a gate; one without a gate is returned as it is.
func Driver(i Instrument) Instrument {
	if g, ok := i.(gate); ok {
		return g.Instrument
	}
	return i
}

// said is an error whose text is fit to be shown and sent.
type said struct{ error }

func (s said) Error() string { return measure.Excerpt(s.error.Error()) }
func (s said) Unwrap() error { return s.error }

func clean(err error) error {
	if err == nil || measure.Excerpt(err.Error()) == err.Error() {
		return err
	}
	return said{err}
}

func (g gate) Open(ctx context.Context) error { return clean(g.Instrument.Open(ctx)) }
func (g gate) Stream(ctx context.Context, sink Sink) error {
	return clean(g.Instrument.Stream(ctx, sink))
}
func (g gate) Close() error { return clean(g.Instrument.Close()) }

func (g gate) Identity() Identity {
	id := g.Instrument.Identity()
	for _, s := range []*string{&id.Kind, &id.Model, &id.Serial, &id.Firmware, &id.Address} {
		*s = measure.Excerpt(*s)
	}
	return id
}

func (g gate) Inputs() Inputs {
	in := g.Instrument.Inputs()
	odd := func(c measure.Channel) bool { return measure.Excerpt(c.Name) != c.Name }
	if slices.ContainsFunc(in.Channels, odd) {
		in.Channels = slices.Clone(in.Channels)
		for i := range in.Channels {
			in.Channels[i].Name = measure.Excerpt(in.Channels[i].Name)
		}
	}
	return in
}
