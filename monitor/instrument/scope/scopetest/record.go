package scopetest

import (
	"context"
	"testing"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/insttest"
	"wattmark/monitor/instrument/scope"
)

// Record opens a scope, lets it record for a time, and returns what it delivered.
// armed, which may be nil, is called once it samples.
func Record(t *testing.T, f *scope.Family, address string, o scope.Options, d time.Duration, armed func()) (*insttest.Collector, instrument.Inputs, error) {
	t.Helper()
	dev, err := scope.New(scope.Config{Family: f, Address: address, Options: o, Poll: 10 * time.Millisecond})
	if err != nil {
		return nil, instrument.Inputs{}, err
	}
	defer func() { _ = dev.Close() }()
	if err := dev.Open(t.Context()); err != nil {
		return nil, instrument.Inputs{}, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := dev.Inputs()
	k := &taker{Collector: &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}, stop: cancel, after: d, onArmed: armed}
	err = dev.Stream(ctx, k)
	return k.Collector, in, err
}
