// Package machine reads what the host counts of its own energy: the zones of Linux's powercap
// (RAPL: packages, DRAM, the platform) and the power and energy sensors of hwmon (a Grace module's,
// a power supply's). They are readings beside the meter: their makers state no uncertainty.
package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// The prefixes of the methods that readings are stored under: energies in joules, counted since
// the first reading, and powers in watts.
const (
	EnergyPrefix = "machine.energy."
	PowerPrefix  = "machine.power."
)

// EnvRoot names the root of sysfs where it is not /sys, as in a container.
const EnvRoot = "WATTMARK_SYSFS"

// Sensor is one counter or sensor. It is not safe for concurrent use.
type Sensor struct {
	// Name is the zone with its parents, or the chip and its label: "package-0 dram".
	Name   string
	Energy bool // it counts joules; else it reads watts
	file   string
	wraps  uint64 // µJ after which the counter begins again, 0 for never
	last   uint64
	sum    uint64 // µJ since the first reading
	read   bool
}

// Method is the name of its readings.
func (s *Sensor) Method() string {
	if s.Energy {
		return EnergyPrefix + s.Name
	}
	return PowerPrefix + s.Name
}

// Read returns joules since the first Read, or watts.
func (s *Sensor) Read() (float64, error) {
	v, err := number(s.file)
	if err != nil {
		return 0, err
	}
	if !s.Energy {
		return float64(v) / 1e6, nil
	}
	if s.read {
		step := v - s.last
		if v < s.last {
			step = v + s.wraps - s.last
			if s.wraps == 0 || v+s.wraps < s.last {
				return 0, fmt.Errorf("%s: the counter went back from %d to %d µJ", s.file, s.last, v)
			}
		}
		s.sum += step
	}
	s.last, s.read = v, true
	return float64(s.sum) / 1e6, nil
}

func number(file string) (uint64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is no number: %w", file, strings.TrimSpace(string(b)), err)
	}
	return v, nil
}

func text(file string) string {
	b, _ := os.ReadFile(file)
	return measure.Printable(strings.TrimSpace(string(b)))
}

// Find returns the sensors below a root of sysfs ("" for /sys, or what WATTMARK_SYSFS names) that can
// be read, in order of their names, and for those that cannot why not: powercap's are root's alone
// since CVE-2020-8694. A machine without any is no error.
func Find(root string) (out []*Sensor, err error) {
	root = cmp.Or(root, os.Getenv(EnvRoot), "/sys")
	var errs []error
	for _, s := range append(zones(root), chips(root)...) {
		_, err := s.Read()
		switch {
		case errors.Is(err, fs.ErrPermission):
			errs = append(errs, fmt.Errorf("%w: run as root, or let your group read it (chgrp, chmod g+r)", err))
		case err != nil:
			errs = append(errs, err)
		case !slices.ContainsFunc(out, func(o *Sensor) bool { return o.Name == s.Name && o.Energy == s.Energy }):
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *Sensor) int { return strings.Compare(a.Method(), b.Method()) })
	return out, errors.Join(errs...)
}

// zones are those of powercap: intel-rapl:0 is package-0, intel-rapl:0:1 a part of it.
func zones(root string) (out []*Sensor) {
	dirs, _ := filepath.Glob(filepath.Join(root, "class/powercap/*:*"))
	slices.Sort(dirs)
	slices.Reverse(dirs) // intel-rapl-mmio, a second way to the same zones, comes last
	for _, dir := range dirs {
		file := filepath.Join(dir, "energy_uj")
		if _, err := os.Stat(file); err != nil {
			continue
		}
		name := text(filepath.Join(dir, "name"))
		if at := strings.LastIndexByte(dir, ':'); strings.Count(filepath.Base(dir), ":") > 1 {
			name = text(filepath.Join(dir[:at], "name")) + " " + name
		}
		s := &Sensor{Name: name, Energy: true, file: file}
		if most, err := number(filepath.Join(dir, "max_energy_range_uj")); err == nil {
			s.wraps = most + 1
		}
		out = append(out, s)
	}
	return out
}

// chips are those of hwmon: energyN_input counts µJ, powerN_average and powerN_input read µW.
func chips(root string) (out []*Sensor) {
	for _, kind := range []string{"energy*_input", "power*_average", "power*_input"} {
		files, _ := filepath.Glob(filepath.Join(root, "class/hwmon/hwmon*", kind))
		slices.Sort(files)
		for _, file := range files {
			dir, base := filepath.Split(file)
			number, _, _ := strings.Cut(base, "_")
			// ACPI's power meter has its label in another file.
			label := cmp.Or(text(dir+number+"_label"), text(dir+number+"_oem_info"), number)
			out = append(out, &Sensor{
				Name: text(path.Join(dir, "name")) + " " + label, Energy: strings.HasPrefix(number, "energy"), file: file,
			})
		}
	}
	return out
}

// Run reads the sensors, each every so long, until ctx ends, and hands the readings to sink in
// batches of about a second; the last come after the end. A sensor that fails is read no more: its
// error is returned with the others', and with sink's.
func Run(ctx context.Context, list []*Sensor, every time.Duration, sink func(context.Context, []store.Reading) error) error {
	list = slices.Clone(list)
	var errs []error
	var batch []store.Reading
	begun := time.Now()
	read := func(last bool) {
		list = slices.DeleteFunc(list, func(s *Sensor) bool {
			begin := time.Now()
			v, err := s.Read()
			if err != nil {
				errs = append(errs, err)
				return true
			}
			batch = append(batch, store.Reading{Method: s.Method(), At: begin.Add(time.Since(begin) / 2), Value: v})
			return false
		})
		if len(batch) > 0 && (last || time.Since(begun) > time.Second) {
			errs = append(errs, sink(context.WithoutCancel(ctx), batch))
			batch, begun = nil, time.Now()
		}
	}
	for range backoff.Rounds(ctx.Done(), every) {
		if read(false); len(list) == 0 {
			break
		}
	}
	read(true)
	return errors.Join(errs...)
}

// Use is the energy of one sensor over a span.
type Use struct {
	Name   string        `json:"name"`
	Energy measure.Joule `json:"energy_j"`
	// U is of the span's ends and of powers between readings (k = 2). What the sensor itself is off by its maker
	// does not state.
	U        measure.Joule `json:"energy_u_j"`
	Mean     measure.Watt  `json:"mean_w"`
	Readings int           `json:"readings"`
}

// Uses returns the energies of the sensors among a task's readings over a span of the host's clock; none for a sensor
// whose readings do not reach over it. The readings are by method and time.
func Uses(readings []store.Reading, from, to time.Time) (out []Use) {
	for len(readings) > 0 {
		method := readings[0].Method
		n := slices.IndexFunc(readings, func(r store.Reading) bool { return r.Method != method })
		if n < 0 {
			n = len(readings)
		}
		of := readings[:n]
		readings = readings[n:]
		energy := strings.HasPrefix(method, EnergyPrefix)
		if !energy && !strings.HasPrefix(method, PowerPrefix) {
			continue
		}
		if u, ok := use(of, energy, from, to); ok {
			u.Name = strings.TrimPrefix(strings.TrimPrefix(method, EnergyPrefix), PowerPrefix)
			out = append(out, u)
		}
	}
	return out
}

// use integrates the readings of one sensor. A counter is interpolated at both ends, where its energy lies anywhere
// between the two readings around the end; a power is taken as linear from reading to reading, and may be that of
// either one.
func use(r []store.Reading, energy bool, from, to time.Time) (u Use, ok bool) {
	length := to.Sub(from).Seconds()
	if length <= 0 || len(r) < 2 || r[0].At.After(from) || r[len(r)-1].At.Before(to) {
		return u, false
	}
	// before is the last reading at or before an instant.
	before := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(r, t, func(x store.Reading, t time.Time) int { return x.At.Compare(t) })
		if i == len(r) || r[i].At.After(t) {
			i--
		}
		return min(i, len(r)-2)
	}
	a, b := before(from), before(to)
	at := func(i int, t time.Time) float64 {
		x, y := r[i], r[i+1]
		if !y.At.After(x.At) {
			return y.Value
		}
		return x.Value + (y.Value-x.Value)*float64(t.Sub(x.At))/float64(y.At.Sub(x.At))
	}
	var sum, variance float64
	if energy {
		sum = at(b, to) - at(a, from)
		for _, i := range []int{a, b} {
			step := r[i+1].Value - r[i].Value
			variance += step * step / 12
		}
	} else {
		t, p := from, at(a, from)
		for i := a + 1; i <= b+1; i++ {
			next, q := r[i].At, r[i].Value
			if next.After(to) {
				next, q = to, at(b, to)
			}
			dt := next.Sub(t).Seconds()
			sum += (p + q) / 2 * dt
			variance += (q - p) * (q - p) * dt * dt / 12
			t, p = next, q
		}
	}
	return Use{
		Energy: measure.Joule(sum), U: measure.Joule(2 * math.Sqrt(variance)), Mean: measure.Watt(sum / length),
		Readings: b - a,
	}, !math.IsNaN(sum)
}
