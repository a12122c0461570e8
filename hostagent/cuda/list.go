package cuda

import (
	"fmt"

	"wattmark/hostagent"
)

// List returns the GPUs that programs of this process see, in CUDA's order:
// CUDA_VISIBLE_DEVICES hides and reorders them. It makes no context. It fails
// with ErrNoDriver where there is no libcuda, and with ErrNoDevice where there
// is no GPU.
func List() ([]hostagent.Info, error) {
	drv, err := load(libraries...)
	if err != nil {
		return nil, fmt.Errorf("cuda: list: %w", err)
	}
	return drv.list()
}

func (d *driver) list() ([]hostagent.Info, error) {
	if err := d.start(); err != nil {
		return nil, fmt.Errorf("cuda: list: %w", err)
	}
	n, err := d.count()
	if err != nil {
		return nil, fmt.Errorf("cuda: list: %w", err)
	}
	out := make([]hostagent.Info, n)
	for i := range out {
		var dev int32
		if err := d.check("cuDeviceGet", d.DeviceGet(&dev, int32(i))); err != nil {
			return nil, fmt.Errorf("cuda: list: GPU %d: %w", i, err)
		}
		if out[i], err = d.identify(dev); err != nil {
			return nil, fmt.Errorf("cuda: list: GPU %d: %w", i, err)
		}
	}
	return out, nil
}

const seesNone = "the driver sees none; look at nvidia-smi and CUDA_VISIBLE_DEVICES"

// start makes the driver ready; it may be called again.
func (d *driver) start() error {
	r := d.Init(0)
	if r == errNoDevice {
		return fmt.Errorf("%w: %s", ErrNoDevice, seesNone)
	}
	return d.check("cuInit", r)
}

// count returns how many GPUs the driver sees: one at least.
func (d *driver) count() (int32, error) {
	n := new(int32)
	if r := d.DeviceCount(n); r != success && r != errNoDevice {
		return 0, d.check("cuDeviceGetCount", r)
	}
	if *n == 0 {
		return 0, fmt.Errorf("%w: %s", ErrNoDevice, seesNone)
	}
	return *n, nil
}

// identify tells what is known of a GPU without a context on it.
func (d *driver) identify(dev int32) (i hostagent.Info, err error) {
	if i.Name, err = d.name(dev); err != nil {
		return i, err
	}
	if i.UUID, err = d.uuid(dev); err != nil {
		return i, err
	}
	if i.PCIBusID, err = d.pciBusID(dev); err != nil {
		return i, err
	}
	v := new(int32)
	err = d.check("cuDriverGetVersion", d.DriverGetVersion(v))
	i.Driver = fmt.Sprintf("CUDA %d.%d", *v/1000, *v%1000/10)
	return i, err
}
