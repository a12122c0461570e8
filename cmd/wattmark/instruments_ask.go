package main

import (
	"context"
	"time"

	"wattmark/monitor/scpi"
)

// askedPort is an address that was asked for its identity.
type askedPort struct {
	Address  string   `json:"address"`
	Maker    string   `json:"maker,omitempty"`
	Model    string   `json:"model,omitempty"`
	Serial   string   `json:"serial,omitempty"`
	Firmware string   `json:"firmware,omitempty"`
	Kinds    []string `json:"kinds,omitempty"`
	Trouble  string   `json:"trouble,omitempty"`
}

// askTime is long enough for a scope that is busy, and short enough to wait for.
const askTime = 2 * time.Second

func askIdentity(ctx context.Context, address string) askedPort {
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
	return p
}
