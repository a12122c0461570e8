// Package simgrid writes and reads a GPU as a platform file of SimGrid
// (https://simgrid.org).
//
// The model is that of Boughzala et al. (2020), section V: the GPU is a host of
// one core whose speed is the flops of a round over T_r; rounds are executed one
// after another; the plugin host_energy adds up idle power and P_r.
package simgrid

import (
	_ "embed"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/measure"
)

// ErrPlatform: a platform file, or the numbers for one, cannot be used.
var ErrPlatform = errors.New("unusable platform")

// Platform is one GPU as a host of SimGrid.
type Platform struct {
	Zone, Host string
	Speed      float64      // flop/s
	Idle, Busy measure.Watt // wattage_per_state
	Off        measure.Watt // wattage_off
}

// Validate refuses values that SimGrid would misread or refuse.
func (p *Platform) Validate() error {
	watt := func(w measure.Watt) bool { return w >= 0 && !math.IsInf(float64(w), 0) }
	switch {
	case !nameRE().MatchString(p.Zone) || !nameRE().MatchString(p.Host):
		return fmt.Errorf("%w: zone %q, host %q: want letters, digits, dots, dashes and underscores", ErrPlatform,
			p.Zone, p.Host)
	case !(p.Speed > 0) || math.IsInf(p.Speed, 0):
		return fmt.Errorf("%w: a speed of %v flop/s: it must be positive and finite", ErrPlatform, p.Speed)
	case p.Speed < leastSpeed:
		return fmt.Errorf("%w: a speed of %v flop/s: SimGrid shares speeds out to 1e-5 flop/s: count work in "+
			"smaller units, so that the speed is %v at least", ErrPlatform, p.Speed, leastSpeed)
	case !watt(p.Idle) || !watt(p.Busy) || !watt(p.Off):
		return fmt.Errorf("%w: %v W idle, %v W busy, %v W off: they must be finite and not negative", ErrPlatform,
			float64(p.Idle), float64(p.Busy), float64(p.Off))
	}
	return nil
}

// leastSpeed is far above maxmin/precision, SimGrid's own grain.
const leastSpeed = 0.1

var nameRE = lazy.Regexp(`^[A-Za-z0-9_.-]{1,100}$`)

// WriteTo writes the platform file, in the form of the paper's Fig. 3. Numbers are
// written so that they read back to the same float.
func (p *Platform) WriteTo(w io.Writer) (int64, error) {
	if err := p.Validate(); err != nil {
		return 0, err
	}
	n, err := fmt.Fprintf(w, `<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <zone id="%s" routing="Full">
    <host id="%s" speed="%sf" core="1">
      <prop id="wattage_per_state" value="%s:%s"/>
      <prop id="wattage_off" value="%s"/>
    </host>
  </zone>
</platform>
`, p.Zone, p.Host, number(p.Speed), number(float64(p.Idle)), number(float64(p.Busy)), number(float64(p.Off)))
	return int64(n), err
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// file is the part of a platform file that a GPU needs.
type file struct {
	XMLName xml.Name `xml:"platform"`
	Version string   `xml:"version,attr"`
	Zones   []struct {
		ID    string `xml:"id,attr"`
		Hosts []struct {
			ID    string `xml:"id,attr"`
			Speed string `xml:"speed,attr"`
			Core  string `xml:"core,attr"`
			Props []struct {
				ID    string `xml:"id,attr"`
				Value string `xml:"value,attr"`
			} `xml:"prop"`
		} `xml:"host"`
	} `xml:"zone"`
}

// mostBytes bounds a platform file of one host.
const mostBytes = 1 << 20

// Parse reads a platform file with one zone and one host of one core.
func Parse(r io.Reader) (*Platform, error) {
	b, err := io.ReadAll(io.LimitReader(r, mostBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > mostBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrPlatform, mostBytes)
	}
	var f file
	if err := xml.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%w: not a platform file of SimGrid: %w", ErrPlatform, err)
	}
	if !strings.HasPrefix(f.Version, "4") {
		return nil, fmt.Errorf("%w: version %q: want 4 or 4.1", ErrPlatform, f.Version)
	}
	if len(f.Zones) != 1 || len(f.Zones[0].Hosts) != 1 {
		return nil, fmt.Errorf("%w: want one zone with one host, the GPU", ErrPlatform)
	}
	h := f.Zones[0].Hosts[0]
	if h.Core != "" && h.Core != "1" {
		return nil, fmt.Errorf("%w: host %q has core=%q: the GPU is a host of one core", ErrPlatform, h.ID, h.Core)
	}
	p := &Platform{Zone: f.Zones[0].ID, Host: h.ID}
	if p.Speed, err = parseSpeed(h.Speed); err != nil {
		return nil, err
	}
	states := ""
	for _, prop := range h.Props {
		switch prop.ID {
		case "wattage_per_state":
			states = prop.Value
		case "wattage_off":
			p.Off, err = parseWatt(prop.ID, prop.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.parseStates(states); err != nil {
		return nil, err
	}
	return p, p.Validate()
}

// parseStates reads "idle:busy" of one performance state.
func (p *Platform) parseStates(s string) (err error) {
	if s == "" {
		return fmt.Errorf("%w: host %q has no wattage_per_state: want idle:busy in watts", ErrPlatform, p.Host)
	}
	idle, busy, ok := strings.Cut(s, ":")
	if !ok || strings.ContainsAny(busy, ":,") {
		return fmt.Errorf("%w: wattage_per_state %q: want idle:busy of one state", ErrPlatform, s)
	}
	p.Idle, err = parseWatt("wattage_per_state", idle)
	if err == nil {
		p.Busy, err = parseWatt("wattage_per_state", busy)
	}
	return err
}

func parseWatt(what, s string) (measure.Watt, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s %q: want watts", ErrPlatform, what, s)
	}
	return measure.Watt(v), nil
}

var (
	speedRE = lazy.Regexp(`^([0-9.eE+-]+?)([kMGTPEZY]?)f(?:lops)?$`)
	scales  = map[string]float64{
		"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24,
	}
)

// parseSpeed reads "3413f" or "14.9Tf".
func parseSpeed(s string) (float64, error) {
	if m := speedRE().FindStringSubmatch(strings.TrimSpace(s)); m != nil {
		if v, err := strconv.ParseFloat(m[1], 64); err == nil {
			return v * scales[m[2]], nil
		}
	}
	return 0, fmt.Errorf("%w: speed %q: want flop/s with its unit, as 3413f or 14.9Tf", ErrPlatform, s)
}

// Fig3 is the platform of the paper's Fig. 3: vectorAdd with 1024 threads a block
// on a Tesla M2075, which has 14 multiprocessors.
func Fig3() *Platform {
	return &Platform{Zone: "AS0", Host: "GPU", Speed: 3413, Idle: 29.4, Busy: 153.65, Off: 10}
}

// Fig3Flops is the work of one of its rounds: 14 blocks of 1024 threads with a
// flop each. The paper does not print it; it gives T_r = 4.20041 s.
const Fig3Flops = 14 * 1024
