package nidaqmx

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// maxRoom bounds the request of one call, in bytes.
const maxRoom = 256 << 20

// bytesCode is the size of a raw code.
const bytesCode = 2

// request is shared by all calls that read: the time-out is in seconds, −1 waits for ever.
type request interface {
	GetTask() *nipb.Session
	GetNumSampsPerChan() int32
	GetTimeout() float64
}

// take reads as the driver does: it finds out where the read begins, waits, and
// moves the position on. room is the codes that fit into the answer. It returns the scans, which are not
// converted yet, and a status: 0, or errNotYet where there are fewer scans than asked for.
func (f *Face) take(ctx context.Context, q request, room uint64) (r *read, n int, st int32, err error) {
	defer func() { _ = grpc.SetTrailer(ctx, metadata.Pairs("ni-samps-per-chan-read", strconv.Itoa(n))) }()
	if room > maxRoom {
		return nil, 0, 0, status.Errorf(codes.ResourceExhausted, "room for %d values: at most %d", room, maxRoom)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t, code := f.ready(ctx, q)
	if code != 0 {
		return nil, 0, 0, refuse(ctx, code)
	}
	f.stall(ctx, t)
	first := t.from()
	asked, code := t.asked(q, first, room)
	if code != 0 {
		return nil, 0, 0, refuse(ctx, code)
	}
	want := asked
	if f.faults.late && t.pos >= f.faults.lateAt {
		f.faults.late, want = false, asked/2
	}
	// What was overwritten is no longer waited for.
	if code = t.lost(first); code == 0 {
		f.await(ctx, t, uint64(first)+uint64(want), q.GetTimeout())
		code = t.lost(first)
	}
	switch {
	case ctx.Err() != nil:
		return nil, 0, 0, status.FromContextError(ctx.Err()).Err()
	case code != 0:
		return nil, 0, 0, refuse(ctx, code)
	}
	n = min(want, max(0, int(int64(t.taken())-first)))
	if n < asked {
		st = errNotYet
	}
	if uint64(first) > t.pos {
		f.lost += uint64(first) - t.pos
	}
	t.pos = uint64(first) + uint64(n) // reads go on behind the scans that are returned
	slow := f.clock.slow(t.begun + float64(first)*t.step)
	r = &read{
		f: f, chans: t.chans, first: uint64(first), at: t.at(uint64(first)), step: t.step * slow,
		rng: rand.New(rand.NewPCG(f.cfg.Seed, uint64(first))),
	}
	if !f.cfg.Simultaneous {
		r.skew = 1e9 * f.convertPeriod(t.rate, len(t.chans)) * slow
	}
	return r, n, st, nil
}

// stall holds a read up for a fault's time, once.
func (f *Face) stall(ctx context.Context, t *task) {
	if f.faults.stall > 0 && t.pos >= f.faults.stallAt {
		d := time.Duration(float64(f.faults.stall) * t.step)
		f.faults.stall = 0
		if f.pace.Free() {
			f.virtual += d
		} else {
			f.sleep(ctx, t, f.now()+d, time.Hour)
		}
	}
}

// ready finds the task and starts it where it does not run, as a read does.
func (f *Face) ready(ctx context.Context, q request) (*task, int32) {
	t := f.sessions[q.GetTask().GetName()]
	if t == nil {
		return nil, errInvalidTask
	}
	if code := f.injected(ctx); code != 0 {
		if code == errFIFO {
			t.fail(code)
		}
		return nil, code
	}
	if t.failed != 0 {
		return nil, t.failed
	}
	if !t.running {
		return t, t.begin()
	}
	return t, 0
}

// asked is how many scans a read is to bring.
func (t *task) asked(q request, first int64, room uint64) (int, int32) {
	n := int(q.GetNumSampsPerChan())
	switch {
	case n < -1:
		return 0, errSamples
	case first < 0:
		return 0, errNegativeSample
	case n == -1 && t.finite:
		n = max(0, int(int64(t.samps)-first))
	case n == -1:
		n = max(0, int(int64(t.taken())-first))
	}
	if uint64(n)*uint64(len(t.chans)) > room {
		return 0, errArrayTooSmall
	}
	if t.finite && first+int64(n) > int64(t.samps) {
		return 0, errNeverAvailable
	}
	return n, 0
}

// lost reports whether the samples at the begin of a read are gone; f.mu is held.
func (t *task) lost(first int64) int32 {
	if t.failed != 0 {
		return t.failed
	}
	if !t.running {
		return errNeverAvailable
	}
	taken := t.taken()
	switch {
	case t.finite || taken <= t.size():
	case nipb.ReadInt32Value(t.overwrite) != nipb.ReadInt32Value_READ_INT32_VALUE_OVERWRITE && taken-t.size() > t.pos:
		t.fail(errOverwritten)
		return errOverwritten
	case first < int64(taken-t.size()):
		return errOverwritten
	}
	return 0
}

// await waits until so many samples were taken, the time-out passes, the task ends, or ctx does.
func (f *Face) await(ctx context.Context, t *task, samples uint64, timeout float64) {
	if t.finite {
		samples = min(samples, t.samps)
	}
	if samples == 0 || t.taken() >= samples {
		return
	}
	due := t.at(samples - 1)
	if f.pace.Free() {
		f.virtual = max(f.virtual, due)
		return
	}
	limit := time.Duration(timeout * 1e9)
	if timeout < 0 {
		limit = time.Hour
	}
	f.sleep(ctx, t, due, limit)
}

// sleep waits for a board time; f.mu is released meanwhile.
func (f *Face) sleep(ctx context.Context, t *task, until, limit time.Duration) {
	ended := t.ended
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-f.pace.Wait(until - f.pace.Step()):
	case <-time.After(limit):
	case <-ended:
	case <-ctx.Done():
	}
}

// ReadRaw answers with codes, scan by scan.
func (f *Face) ReadRaw(ctx context.Context, q *nipb.ReadRawRequest) (*nipb.ReadRawResponse, error) {
	size := q.GetArraySizeInBytes()
	r, n, st, err := f.take(ctx, q, uint64(size/bytesCode))
	if err != nil {
		return nil, err
	}
	out := make([]byte, size)
	r.convert(n, func(scan, ch int, code int16) {
		binary.LittleEndian.PutUint16(out[bytesCode*(scan*len(r.chans)+ch):], uint16(code))
	})
	return &nipb.ReadRawResponse{Status: st, ReadArray: out, SampsRead: int32(n), NumBytesPerSamp: bytesCode}, nil
}

// filled reads for a call whose answer has a place for each channel of a scan, one scan or one channel after the other.
func filled[V any](ctx context.Context, f *Face, q interface {
	request
	GetArraySizeInSamps() uint32
	GetFillMode() nipb.FillMode
	GetFillModeRaw() int32
}, value func(c channel, code int16) V,
) (out []V, n int, st int32, err error) {
	r, n, st, err := f.take(ctx, q, uint64(q.GetArraySizeInSamps()))
	if err != nil {
		return nil, 0, 0, err
	}
	out = make([]V, q.GetArraySizeInSamps())
	byScan := q.GetFillMode()|nipb.FillMode(q.GetFillModeRaw()) == nipb.FillMode_FILL_MODE_GROUP_BY_SCAN
	r.convert(n, func(scan, ch int, code int16) {
		at := ch*n + scan
		if byScan {
			at = scan*len(r.chans) + ch
		}
		out[at] = value(r.chans[ch], code)
	})
	return out, n, st, nil
}

// ReadBinaryI16 answers with codes.
func (f *Face) ReadBinaryI16(ctx context.Context, q *nipb.ReadBinaryI16Request) (*nipb.ReadBinaryI16Response, error) {
	out, n, st, err := filled(ctx, f, q, func(_ channel, code int16) int32 { return int32(code) })
	if err != nil {
		return nil, err
	}
	return &nipb.ReadBinaryI16Response{Status: st, ReadArray: out, SampsPerChanRead: int32(n)}, nil
}

// ReadAnalogF64 answers with volts.
func (f *Face) ReadAnalogF64(ctx context.Context, q *nipb.ReadAnalogF64Request) (*nipb.ReadAnalogF64Response, error) {
	out, n, st, err := filled(ctx, f, q, func(c channel, code int16) float64 { return volts(c.poly, float64(code)) })
	if err != nil {
		return nil, err
	}
	return &nipb.ReadAnalogF64Response{Status: st, ReadArray: out, SampsPerChanRead: int32(n)}, nil
}

// ranges of a USB-6259 in volts, both ways.
var ranges = []float64{0.1, 0.2, 0.5, 1, 2, 5, 10}

const (
	beyond  = 1.05 // codes reach so far beyond the range
	half    = 1 << 15
	clock   = 20e6  // Hz, all rates divide it
	padding = 10e-6 // s, put between conversions where it fits
	chunk   = 4096  // scans converted at once
)

// volts evaluates a polynomial.
func volts(c []float64, code float64) (v float64) {
	for p := len(c) - 1; p >= 0; p-- {
		v = v*code + c[p]
	}
	return v
}

// codeOf is the code, not yet rounded, that a polynomial makes so many volts of.
func codeOf(c []float64, v float64) float64 {
	x := (v - c[0]) / c[1]
	for range 2 { // the higher terms are tiny
		x -= (volts(c, x) - v) / c[1]
	}
	return x
}

// scanPeriod and convertPeriod are the driver's choice for a rate with n inputs,
// in seconds: conversions follow each other as fast as the converter can plus a
// padding, or evenly where that does not fit.
func (f *Face) scanPeriod(rate float64) float64 { return max(1, math.Round(clock/rate)) / clock }

// convertPeriod is the time from one input's conversion to the next, in seconds.
func (f *Face) convertPeriod(rate float64, n int) float64 {
	if padded := 1/maxRate + padding; padded*float64(n) <= f.scanPeriod(rate) {
		return math.Round(padded*clock) / clock // as the device's clock counts it
	}
	return math.Floor(f.scanPeriod(rate)/float64(n)*clock) / clock
}

// read is a run of scans that are converted.
type read struct {
	f     *Face
	chans []channel
	first uint64 // sample
	at    time.Duration
	step  float64 // ns a scan
	skew  float64 // ns from one input to the next
	rng   *rand.Rand
	power []measure.Watt
}

// convert gives the codes of scans [0, n), scan by scan, to put.
func (r *read) convert(n int, put func(scan, ch int, code int16)) {
	if r.power == nil {
		r.power = make([]measure.Watt, chunk)
	}
	for from := 0; from < n; from += chunk {
		m := min(chunk, n-from)
		for k, c := range r.chans {
			at := r.at + time.Duration(math.Round(float64(from)*r.step+float64(k)*r.skew))
			r.f.board.Trace(r.power[:m], at, r.step)
			for i, p := range r.power[:m] {
				put(from+i, k, r.code(c, r.first+uint64(from+i), p))
			}
		}
	}
}

// code converts a channel when the board draws p.
func (r *read) code(c channel, sample uint64, p measure.Watt) int16 {
	if r.f.cfg.Codes != nil {
		return r.f.cfg.Codes(c.ai, sample)
	}
	return int16(meter.Code(codeOf(c.poly, r.f.ai.Volts(c.ai, p)), r.f.cfg.Noise, r.rng, -half, half-1))
}

// oscillator is the device's clock against the board's time: off by a rate that
// stays, and by one that comes and goes with the room's warmth.
type oscillator struct {
	rate   float64 // relative; positive is slow
	wander float64 // relative, at most
	period float64 // of the wander, in ns
}

// drift is by how much the device is behind after d ns of its own time because of the wander.
func (o oscillator) drift(d float64) float64 {
	if o.period == 0 {
		return 0
	}
	turn := 2 * math.Pi / o.period
	return o.wander / turn * (1 - math.Cos(turn*d))
}

// board returns the board's time, in ns, when the device has counted d ns.
func (o oscillator) board(d float64) float64 { return d*(1+o.rate) + o.drift(d) }

// device is the inverse of board.
func (o oscillator) device(t time.Duration) float64 {
	d := float64(t)
	for range 3 { // each time the error is less by the wander, of some 10⁻⁶
		d = (float64(t) - o.drift(d)) / (1 + o.rate)
	}
	return d
}

// slow is how much longer than stated a step is when the device has counted d ns.
func (o oscillator) slow(d float64) float64 {
	if o.period == 0 {
		return 1 + o.rate
	}
	return 1 + o.rate + o.wander*math.Sin(2*math.Pi/o.period*d)
}
