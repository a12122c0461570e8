package amdsmi

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"github.com/wattmark/wattmark/measure"
)

// Card is a GPU's package, whose one power sensor all its partitions share.
type Card struct {
	gpu.Info
	// Partitions is how many GPUs programs see in it: 1, or more where it is partitioned (DPX to CPX).
	Partitions int
	lib        *library
	h          handle
}

var _ gpu.PowerSensor = (*Card)(nil)

// Version returns the library's own version; empty where there is no library.
func Version() string {
	l, err := system()
	if err != nil {
		return ""
	}
	return l.name
}

// List returns the cards of the machine in the library's order. It fails with ErrNoLibrary where there
// is none.
func List() ([]Card, error) {
	l, err := system()
	if err != nil {
		return nil, fmt.Errorf("amdsmi: list: %w", err)
	}
	return l.list()
}

// Open finds a card by index, UUID or PCI bus id (0000:65:00.0), the first for an empty selector. A card
// without a power reading is an error.
func Open(selector string) (*Card, error) {
	l, err := system()
	if err != nil {
		return nil, fmt.Errorf("amdsmi: open: %w", err)
	}
	return l.open(selector)
}

// list makes a card of each socket that has GPUs. The partitions of one are processors of its socket, and
// report the same power: the first stands for all.
func (l *library) list() (out []Card, err error) {
	sockets, err := l.handles("amdsmi_get_socket_handles", l.Sockets)
	if err != nil {
		return nil, fmt.Errorf("amdsmi: list: %w", err)
	}
	for i, s := range sockets {
		all, err := l.handles("amdsmi_get_processor_handles",
			func(n *uint32, first *handle) status { return l.Processors(s, n, first) })
		if err != nil {
			return nil, fmt.Errorf("amdsmi: list: socket %d: %w", i, err)
		}
		c := Card{lib: l}
		for _, h := range all {
			kind := new(uint32)
			if l.Type(h, kind) != success || *kind != 1 { // AMDSMI_PROCESSOR_TYPE_AMD_GPU
				continue
			}
			if c.Partitions++; c.Partitions == 1 {
				c.h = h
			}
		}
		if c.Partitions == 0 {
			continue
		}
		if err := c.identify(); err != nil {
			return nil, fmt.Errorf("amdsmi: list: socket %d: %w", i, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// identify reads name, UUID, driver version and PCI address.
func (c *Card) identify() error {
	name, driver, uuid, n, bdf := new(text), new(text), make([]byte, 64), new(uint32), new(uint64)
	*n = 38 // AMDSMI_GPU_UUID_SIZE: the call refuses less
	for _, q := range []struct {
		call string
		s    status
	}{
		{"amdsmi_get_gpu_asic_info", c.lib.ASIC(c.h, name)},
		{"amdsmi_get_gpu_driver_info", c.lib.Driver(c.h, driver)},
		{"amdsmi_get_gpu_device_uuid", c.lib.UUID(c.h, n, &uuid[0])},
		{"amdsmi_get_gpu_device_bdf", c.lib.BDF(c.h, bdf)},
	} {
		if err := c.lib.check(q.call, q.s); err != nil {
			return err
		}
	}
	c.Info = gpu.Info{Name: dl.Text(name[:]), UUID: dl.Text(uuid), Driver: dl.Text(driver[:])}
	c.PCIBusID = fmt.Sprintf("%04x:%02x:%02x.%x", *bdf>>16, *bdf>>8&0xff, *bdf>>3&0x1f, *bdf&7)
	return nil
}

// open is Open on a library.
func (l *library) open(selector string) (*Card, error) {
	cards, err := l.list()
	if err != nil {
		return nil, err
	}
	selector = cmp.Or(selector, "0")
	index, err := strconv.Atoi(selector)
	for i, c := range cards {
		if err == nil && i != index || err != nil && !gpu.SameID(selector, c.UUID) && !gpu.SameID(selector, c.PCIBusID) {
			continue
		}
		r, err := c.Read()
		if err != nil {
			return nil, err
		}
		if math.IsNaN(float64(r.Instant)) && math.IsNaN(float64(r.Average)) {
			return nil, fmt.Errorf("amdsmi: open: %s (%s) reports no power: of a package of two dies, as the MI250's, "+
				"the first alone does", c.Name, c.PCIBusID)
		}
		return &c, nil
	}
	return nil, fmt.Errorf("amdsmi: open: %w: %q: want an index, a UUID or a PCI bus id (0000:65:00.0); AMD SMI lists %d",
		ErrNoDevice, selector, len(cards))
}

// Read reads the current and the average socket power, in whole watts. A card has one of them: MI300 and
// later the current, earlier ones the average. There is no third register: Usage is NaN.
func (c *Card) Read() (gpu.PowerReading, error) {
	nan := math.NaN()
	p := new(powerInfo)
	begin := time.Now()
	var s status
	call := "amdsmi_get_power_info"
	if c.lib.PowerOf != nil {
		call += "_v2"
		s = c.lib.PowerOf(c.h, 0, p)
	} else {
		s = c.lib.Power(c.h, p)
	}
	r := gpu.PowerReading{
		At: begin.Add(time.Since(begin) / 2), Usage: measure.Watt(nan), Energy: measure.Joule(nan),
		Instant: watts(p.Words[c.lib.at]), Average: watts(p.Words[c.lib.at+1]),
	}
	if err := c.lib.check(call, s); err != nil {
		return gpu.PowerReading{}, fmt.Errorf("amdsmi: read: %w", err)
	}
	return r, nil
}

// watts converts a power. All ones, of 16 or 32 bits, stand for none; so does the zero of a package's
// second die, which no powered GPU draws.
func watts(w uint32) measure.Watt {
	if w == 0 || w == math.MaxUint16 || w == math.MaxUint32 {
		return measure.Watt(math.NaN())
	}
	return measure.Watt(w)
}

// ReadEnergy returns the energy accumulator in joules, NaN where the card has none. Its unit is the
// resolution that comes with it in µJ: 15.3 so far, 0.27 % more than the 15.259 of the header's gpu_metrics.
func (c *Card) ReadEnergy() (measure.Joule, error) {
	nan := measure.Joule(math.NaN())
	n, unit, ns := new(uint64), new(float32), new(uint64)
	s := c.lib.Energy(c.h, n, unit, ns)
	if s == notSupported {
		return nan, nil
	}
	if err := c.lib.check("amdsmi_get_energy_count", s); err != nil {
		return nan, fmt.Errorf("amdsmi: read energy: %w", err)
	}
	if *n == 0 || *n == math.MaxUint64 {
		return nan, nil
	}
	return measure.Joule(float64(*n) * float64(*unit) / 1e6), nil
}

// Close does nothing: the library stays for other users.
func (*Card) Close() error { return nil }
