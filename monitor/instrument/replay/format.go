package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

const (
	metaFile   = "recording.json"
	scansFile  = "scans.csv"
	eventsFile = "events.csv"

	formatName    = "wattmark-recording"
	formatVersion = 1
)

// ErrFormat: the folder holds no recording that can be read.
var ErrFormat = errors.New("not a recording")

// meta is recording.json. Units live in the names.
type meta struct {
	Format   string        `json:"format"`
	Version  int           `json:"version"`
	Identity identityJSON  `json:"identity"`
	Timebase timebaseJSON  `json:"timebase"`
	Response responseJSON  `json:"response"`
	Channels []channelJSON `json:"channels"`
}

type identityJSON struct {
	Kind     string `json:"kind"`
	Model    string `json:"model"`
	Serial   string `json:"serial"`
	Firmware string `json:"firmware"`
	Address  string `json:"address"`
}

type timebaseJSON struct {
	TickHz       float64 `json:"tick_hz"`
	UTickRel     float64 `json:"u_tick_rel"`
	TicksPerScan float64 `json:"ticks_per_scan"`
	Stamped      bool    `json:"stamped"`
}

type responseJSON struct {
	TauS    float64 `json:"tau_s"`
	WindowS float64 `json:"window_s"`
	UpdateS float64 `json:"update_s"`
}

// channelJSON holds one channel; gain, offset, u_offset and noise are in unit.
type channelJSON struct {
	Name     string        `json:"name"`
	Unit     measure.Unit  `json:"unit"`
	Gain     float64       `json:"gain"`
	Offset   float64       `json:"offset"`
	UGainRel float64       `json:"u_gain_rel"`
	UOffset  float64       `json:"u_offset"`
	Noise    float64       `json:"noise"`
	MinCount measure.Count `json:"min_count"`
	MaxCount measure.Count `json:"max_count"`
	SkewS    float64       `json:"skew_s"`
}

func metaOf(id instrument.Identity, in instrument.Inputs) meta {
	m := meta{
		Format: formatName, Version: formatVersion, Identity: identityJSON(id),
		Timebase: timebaseJSON{float64(in.Timebase.TickHz), in.Timebase.UTickHz, in.Timebase.TicksPerScan, in.Timebase.Stamped},
		Response: responseJSON{float64(in.Response.Tau), float64(in.Response.Window), float64(in.Response.Update)},
	}
	for _, c := range in.Channels {
		m.Channels = append(m.Channels, channelJSON{c.Name, c.Unit, c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise, c.MinCount, c.MaxCount, float64(c.Skew)})
	}
	return m
}

func (m meta) inputs() instrument.Inputs {
	in := instrument.Inputs{
		Timebase: measure.Timebase{TickHz: measure.Hertz(m.Timebase.TickHz), UTickHz: m.Timebase.UTickRel, TicksPerScan: m.Timebase.TicksPerScan, Stamped: m.Timebase.Stamped},
		Response: measure.Response{Tau: measure.Seconds(m.Response.TauS), Window: measure.Seconds(m.Response.WindowS), Update: measure.Seconds(m.Response.UpdateS)},
	}
	for _, c := range m.Channels {
		in.Channels = append(in.Channels, measure.Channel{
			Name: c.Name, Unit: c.Unit, Gain: c.Gain, Offset: c.Offset, UGain: c.UGainRel, UOffset: c.UOffset,
			Noise: c.Noise, MinCount: c.MinCount, MaxCount: c.MaxCount, Skew: measure.Seconds(c.SkewS),
		})
	}
	return in
}

func readMeta(dir string) (meta, error) {
	var m meta
	b, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrFormat, metaFile, err)
	}
	if m.Format != formatName || m.Version != formatVersion {
		return m, fmt.Errorf("%w: %s says format %q, version %d; this program reads %q, version %d", ErrFormat, metaFile, m.Format, m.Version, formatName, formatVersion)
	}
	in := m.inputs()
	if err := in.Timebase.Validate(); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrFormat, metaFile, err)
	}
	if len(in.Channels) == 0 {
		return m, fmt.Errorf("%w: %s: no channels", ErrFormat, metaFile)
	}
	for _, c := range in.Channels {
		if err := c.Validate(); err != nil {
			return m, fmt.Errorf("%w: %s: %w", ErrFormat, metaFile, err)
		}
	}
	return m, nil
}
