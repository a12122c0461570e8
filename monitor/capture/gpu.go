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

// fitsGPU refuses the sensor of another GPU than the one that the bench file names.
func fitsGPU(id instrument.Identity, gpu string) error {
	is := sensorOf(id)
	if is == "" || gpu == "" || measure.SameGPU(is, gpu) {
		return nil
	}
	return fmt.Errorf("%w: the bench measures %s, and this is the sensor of %s: correct gpu or address in the bench file",
		instrument.ErrIdentity, gpu, is)
}
