package main

import (
	"wattmark/measure"
	"wattmark/monitor"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/powersensor3"
)

func openBench(f benchFlags) (monitor.Bench, func() error, error) {
	d, err := powersensor3.New(f.port, powersensor3.Defaults())
	if err != nil {
		return monitor.Bench{}, nil, err
	}
	return monitor.Bench{Name: "ps3", Instrument: d, Setup: func(in instrument.Inputs) (measure.Setup, error) {
		rails, missing := powersensor3.NaturalRails(in)
		s := measure.Setup{Timebase: in.Timebase, Response: in.Response, Channels: in.Channels, Rails: rails, Missing: missing}
		return s, s.Validate()
	}}, func() error { return nil }, nil
}
