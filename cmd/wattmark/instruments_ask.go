package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"wattmark/monitor/discover"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/registry"
	"wattmark/monitor/scpi"
	"wattmark/monitor/transport"
)

// askedPort is an address that was asked for its identity. Kinds are the drivers
// that take such a device.
type askedPort struct {
	Address  string   `json:"address"`
	Maker    string   `json:"maker,omitempty"`
	Model    string   `json:"model,omitempty"`
	Serial   string   `json:"serial,omitempty"`
	Firmware string   `json:"firmware,omitempty"`
	Kinds    []string `json:"kinds,omitempty"`
	Trouble  string   `json:"trouble,omitempty"`
}

const (
	// askTime is long enough for a scope that is busy, and short enough to wait for.
	askTime = 2 * time.Second
	// greetTime is how long a driver may take to find its meter at the end of a line.
	greetTime = 5 * time.Second
)

// greeted are the meters that say who they are, other than by *IDN?, in an order in
// which the question for one means nothing to those behind it.
var greeted = []string{"powersensor3", "pmd2", "pmd", "dataq"}

// askIdentity asks what is at an address who it is: a serial line by the greetings of
// the kinds that its USB number fits, or of all; and then, as anything else, by *IDN?.
func askIdentity(ctx context.Context, address string, ports []discover.Port) askedPort {
	a, err := transport.ParseAddress(address)
	if err != nil || a.Scheme != "serial" {
		return askSCPI(ctx, address)
	}
	var fits []string
	for _, p := range ports {
		if p.Address == a.Target {
			fits = p.Kinds
		}
	}
	var said []string
	for _, kind := range greeted {
		if len(fits) > 0 && !slices.Contains(fits, kind) {
			continue
		}
		id, err := greet(ctx, kind, address)
		if err == nil {
			return askedPort{Address: address, Model: id.Model, Serial: id.Serial, Firmware: id.Firmware, Kinds: []string{kind}}
		}
		said = append(said, firstLineOf(err))
		if !errors.Is(err, instrument.ErrIdentity) && !errors.Is(err, instrument.ErrSilent) { // it cannot be opened
			return askedPort{Address: address, Trouble: firstLineOf(err)}
		}
	}
	if len(fits) > 0 && len(said) > 0 {
		return askedPort{Address: address, Trouble: strings.Join(said, "; ")}
	}
	return askSCPI(ctx, address)
}

// greet asks by a kind's own driver who is there.
func greet(ctx context.Context, kind, address string) (id instrument.Identity, err error) {
	k, err := registry.Lookup(kind)
	if err != nil {
		return id, err
	}
	dev, err := k.New(registry.Env{}, address, k.Options())
	if err != nil {
		return id, err
	}
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	err = dev.Open(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", instrument.ErrSilent, err)
	}
	return dev.Identity(), errors.Join(err, dev.Close())
}

func askSCPI(ctx context.Context, address string) askedPort {
	p := askedPort{Address: address}
	var id scpi.Identity
	c := scpi.New(scpi.Config{Address: address, Timeout: askTime, Accept: func(i scpi.Identity) error { id = i; return nil }})
	err := c.Open(ctx)
	_ = c.Close()
	if err != nil {
		p.Trouble = err.Error()
		return p
	}
	p.Maker, p.Model, p.Serial, p.Firmware = id.Maker, id.Model, id.Serial, id.Firmware
	p.Kinds = registry.ForIdentity(id.Maker, id.Model)
	return p
}
