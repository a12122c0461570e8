// Package nidaqmx is NI's gRPC Device Server with a USB-6259 behind it, in software: over real
// TCP, fed by the emulated board.
//
//	Face        the server: sessions by name, which outlive connections, and injected faults
//	task        inputs, clock and buffer of one session, with the driver's own checks
//	converter   one multiplexed ADC: each input has a polynomial and its turn within a scan
//	read.go     raw, integer and scaled reads, relative to any position, with waits and losses
//
// Errors are NI's: their codes come in the trailer of a failed call or in a reply's status.
package nidaqmx

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Config describes the device and its wiring: rail k of Rails is on ai 2k
// (voltage, through a divider by two) and ai 2k+1 (current, a clamp of 0.1 V/A).
type Config struct {
	Seed uint64
	// Product is its model; default USB-6259.
	Product string
	// Rails by name; nil for aux_12v_1 and the others behind it.
	Rails []string
	// Noise of a conversion in codes; default 0.9, negative for none.
	Noise float64
	// MaxSingle is the conversions a second with one input; default 1.25 MS/s.
	MaxSingle measure.Hertz
	// Simultaneous makes a device with a converter for each input.
	Simultaneous bool
	// Fixed makes a driver that does not let reads be moved, nor unread samples be
	// overwritten: a full buffer stops the device.
	Fixed bool
	// Draw draws the device's errors; the clock's rate then also comes and goes, as with a
	// room's warmth. Without Draw the device's own scale and clock are true.
	Draw bool
	// Width is the value of Read_RawDataWidth; zero for the bytes of a scan.
	Width uint32
	// Codes replaces the converter where it is not nil: the code of input ai by the sample's number since the start.
	Codes func(ai int, sample uint64) int16
}

// The device.
const (
	deviceName = "Dev1" // on the server
	inputs     = 32     // of a USB-6259, single-ended
	maxRate    = 1e6    // conversions a second over several inputs
)

// Face is one server with one device.
type Face struct {
	nipb.UnimplementedNiDAQmxServer

	board *board.Board
	pace  pace.Pace
	cfg   Config
	ai    *wiring.Inputs
	poly  map[float64][]float64 // scaling by range
	clock oscillator

	mu        sync.Mutex
	sessions  map[string]*task
	made      int           // sessions that the server has named itself
	virtual   time.Duration // board time where the pace is free
	unplugged bool
	faults    struct { // those to come; each happens once
		stallAt, stall uint64
		lateAt         uint64
		late           bool
		fail           map[string]int32
	}
	first time.Duration // board time of the newest start
	lost  uint64        // of the newest start
}

// New makes a server whose device reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	cfg.Product, cfg.MaxSingle = cmp.Or(cfg.Product, "USB-6259"), cmp.Or(cfg.MaxSingle, 1.25e6)
	meter.Default(&cfg.Noise, 0.9)
	spread := meter.Spread{UGainI: 1e-4, UGainV: 1e-4, UOffsetI: 5e-4, UOffsetV: 1e-3, UClock: 2.9e-5}
	f := &Face{board: b, pace: p, cfg: cfg, poly: map[float64][]float64{}, sessions: map[string]*task{}}
	f.faults.fail = map[string]int32{}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6e69))
	// From codes to volts: an offset of some tenths of a per mille, and higher terms that make some ten
	// ppm of the range.
	for _, r := range ranges {
		f.poly[r] = []float64{
			2e-4 * r * rng.NormFloat64(), beyond * r / half * (1 + 1e-3*rng.NormFloat64()),
			1e-5 * r / (half * half) * (2*rng.Float64() - 1), 3e-5 * r / (half * half * half) * (2*rng.Float64() - 1),
		}
	}
	var err error
	if f.ai, err = wiring.Connect(b, cfg.Rails, inputs, spread, cfg.Draw, rng); err != nil {
		return nil, fmt.Errorf("emulated %s: %w", f.cfg.Product, err)
	}
	f.clock.rate = meter.Drawing(rng, cfg.Draw)(spread.UClock)
	if cfg.Draw {
		f.clock.wander, f.clock.period = 3e-6, float64(20*time.Minute)
	}
	return f, nil
}

// now is the board's time; f.mu is held.
func (f *Face) now() time.Duration { return f.pace.Now(f.virtual) }

// locked calls g while no call of a client is served.
func (f *Face) locked(g func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g()
}

// StreamStart is the board's time of the first scan since the newest start.
func (f *Face) StreamStart() (at time.Duration) {
	f.locked(func() { at = f.first })
	return at
}

// Skipped is the scans since the newest start that reads have passed over.
func (f *Face) Skipped() (n uint64) {
	f.locked(func() { n = f.lost })
	return n
}

// Sessions is how many sessions the server holds.
func (f *Face) Sessions() (n int) {
	f.locked(func() { n = len(f.sessions) })
	return n
}

// Serve serves on a listener until ctx ends; it returns nil then. Sessions end
// with the server, as its process would have ended.
func (f *Face) Serve(ctx context.Context, l net.Listener) error {
	s := grpc.NewServer(grpc.MaxSendMsgSize(2*maxRoom), grpc.UnaryInterceptor(complete))
	nipb.RegisterNiDAQmxServer(s, f)
	defer context.AfterFunc(ctx, s.Stop)()
	err := s.Serve(l)
	s.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, t := range f.sessions {
		t.end()
		delete(f.sessions, name)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("emulated %s: %w", f.cfg.Product, err)
}

// injected is an error that a fault wants of the method that is called, once; f.mu is held.
func (f *Face) injected(ctx context.Context) int32 {
	name, _ := grpc.Method(ctx)
	method := path.Base(name)
	code := f.faults.fail[method]
	delete(f.faults.fail, method)
	return code
}

// CreateTask makes a session, or attaches to one. Sessions belong to the server:
// they outlive the connection that made them.
func (f *Face) CreateTask(ctx context.Context, q *nipb.CreateTaskRequest) (*nipb.CreateTaskResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if code := f.injected(ctx); code != 0 {
		return nil, refuse(ctx, code)
	}
	name := q.GetSessionName()
	_, there := f.sessions[name]
	switch q.GetInitializationBehavior() {
	case nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_INITIALIZE_NEW:
		if there {
			return nil, status.Errorf(codes.AlreadyExists, "a session of the name '%s' exists", name)
		}
	case nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_ATTACH_TO_EXISTING:
		if !there {
			return nil, status.Errorf(codes.FailedPrecondition, "there is no session of the name '%s'", name)
		}
	}
	if !there {
		if name == "" {
			f.made++
			name = fmt.Sprintf("unnamed-%d", f.made)
		}
		f.sessions[name] = &task{
			f: f, name: name, overwrite: int32(nipb.ReadInt32Value_READ_INT32_VALUE_DO_NOT_OVERWRITE),
			relative: int32(nipb.ReadInt32Value_READ_INT32_VALUE_CURR_READ_POS),
		}
	}
	return &nipb.CreateTaskResponse{Task: &nipb.Session{Name: name}, NewSessionInitialized: !there}, nil
}

// with runs a call's action on a task. A task that is not there and the driver's errors end the call.
func (f *Face) with(ctx context.Context, s *nipb.Session, do func(*task) int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, code := f.sessions[s.GetName()], errInvalidTask
	if t != nil {
		code = f.injected(ctx)
	}
	if code == 0 {
		code = do(t)
	}
	return refuse(ctx, code)
}

// complete refuses a request that lacks an enum, which has neither of its two arms.
func complete(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	m := q.(proto.Message).ProtoReflect()
	enums := m.Descriptor().Oneofs()
	for i := range enums.Len() {
		if enum := enums.Get(i); m.WhichOneof(enum) == nil {
			return nil, status.Errorf(codes.InvalidArgument, "The value for %s was not specified or out of range",
				strings.TrimSuffix(string(enum.Name()), "_enum"))
		}
	}
	return next(ctx, q)
}

// CreateAIVoltageChan adds inputs.
func (f *Face) CreateAIVoltageChan(ctx context.Context,
	q *nipb.CreateAIVoltageChanRequest,
) (*nipb.CreateAIVoltageChanResponse, error) {
	// Of the two arms one is zero.
	terminal, units := int32(q.GetTerminalConfig())+q.GetTerminalConfigRaw(), int32(q.GetUnits())+q.GetUnitsRaw()
	return &nipb.CreateAIVoltageChanResponse{}, f.with(ctx, q.GetTask(), func(t *task) int32 {
		if nipb.VoltageUnits(units) != nipb.VoltageUnits_VOLTAGE_UNITS_VOLTS || q.GetCustomScaleName() != "" {
			return errValue
		}
		return t.addAll(q.GetNameToAssignToChannel(), q.GetPhysicalChannel(), terminal, q.GetMinVal(), q.GetMaxVal())
	})
}

// CfgSampClkTiming sets the clock; a rate that the device cannot keep is refused later.
func (f *Face) CfgSampClkTiming(ctx context.Context,
	q *nipb.CfgSampClkTimingRequest,
) (*nipb.CfgSampClkTimingResponse, error) {
	edge, mode := int32(q.GetActiveEdge())+q.GetActiveEdgeRaw(), int32(q.GetSampleMode())+q.GetSampleModeRaw()
	return &nipb.CfgSampClkTimingResponse{}, f.with(ctx, q.GetTask(), func(t *task) int32 {
		finite := nipb.SampleMode(mode) == nipb.SampleMode_SAMPLE_MODE_FINITE
		switch {
		case t.running:
			return errNotWhileRunning
		case len(t.chans) == 0:
			return errNoChannels
		case nipb.Edge(edge) != nipb.Edge_EDGE_RISING || q.GetSource() != "" || !(q.GetRate() > 0),
			!finite && nipb.SampleMode(mode) != nipb.SampleMode_SAMPLE_MODE_CONTINUOUS:
			return errValue
		}
		t.rate, t.finite, t.samps = q.GetRate(), finite, q.GetSampsPerChan()
		return 0
	})
}

// CfgInputBuffer sets the buffer's size.
func (f *Face) CfgInputBuffer(ctx context.Context, q *nipb.CfgInputBufferRequest) (*nipb.CfgInputBufferResponse,
	error,
) {
	return &nipb.CfgInputBufferResponse{}, f.with(ctx, q.GetTask(), func(t *task) int32 {
		if t.running {
			return errNotWhileRunning
		}
		t.buffer = uint64(q.GetNumSampsPerChan())
		return 0
	})
}

// StartTask begins to sample.
func (f *Face) StartTask(ctx context.Context, q *nipb.StartTaskRequest) (*nipb.StartTaskResponse, error) {
	return &nipb.StartTaskResponse{}, f.with(ctx, q.GetTask(), (*task).begin)
}

// StopTask ends sampling. A task that had failed reports so once more.
func (f *Face) StopTask(ctx context.Context, q *nipb.StopTaskRequest) (*nipb.StopTaskResponse, error) {
	return &nipb.StopTaskResponse{}, f.with(ctx, q.GetTask(), func(t *task) int32 {
		code := t.failed
		t.end()
		t.failed = 0
		return code
	})
}

// ClearTask ends a task and its session.
func (f *Face) ClearTask(ctx context.Context, q *nipb.ClearTaskRequest) (*nipb.ClearTaskResponse, error) {
	return &nipb.ClearTaskResponse{}, f.with(ctx, q.GetTask(), func(t *task) int32 {
		t.end()
		delete(f.sessions, t.name)
		return 0
	})
}

// Stall makes the read that begins at a sample, or behind it, come so many scans
// late: the device samples on meanwhile.
func (f *Face) Stall(at, scans uint64) {
	f.locked(func() { f.faults.stallAt, f.faults.stall = at, scans })
}

// Late makes the read that begins at a sample, or behind it, run into its time-out with half of its samples.
func (f *Face) Late(at uint64) { f.locked(func() { f.faults.lateAt, f.faults.late = at, true }) }

// Fail makes the next call of a method fail with an error of the driver; one of those that stop the device does so.
func (f *Face) Fail(method string, code int32) { f.locked(func() { f.faults.fail[method] = code }) }

// Unplug takes the device off the server's machine, or puts it back.
func (f *Face) Unplug(off bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unplugged = off
	for _, t := range f.sessions {
		if off && t.running {
			t.fail(errDeviceGone)
		}
	}
}

// Errors of the driver, by NI's numbers and messages. All but errNotYet fail a call; that one comes in the
// status of a reply whose samples are fewer than were asked for.
var (
	errNotYet          = driverError(-200284, "Some or all of the samples that were asked for are not there yet.")
	errOverwritten     = driverError(-200279, "The samples that were to be read are no longer in the buffer.")
	errNegativeSample  = driverError(-200277, "The read would begin before the first sample.")
	errNeverAvailable  = driverError(-200278, "The samples that were to be read will never come.")
	errAttribute       = driverError(-200233, "The attribute is not valid here.")
	errArrayTooSmall   = driverError(-200229, "The array is too small for the samples.")
	errDevice          = driverError(-200220, "The device identifier is invalid.")
	errChannel         = driverError(-200170, "The physical channel does not exist.")
	errInvalidTask     = driverError(-200088, "The task is invalid or does not exist.")
	errInvalidChannel  = driverError(-200087, "The channel is not in the task.")
	errMinMax          = driverError(-200082, "The minimum is not less than the maximum.")
	errRateAndChannels = driverError(-200081,
		"The rate, the number of channels and the time of a conversion do not fit together.")
	errValue           = driverError(-200077, "The value is not supported for this property.")
	errRate            = driverError(-200332, "The sample rate is larger than the device can keep.")
	errNotWhileRunning = driverError(-200479, "This cannot be done while the task is running.")
	_                  = driverError(-200475, "This cannot be done while the task is not running.")
	errNoChannels      = driverError(-200478, "This cannot be done with no channels in the task.")
	errDuplicate       = driverError(-200003, "A channel of that name is in the task already.")
	errSamples         = driverError(-200096, "The number of samples to read must be -1, zero or more.")
	errFIFO            = driverError(-200361, "The memory of the device overflowed.")
	errDeviceGone      = driverError(-201003, "The device cannot be accessed.")
	errReserved        = driverError(-50103, "The resource is reserved by another task.")
)

// texts are the messages by number.
var texts = map[int32]string{}

// driverError keeps the message of an error, and returns its number.
func driverError(code int32, text string) int32 {
	texts[code] = text
	return code
}

// refuse ends a call as the server does where the driver fails: UNKNOWN, with the driver's error in a trailer. Code 0 is
// no error.
func refuse(ctx context.Context, code int32) error {
	if code == 0 {
		return nil
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs("ni-error", strconv.Itoa(int(code))))
	return status.Error(codes.Unknown, texts[code])
}
