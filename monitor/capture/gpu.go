package capture

import (
	"fmt"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// gpuOf is the UUID of the GPU that the bench measures: what the bench file
// says, else that of the GPU whose own sensor the instrument is, which tells it
// as its serial number. Empty where nobody said.
func (o *Owner) gpuOf(id instrument.Identity) string {
	if o.cfg.GPU != "" {
		return o.cfg.GPU
	}
	return sensorOf(id)
}

// sensorOf is the UUID of the GPU whose own sensor an instrument is; empty for
// any other instrument.
func sensorOf(id instrument.Identity) string {
	gpu, err := measure.ParseGPUUUID(id.Serial)
	if err != nil {
		return ""
	}
	return gpu
}

// fitsGPU refuses the sensor of another GPU than the bench file names.
func (o *Owner) fitsGPU(id instrument.Identity) error {
	is := sensorOf(id)
	if is == "" || o.cfg.GPU == "" || measure.SameGPU(is, o.cfg.GPU) {
		return nil
	}
	return fmt.Errorf("%w: the bench measures %s, and this is the sensor of %s: correct gpu or address in the bench file",
		instrument.ErrIdentity, o.cfg.GPU, is)
}
