package bench

import "time"

// file is the YAML form of a bench. Pointers tell what is absent.
type file struct {
	Name        string           `yaml:"name"`
	GPU         string           `yaml:"gpu"`
	Instruments []instrumentYAML `yaml:"instruments"`
	Align       *alignYAML       `yaml:"align"`
	Rails       []railYAML       `yaml:"rails"`
	Missing     []string         `yaml:"missing"`
	Response    *responseYAML    `yaml:"response"`
}

type instrumentYAML struct {
	Name     string                 `yaml:"name"`
	Kind     string                 `yaml:"kind"`
	Port     string                 `yaml:"port"`
	Address  string                 `yaml:"address"`
	Delay    time.Duration          `yaml:"delay"`
	Options  any                    `yaml:"options"`
	Channels map[string]channelYAML `yaml:"channels"`
}

// alignYAML says how the times of several instruments are brought together.
type alignYAML struct {
	By          string        `yaml:"by"`
	U           time.Duration `yaml:"u"`
	Master      string        `yaml:"master"`
	SharedClock bool          `yaml:"shared_clock"`
}

// channelYAML replaces parts of a channel's calibration.
type channelYAML struct {
	Gain    *float64       `yaml:"gain"`
	Offset  *float64       `yaml:"offset"`
	UGain   *float64       `yaml:"u_gain"`
	UOffset *float64       `yaml:"u_offset"`
	Noise   *float64       `yaml:"noise"`
	Skew    *time.Duration `yaml:"skew"`
}

type railYAML struct {
	Name    string       `yaml:"name"`
	Role    string       `yaml:"role"`
	Shunt   *shuntYAML   `yaml:"shunt"`
	Clamp   *clampYAML   `yaml:"clamp"`
	Assumed *assumedYAML `yaml:"assumed"`
	Power   *powerYAML   `yaml:"power"`
}

type shuntYAML struct {
	Source string  `yaml:"source"`
	Ground string  `yaml:"ground"`
	Ohm    float64 `yaml:"ohm"`
	URel   float64 `yaml:"u_rel"`
}

type clampYAML struct {
	Current string `yaml:"current"`
	Voltage string `yaml:"voltage"`
}

type assumedYAML struct {
	Current string  `yaml:"current"`
	Volt    float64 `yaml:"volt"`
	UVolt   float64 `yaml:"u_volt"`
}

type powerYAML struct {
	Channel string `yaml:"channel"`
}

type responseYAML struct {
	Tau    time.Duration `yaml:"tau"`
	Window time.Duration `yaml:"window"`
	Update time.Duration `yaml:"update"`
}
