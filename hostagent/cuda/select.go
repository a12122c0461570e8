package cuda

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"wattmark/hostagent"
)

// The device attributes that are asked for (cuda.h, CUdevice_attribute).
const (
	attrSMs   = 16
	attrMajor = 75
	attrMinor = 76
)

// find returns the driver's handle of the GPU that a selector names: an index,
// a UUID (GPU-…), or a PCI bus id (0000:65:00.0); empty for the first.
func (d *driver) find(selector string) (int32, error) {
	n, err := d.count()
	if err != nil {
		return 0, err
	}
	switch {
	case hostagent.NamesMIG(selector):
		return 0, fmt.Errorf("%s: %w", selector, hostagent.ErrMIG)
	case strings.HasPrefix(strings.ToUpper(selector), "GPU-"):
		return d.findBy(n, selector, d.uuid)
	case strings.Contains(selector, ":"):
		return d.findBy(n, selector, d.pciBusID)
	}
	var index int64
	if selector != "" {
		if index, err = strconv.ParseInt(selector, 10, 32); err != nil {
			return 0, fmt.Errorf("%w: %q: want an index, a UUID (GPU-…) or a PCI bus id (0000:65:00.0)", ErrNoDevice, selector)
		}
	}
	if index < 0 || index >= int64(n) {
		return 0, fmt.Errorf("%w: index %d: the driver sees %d", ErrNoDevice, index, n)
	}
	var dev int32
	return dev, d.check("cuDeviceGet", d.DeviceGet(&dev, int32(index)))
}

// findBy returns the GPU whose property equals want.
func (d *driver) findBy(n int32, want string, property func(int32) (string, error)) (int32, error) {
	var have []string
	for i := range n {
		var dev int32
		if err := d.check("cuDeviceGet", d.DeviceGet(&dev, i)); err != nil {
			return 0, err
		}
		p, err := property(dev)
		if err != nil {
			return 0, err
		}
		if hostagent.SameID(p, want) {
			return dev, nil
		}
		have = append(have, p)
	}
	return 0, fmt.Errorf("%w: %s: the driver sees %s", ErrNoDevice, want, strings.Join(have, ", "))
}

func (d *driver) name(dev int32) (string, error) {
	b := make([]byte, 256)
	err := d.check("cuDeviceGetName", d.DeviceName(&b[0], int32(len(b)), dev))
	return text(b), err
}

func (d *driver) uuid(dev int32) (string, error) {
	u := new([16]byte)
	if err := d.check("cuDeviceGetUuid", d.DeviceUUID(u, dev)); err != nil {
		return "", err
	}
	h := hex.EncodeToString(u[:])
	return "GPU-" + strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"), nil
}

func (d *driver) pciBusID(dev int32) (string, error) {
	b := make([]byte, 64)
	err := d.check("cuDeviceGetPCIBusId", d.DevicePCIBusID(&b[0], int32(len(b)), dev))
	return strings.ToLower(text(b)), err
}

func (d *driver) attribute(dev, attribute int32) (int, error) {
	v := new(int32)
	err := d.check("cuDeviceGetAttribute", d.DeviceAttribute(v, attribute, dev))
	return int(*v), err
}
