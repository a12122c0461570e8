package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/replay"
	"wattmark/store"
)

// hostSide is what the host knew of a task, beside a recording of its meter:
// enough to find the markers and the window again.
type hostSide struct {
	Task    string       `json:"task"`
	GPU     string       `json:"gpu"`
	Driver  string       `json:"driver"`
	Started time.Time    `json:"started"` // monitor's clock at device time zero
	Marker  markerJSON   `json:"marker"`
	Played  []playedJSON `json:"played"`
	Kernels []kernelJSON `json:"kernels"`
}

type markerJSON struct {
	Code    uint8   `json:"code"`
	ChipS   float64 `json:"chip_s"`
	Guard   int     `json:"guard_chips"`
	TagBits int     `json:"tag_bits"`
	Tag     uint32  `json:"tag"`
}

type playedJSON struct {
	Kind uint8     `json:"kind"` // 1 start, 2 stop
	Chip int       `json:"chip"`
	At   time.Time `json:"at"`
}

type kernelJSON struct {
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

const hostFile = "host.json"

func (m markerJSON) spec() marker.Spec {
	return marker.Spec{Code: marker.Code(m.Code), Chip: measure.Seconds(m.ChipS), Guard: m.Guard, TagBits: m.TagBits, Tag: m.Tag}
}

// exportRecording writes what the meter delivered as a recording that the
// replay instrument plays, with the host's side in host.json.
func exportRecording(ctx context.Context, dir string, db *store.DB, t *store.Task) error {
	if dir == "" || dir == "-" {
		return withCode(exitUsage, errors.New("a recording is a folder: name it with -o"))
	}
	return writeWhole(dir, func(part string) error {
		return errors.Join(recordInto(ctx, part, db, t), writeHostSide(ctx, part, db, t))
	})
}

func recordInto(ctx context.Context, dir string, db *store.DB, t *store.Task) (err error) {
	in := instrument.Inputs{Timebase: t.Setup.Timebase, Response: t.Setup.Response, Channels: t.Setup.Channels}
	w, err := replay.Create(dir, instrument.Identity(t.Instrument), in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, e := range t.Events {
		if err := w.Event(e); err != nil {
			return err
		}
	}
	for b, err := range blocks(ctx, db, t) {
		if err == nil {
			err = w.Block(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func writeHostSide(ctx context.Context, dir string, db *store.DB, t *store.Task) error {
	played, err := db.Played(ctx, t.ID)
	if err != nil {
		return err
	}
	kernels, err := db.Kernels(ctx, t.ID)
	if err != nil {
		return err
	}
	m := t.Marker
	h := hostSide{
		Task: t.Name, GPU: t.GPU, Driver: t.Driver, Started: t.Started.UTC(),
		Marker: markerJSON{uint8(m.Code), float64(m.Chip), m.Guard, m.TagBits, m.Tag},
	}
	for _, p := range played {
		h.Played = append(h.Played, playedJSON{uint8(p.Kind), p.Chip, p.At.UTC()})
	}
	for _, k := range kernels {
		h.Kernels = append(h.Kernels, kernelJSON{k.Name, k.Start.UTC(), k.End.UTC()})
	}
	b, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, hostFile), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}
