package capture

import (
	"slices"
	"strings"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// calibrator is Config.Calibrate.
type calibrator = func(measure.Setup, instrument.Identity) (measure.Setup, []string, error)

// learn keeps what the instrument says of itself. Only the goroutine that owns
// the instrument, or New, may call it. calibrate is nil before the instrument was opened: whose records are meant is
// not known yet.
func (o *Owner) learn(in instrument.Inputs, calibrate calibrator) (measure.Setup, error) {
	identity := o.cfg.Instrument.Identity()
	maker := o.maker()
	nominal, setup, notes, err := o.calibrated(in, identity, maker, calibrate)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.identity = identity
	if o.setupErr = err; err != nil {
		return setup, err
	}
	if calibrate != nil && (o.nominal == nil || !o.told || !slices.Equal(o.setup.Records, setup.Records)) {
		o.told = true
		var ids []string
		for _, r := range setup.Records {
			ids = append(ids, r.ID)
		}
		o.cfg.Log.Info("calibration", "bench", o.cfg.Bench, "id", setup.CalibrationID(), "records", strings.Join(ids, " "))
	}
	o.setup, o.nominal, o.made = &setup, &nominal, maker
	for _, n := range notes {
		if !slices.Contains(o.notes, n) { // told once, not with every capture
			o.cfg.Log.Warn("calibration", "bench", o.cfg.Bench, "note", n)
		}
	}
	o.notes = notes
	return setup, nil
}

// calibrated makes the setup of what the instrument delivers, without and with
// the calibration records.
func (o *Owner) calibrated(in instrument.Inputs, id instrument.Identity, make maker, calibrate calibrator) (nominal, setup measure.Setup, notes []string, err error) {
	if err = o.fitsGPU(id); err != nil {
		return nominal, setup, nil, err
	}
	if nominal, err = make(in); err != nil {
		return nominal, nominal, nil, err
	}
	setup = nominal
	if calibrate != nil {
		if setup, notes, err = calibrate(nominal, id); err != nil {
			return nominal, setup, nil, err
		}
	}
	return nominal, setup, notes, setup.Validate()
}

// nominalChannels are the channels as the instrument and the bench file have
// them, and what made them so.
func (o *Owner) nominalChannels() ([]measure.Channel, maker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nominal.Channels, o.made
}
