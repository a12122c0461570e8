package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// calibrator is Config.Calibrate.
type calibrator = func(measure.Setup, instrument.Identity) (measure.Setup, []string, error)

// open opens the instrument and makes a setup of what it delivers. What goes wrong
// is the bench's trouble, until the instrument has answered.
func (o *Owner) open(ctx context.Context) (measure.Setup, error) {
	octx, cancel := context.WithTimeout(ctx, o.cfg.OpenTimeout)
	defer cancel()
	ins := o.cfg.Instrument
	err := ins.Open(octx)
	var setup measure.Setup
	if err == nil {
		setup, err = o.learn(ins.Inputs(), o.calibrator())
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		if ctx.Err() == nil { // an end in its midst says nothing of it
			o.fail(err, false)
		}
		return setup, err
	}
	o.answered(false)
	return setup, nil
}

// fail keeps why the instrument cannot be used until it has answered: by opening,
// or, where it is mute, by a sample.
func (o *Owner) fail(err error, mute bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.setup == nil && errors.Is(err, ErrMisfit):
		o.misfit = err // Run returns it
	case o.trouble == nil || o.trouble.Error() != err.Error():
		o.cfg.Log.Warn("instrument cannot be used now", "bench", o.cfg.Bench, "error", err)
	}
	o.trouble, o.mute = err, mute
}

// answered ends the bench's trouble: the instrument was opened, or has sampled.
func (o *Owner) answered(sampled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.trouble == nil || o.mute && !sampled {
		return
	}
	if !errors.Is(o.trouble, errUnopened) {
		o.cfg.Log.Info("instrument can be used again", "bench", o.cfg.Bench)
	}
	o.trouble, o.mute = nil, false
}

// streamed takes note of what a stream's end says of the instrument.
func (o *Owner) streamed(ctx context.Context, err error) {
	var ours *sinkError
	switch {
	case err == nil, errors.As(err, &ours), errors.Is(err, errSealed), errors.Is(err, errDeferred), errors.Is(err, errSampled):
	case ctx.Err() != nil && !errors.Is(err, instrument.ErrDisconnected):
	default:
		o.fail(fmt.Errorf("%w: %w", ErrUnavailable, err), true)
	}
}

// inTrouble tells whether the instrument cannot be used, and whether it never can.
func (o *Owner) inTrouble() (troubled bool, misfit error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.trouble != nil, o.misfit
}

// question asks whether the instrument answers.
type question struct {
	at     time.Time
	answer chan struct{} // closed when that is known
}

// Probe asks the instrument once the bench is free, and logs where it cannot be
// used; those who wait at the same time share one answer. It returns true when that
// is done, false when ctx has ended before.
func (o *Owner) Probe(ctx context.Context) bool {
	q := question{o.cfg.Now(), make(chan struct{})}
	select {
	case o.probes <- q:
		select {
		case <-q.answer:
			return true
		case <-ctx.Done():
		}
	case <-o.done:
		return true
	case <-ctx.Done():
	}
	return false
}

// probe opens the instrument only to learn what it is. One that opened before and
// then sent nothing is asked for a sample.
func (o *Owner) probe(ctx context.Context) {
	o.asked = o.cfg.Now()
	_, err := o.open(ctx)
	o.mu.Lock()
	mute := o.mute
	o.mu.Unlock()
	ins := o.cfg.Instrument
	if err == nil && mute {
		sctx, cancel := context.WithTimeout(ctx, o.cfg.ArmTimeout)
		o.streamed(ctx, ins.Stream(sctx, sampleSink{o}))
		cancel()
	}
	if cerr := ins.Close(); err == nil && cerr != nil {
		o.cfg.Log.Warn("instrument did not close well", "bench", o.cfg.Bench, "error", cerr)
	}
}

// errSampled ends a stream that was wanted for its first sample.
var errSampled = errors.New("the instrument samples")

// sampleSink takes a first sign of samples.
type sampleSink struct{ o *Owner }

var (
	_ instrument.DeferredSink  = sampleSink{}
	_ instrument.TriggeredSink = sampleSink{}
)

func (s sampleSink) Block(*measure.Block) error { return s.Waiting() }
func (s sampleSink) Event(measure.Event) error  { return nil }
func (s sampleSink) Armed(time.Time) error      { return s.Waiting() }
func (s sampleSink) Progress(_, _ uint64)       {}
func (s sampleSink) Unwanted() <-chan struct{}  { return nil }

func (s sampleSink) Waiting() error {
	s.o.answered(true)
	return errSampled
}

// learn keeps what the instrument says of itself. Only the goroutine that owns
// the instrument, or New, may call it. calibrate is nil before the instrument was opened: whose records are meant is
// not known yet.
func (o *Owner) learn(in instrument.Inputs, calibrate calibrator) (measure.Setup, error) {
	identity := o.cfg.Instrument.Identity()
	maker := o.maker()
	nominal, setup, notes, err := Calibrated(in, identity, o.cfg.GPU, maker, calibrate)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.identity = identity
	if err != nil {
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
	o.setup, o.nominal, o.made, o.inputs = &setup, &nominal, maker, &in
	for _, n := range notes {
		if !slices.Contains(o.notes, n) { // told once, not with every capture
			o.cfg.Log.Warn("calibration", "bench", o.cfg.Bench, "note", n)
		}
	}
	o.notes = notes
	return setup, nil
}

// Calibrated makes the setup of what an instrument delivers for a bench of a GPU, by
// make, without and with the calibration records that calibrate puts on it; nil puts
// none. notes are what an operator should know of the records. Errors of make wrap
// ErrMisfit.
func Calibrated(in instrument.Inputs, id instrument.Identity, gpu string, make maker, calibrate calibrator) (nominal, setup measure.Setup, notes []string, err error) {
	if err = fitsGPU(id, gpu); err != nil {
		return nominal, setup, nil, err
	}
	if nominal, err = make(in); err != nil {
		return nominal, nominal, nil, fmt.Errorf("%w: %w", ErrMisfit, err)
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
