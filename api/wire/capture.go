package wire

import (
	"wattmark/api/wattmarkv1"
	"wattmark/measure"
)

// Instrument converts an identity to its message.
func Instrument(id measure.Identity) *wattmarkv1.Instrument {
	return &wattmarkv1.Instrument{
		Kind: Text(id.Kind), Model: Text(id.Model), Serial: Text(id.Serial), Firmware: Text(id.Firmware), Address: Text(id.Address),
	}
}

// ParseInstrument converts an identity; an unset message is an unknown device.
func ParseInstrument(p *wattmarkv1.Instrument) (measure.Identity, error) {
	id := measure.Identity{
		Kind: p.GetKind(), Model: p.GetModel(), Serial: p.GetSerial(), Firmware: p.GetFirmware(), Address: p.GetAddress(),
	}
	return id, text("instrument", id.Kind, id.Model, id.Serial, id.Firmware, id.Address)
}

// Event converts an event to its message.
func Event(e measure.Event) *wattmarkv1.Event {
	return &wattmarkv1.Event{
		Kind: wattmarkv1.EventKind(e.Kind), FirstScan: e.FirstScan, Scans: e.Scans, Exact: e.Exact,
		Channel: toInt32(e.Channel), Detail: Text(e.Detail),
	}
}

// ParseEvent converts an event.
func ParseEvent(p *wattmarkv1.Event) (measure.Event, error) {
	switch {
	case p == nil:
		return measure.Event{}, refuse("an empty event")
	case p.Kind <= 0 || p.Kind > wattmarkv1.EventKind_EVENT_KIND_OTHERS:
		return measure.Event{}, refuse("event: kind %v is not known to this version", p.Kind)
	case p.Channel < -1 || p.Channel >= MaxChannels:
		return measure.Event{}, refuse("event: channel %d: want −1 for all, or an index below %d", p.Channel, MaxChannels)
	case p.FirstScan+p.Scans < p.FirstScan:
		return measure.Event{}, refuse("event: %d scans from scan %d on: past the largest number", p.Scans, p.FirstScan)
	}
	if err := text("event", p.Detail); err != nil {
		return measure.Event{}, err
	}
	return measure.Event{
		Kind: measure.EventKind(p.Kind), FirstScan: p.FirstScan, Scans: p.Scans, Exact: p.Exact,
		Channel: int(p.Channel), Detail: p.Detail,
	}, nil
}

// Window converts a span of device time to its message.
func Window(from, to measure.Seconds) *wattmarkv1.Window {
	return &wattmarkv1.Window{FromS: float64(from), ToS: float64(to)}
}

// ParseWindow converts a span of device time; ok is false when it is not set.
func ParseWindow(p *wattmarkv1.Window) (from, to measure.Seconds, ok bool, err error) {
	if p == nil {
		return 0, 0, false, nil
	}
	if err := finite("window", field{"from_s", p.FromS}, field{"to_s", p.ToS}); err != nil {
		return 0, 0, false, err
	}
	if p.ToS < p.FromS {
		return 0, 0, false, refuse("window: ends at %v s, before it begins at %v s", p.ToS, p.FromS)
	}
	return seconds(p.FromS), seconds(p.ToS), true, nil
}
