package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// retryAfter is the pause before a free bench in trouble is tried again.
const retryAfter = 5 * time.Second

// open opens the instrument and makes a setup of its inputs. An error becomes the bench's
// trouble until the instrument has answered. Errors wrap ErrUnavailable.
func (o *Owner) open(ctx context.Context) (setup measure.Setup, err error) {
	octx, cancel := context.WithTimeout(ctx, o.cfg.OpenTimeout)
	defer cancel()
	if err = o.cfg.Instrument.Open(octx); err == nil {
		_, calibrate := o.making()
		setup, err = o.learn(o.cfg.Instrument.Inputs(), calibrate)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		if ctx.Err() == nil { // an opening that was cut short is no trouble
			o.fail(err, false)
		}
		return setup, err
	}
	o.answered(false)
	return setup, nil
}

// close closes the instrument. An error is logged, unless it follows a failed opening.
func (o *Owner) close(opened bool) {
	if err := o.cfg.Instrument.Close(); err != nil && opened {
		o.cfg.Log.Warn("instrument did not close well", "bench", o.cfg.Bench.Name, "error", err)
	}
}

// fail sets the bench's trouble until the instrument has answered: by opening, or, where
// it is mute, by a sample.
func (o *Owner) fail(err error, mute bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := &o.device
	switch {
	case d.setup == nil && errors.Is(err, ErrMisfit):
		d.misfit = err // Run returns it
	case d.trouble == nil || d.trouble.Error() != err.Error():
		o.cfg.Log.Warn("instrument cannot be used now", "bench", o.cfg.Bench.Name, "error", err)
	}
	d.trouble, d.mute, d.failed = err, mute, o.cfg.Now()
}

// state returns the instrument's state as it is now.
func (o *Owner) state() device {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.device
}

// answered ends the bench's trouble: the instrument was opened, or has sampled.
func (o *Owner) answered(sampled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := &o.device
	if d.trouble == nil || d.mute && !sampled {
		return
	}
	if !errors.Is(d.trouble, errUnopened) {
		o.cfg.Log.Info("instrument can be used again", "bench", o.cfg.Bench.Name)
	}
	d.trouble, d.mute = nil, false
}

// streamed sets the bench's trouble from the end of a stream. An end that came from the
// sink, or with ctx, is none.
func (o *Owner) streamed(ctx context.Context, err error) {
	var ours *sinkError
	switch {
	case err == nil, errors.As(err, &ours):
	case errors.Is(err, errSealed), errors.Is(err, errDeferred), errors.Is(err, errSampled):
	case ctx.Err() != nil && !errors.Is(err, instrument.ErrDisconnected):
	default:
		o.fail(fmt.Errorf("%w: %w", ErrUnavailable, err), true)
	}
}

// probeRequest asks for a probe.
type probeRequest struct {
	at   time.Time
	done chan struct{} // closed once probed
}

// Probe opens the instrument once the bench is free, and logs trouble; concurrent calls
// share one probe. It returns true when that is done, false when ctx has ended before.
func (o *Owner) Probe(ctx context.Context) bool {
	q := probeRequest{o.cfg.Now(), make(chan struct{})}
	select {
	case o.probes <- q:
	case <-o.done:
		return true
	case <-ctx.Done():
		return false
	}
	select {
	case <-q.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// probe opens the instrument to learn its state. One that opened before and then sent
// nothing is also asked for a sample.
func (o *Owner) probe(ctx context.Context) {
	o.probed = o.cfg.Now()
	_, err := o.open(ctx)
	defer o.close(err == nil)
	if err == nil && o.state().mute {
		sctx, cancel := context.WithTimeout(ctx, o.cfg.ArmTimeout)
		defer cancel()
		o.streamed(ctx, o.cfg.Instrument.Stream(sctx, o.firstSign(errSampled)))
	}
}

// Ends of streams that are no captures.
var (
	errSampled  = errors.New("the instrument samples")
	errDeferred = errors.New("this instrument delivers only after a measurement: a free bench cannot be shown")
)

// firstSign returns a sink that ends the stream, with an error, at the first sign of
// samples.
func (o *Owner) firstSign(end error) instrument.Sink {
	sign := func() error {
		o.answered(true)
		return end
	}
	return instrument.Sink{
		Block: func(*measure.Block) error { return sign() }, Event: func(measure.Event) error { return nil },
		Armed: func(time.Time) error { return sign() }, Waiting: sign,
	}
}

// preview samples a free bench for viewers, on a goroutine that has the instrument until
// it ends: nothing is kept. A nil preview is none.
type preview struct {
	cancel  context.CancelFunc
	done    chan struct{}
	sampled atomic.Bool // samples came, and the preview goes on
}

// samples reports whether the preview has samples, and goes on.
func (p *preview) samples() bool { return p != nil && p.sampled.Load() }

// end stops the preview, waits until the instrument is free, and returns nil.
func (p *preview) end() *preview {
	if p != nil {
		p.cancel()
		<-p.done
	}
	return nil
}

// startPreview begins to sample a free bench where a viewer wants it.
func (o *Owner) startPreview(ctx context.Context) *preview {
	if !o.live.Wanted() || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &preview{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer cancel()
		defer p.sampled.Store(false)
		if err := o.samplePreview(ctx, p); err != nil && ctx.Err() == nil {
			o.live.Trouble(err.Error())
		}
	}()
	return p
}

// samplePreview opens the instrument and passes its blocks and events to viewers until ctx
// ends (nil). Nothing is kept.
func (o *Owner) samplePreview(ctx context.Context, p *preview) (err error) {
	ins := o.cfg.Instrument
	defer func() {
		if cerr := ins.Close(); err == nil {
			err = cerr
		}
	}()
	setup, err := o.open(ctx)
	if err != nil {
		return err
	}
	if err := o.live.Begin("", &setup); err != nil {
		return err
	}
	sink := o.firstSign(errDeferred) // ends an instrument whose samples come only after a measurement
	sink.Block = func(b *measure.Block) error {
		if !p.sampled.Swap(true) {
			o.answered(true)
		}
		o.live.Block(b)
		return nil
	}
	sink.Event = func(e measure.Event) error {
		o.live.Event(e)
		return nil
	}
	err = ins.Stream(ctx, sink)
	o.streamed(ctx, err)
	if err == nil && ctx.Err() == nil {
		err = errors.New("the instrument has no more samples")
	}
	return err
}

// learn stores the instrument's identity and the setup of its inputs. Only the goroutine
// that owns the instrument, or New, may call it. calibrate is nil before the instrument
// was opened: records are kept by serial number.
func (o *Owner) learn(in instrument.Inputs, calibrate Calibrate) (measure.Setup, error) {
	identity := o.cfg.Instrument.Identity()
	makeSetup, _ := o.making()
	nominal, setup, notes, err := calibrated(in, identity, o.cfg.GPU, makeSetup, calibrate)
	o.mu.Lock()
	defer o.mu.Unlock()
	d := &o.device
	d.identity = identity
	if err != nil {
		return setup, err
	}
	if calibrate != nil && (d.nominal == nil || !d.recordsLogged || !slices.Equal(d.setup.Records, setup.Records)) {
		d.recordsLogged = true
		o.cfg.Log.Info("calibration",
			"bench", o.cfg.Bench.Name, "id", setup.CalibrationID(), "records", strings.Join(setup.RecordIDs(), " "))
	}
	d.setup, d.nominal, d.made, d.inputs = &setup, &nominal, makeSetup, &in
	for _, n := range notes {
		if !slices.Contains(d.notes, n) { // logged once, not with every capture
			o.cfg.Log.Warn("calibration", "bench", o.cfg.Bench.Name, "note", n)
		}
	}
	d.notes = notes
	return setup, nil
}

// calibrated makes the setup of an instrument's inputs for the bench of a GPU, without
// and with its calibration records; notes are on the records, for the operator. calibrate
// may be nil. Errors of make wrap ErrMisfit; a sensor of another GPU gives
// instrument.ErrIdentity.
func calibrated(
	in instrument.Inputs, id instrument.Identity, gpu string, makeSetup MakeSetup, calibrate Calibrate,
) (nominal, setup measure.Setup, notes []string, err error) {
	if sensor := sensorOf(id); sensor != "" && gpu != "" && !measure.SameGPU(sensor, gpu) {
		return nominal, setup, nil, fmt.Errorf(
			"%w: the bench measures %s, and this is the sensor of %s: correct gpu or address in the bench file",
			instrument.ErrIdentity, gpu, sensor)
	}
	if nominal, err = makeSetup(in); err != nil {
		return nominal, nominal, nil, fmt.Errorf("%w: %w", ErrMisfit, err)
	}
	setup = nominal
	if calibrate != nil {
		setup, notes, err = calibrate(nominal, id)
	}
	if err != nil {
		return nominal, setup, nil, err
	}
	return nominal, setup, notes, setup.Validate()
}

// sensorOf returns the UUID of the GPU whose own sensor an instrument is, which has it as
// its serial number; empty for any other instrument.
func sensorOf(id instrument.Identity) string {
	gpu, _ := measure.ParseGPUUUID(id.Serial) // empty with an error
	return gpu
}

// gpuOf returns the UUID of the GPU that the bench measures: that of the bench file, else
// of the GPU whose own sensor the instrument is. Empty where unknown.
func (o *Owner) gpuOf(id instrument.Identity) string { return cmp.Or(o.cfg.GPU, sensorOf(id)) }
