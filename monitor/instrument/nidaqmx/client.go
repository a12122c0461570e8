package nidaqmx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
	"github.com/wattmark/wattmark/monitor/transport"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	callTime = 5 * time.Second // of a call that only sets or asks
	lastTime = 2 * time.Second // of the last call to a device
	maxReply = 256 << 20       // bytes; gRPC's own limit of 4 MB is less than a read
)

// dialer makes a connection to host:port.
type dialer func(ctx context.Context, target string) (net.Conn, error)

// dialTCP is the dialer of a network.
func dialTCP(ctx context.Context, target string) (net.Conn, error) {
	d := net.Dialer{Timeout: callTime, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
	}}
	return d.DialContext(ctx, "tcp", target)
}

// connect makes the client; the first call dials. Its line is neither encrypted nor authenticated.
func (d *Device) connect(context.Context) (err error) {
	a, _ := transport.ParseAddress(d.ID.Address) // which New has checked
	if a.Scheme != "tcp" {
		return fmt.Errorf("%w %q: NI's gRPC Device Server is reached over TCP: tcp:host:31763", transport.ErrAddress,
			d.ID.Address)
	}
	d.server, err = grpc.NewClient("passthrough:///"+a.Target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(d.dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry())
	d.api = nipb.NewNiDAQmxClient(d.server)
	return err
}

// call makes one call within a time. An error of the driver is a *DriverError,
// also one that comes in a response's status; notYetAvailable is no
// error.
func call[Q any, R interface{ GetStatus() int32 }](ctx context.Context, within time.Duration,
	f func(context.Context, Q, ...grpc.CallOption) (R, error), request Q,
) (R, error) {
	own, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var trailer metadata.MD
	began := time.Now()
	r, err := f(own, request, grpc.Trailer(&trailer))
	if err != nil {
		return r, fault(ctx, err, trailer, time.Since(began)-within)
	}
	if s := r.GetStatus(); s < 0 && s != notYetAvailable {
		return r, &DriverError{Code: s}
	}
	return r, nil
}

// ask makes one call of a series, and keeps the series' first error under a name; behind an error it
// makes none.
func ask[Q any, R interface{ GetStatus() int32 }](ctx context.Context, failed *error, what string,
	f func(context.Context, Q, ...grpc.CallOption) (R, error), request Q,
) (r R) {
	if *failed != nil {
		return r
	}
	r, err := call(ctx, callTime, f, request)
	if err != nil {
		*failed = fmt.Errorf("%s: %w", what, err)
	}
	return r
}

// setRead sets where reads begin, or the treatment of unread samples.
func (d *Device) setRead(ctx context.Context, attribute nipb.ReadInt32Attribute, value int32) error {
	_, err := call(ctx, callTime, d.api.SetReadAttributeInt32, &nipb.SetReadAttributeInt32Request{
		Task: d.task, AttributeEnum: &nipb.SetReadAttributeInt32Request_Attribute{Attribute: attribute},
		ValueEnum: &nipb.SetReadAttributeInt32Request_ValueRaw{ValueRaw: value},
	})
	return err
}

// timing reads a number of the task's timing.
func (d *Device) timing(ctx context.Context, failed *error, what string, a nipb.TimingDoubleAttribute) float64 {
	return ask(ctx, failed, what, d.api.GetTimingAttributeDouble, &nipb.GetTimingAttributeDoubleRequest{
		Task: d.task, AttributeEnum: &nipb.GetTimingAttributeDoubleRequest_Attribute{Attribute: a},
	}).GetValue()
}

// Attributes and modes of the driver, by the names of NI-DAQmx.
const (
	productType         = nipb.DeviceStringAttribute_DEVICE_STRING_ATTRIBUTE_PRODUCT_TYPE
	serialNumber        = nipb.DeviceUInt32Attribute_DEVICE_U_INT32_ATTRIBUTE_SERIAL_NUM
	samplesAtOnce       = nipb.DeviceBoolAttribute_DEVICE_BOOL_ATTRIBUTE_AI_SIMULTANEOUS_SAMPLING_SUPPORTED
	newSession          = nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_INITIALIZE_NEW
	oldSession          = nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_ATTACH_TO_EXISTING
	currentReadPosition = nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_CURR_READ_POS
	scalingCoefficients = nipb.ChannelDoubleArrayAttribute_CHANNEL_DOUBLE_ARRAY_ATTRIBUTE_AI_DEV_SCALING_COEFF
	inputBufferSize     = nipb.BufferUInt32Attribute_BUFFER_U_INT32_ATTRIBUTE_INPUT_BUF_SIZE
	rawDataWidth        = nipb.ReadUInt32Attribute_READ_U_INT32_ATTRIBUTE_RAW_DATA_WIDTH
)

// Codes of the driver.
const (
	notYetAvailable    = -200284 // comes with data, never as an error
	noLongerAvailable  = -200279 // overwritten before it was read
	stoppedToProtect   = -200222 // sampling has stopped so that nothing is overwritten
	fifoOverflow       = -200361 // the device's own memory was full: sampling has stopped
	fifoOverflowOld    = -200010
	busTooSlow         = -200714
	invalidDevice      = -200220
	noSuchChannel      = -200170
	invalidValue       = -200077
	rateTooHigh        = -200332
	rateAndChannels    = -200081
	convertRateTooHigh = -200335
	taskExists         = -200089
	invalidTask        = -200088
	reserved           = -50103
	deviceGone         = -201003
	deviceAbsent       = -200324
	deviceRemoved      = -200045
)

// hints are the remedies.
var hints = map[int32]string{
	invalidDevice: "there is no device of that name: see NI MAX, or nilsdev, on the server's machine, and set device",
	noSuchChannel: "the device has no such input: see inputs[].ai",
	invalidValue: "the device cannot do that: see inputs[].range and inputs[].terminal (differential pairs " +
		"begin at ai0 to ai7 and ai16 to ai23)",
	rateTooHigh:        "lower rate",
	rateAndChannels:    "lower rate, or scan fewer inputs",
	convertRateTooHigh: "lower rate, or scan fewer inputs",
	reserved:           "another program, or a task that was left behind, uses the device: close it, or restart NI's server",
	taskExists:         "the driver has a task of that name: choose another session, or restart NI's server",
	deviceGone:         "is it plugged in and powered?",
	deviceAbsent:       "is it plugged in and powered?",
	deviceRemoved:      "is it plugged in and powered?",
}

// DriverError is an error of NI's driver. It wraps instrument.ErrIdentity where the
// device is another, and instrument.ErrDisconnected where opening again may help.
type DriverError struct {
	// Code is negative.
	Code int32
	// Message is the driver's.
	Message string
}

// Error cites code, message and remedy.
func (e *DriverError) Error() string {
	s := fmt.Sprintf("NI-DAQmx error %d", e.Code)
	if e.Message != "" {
		s += ": " + e.Message
	}
	if h := hints[e.Code]; h != "" {
		s += " (" + h + ")"
	}
	return s
}

// Unwrap returns the sentinel that the code stands for; nil for most.
func (e *DriverError) Unwrap() error {
	switch e.Code {
	case invalidDevice, noSuchChannel:
		return instrument.ErrIdentity
	case deviceGone, deviceAbsent, deviceRemoved, invalidTask:
		return instrument.ErrDisconnected
	}
	return nil
}

// driverCode is the driver's code within an error; 0 where it is not the driver's.
func driverCode(err error) int32 {
	if e, ok := errors.AsType[*DriverError](err); ok {
		return e.Code
	}
	return 0
}

// asleep is by how much a call must outlast its own time for this program to be the
// one that was stopped: timers of a program that runs are not that late.
const asleep = 2 * time.Second

// fault words the failure of a call; late is the time by which it outlasted its limit.
func fault(ctx context.Context, err error, trailer metadata.MD, late time.Duration) error {
	st, _ := status.FromError(err)
	if values := trailer.Get("ni-error"); len(values) > 0 && st.Code() == codes.Unknown {
		if code, bad := strconv.ParseInt(values[0], 10, 32); bad == nil {
			return &DriverError{Code: int32(code), Message: st.Message()}
		}
	}
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded:
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if late > asleep {
			return fmt.Errorf("%w: this program was stopped, or kept waiting, for at least %v in the midst of a "+
				"call to NI's server", instrument.ErrDisconnected, late.Round(time.Second))
		}
		return fmt.Errorf("%w: NI's server does not answer", instrument.ErrDisconnected)
	case codes.Unavailable:
		return fmt.Errorf("%w: %s (is NI's gRPC Device Server running, and does its configuration let other "+
			"machines in?)", instrument.ErrDisconnected, st.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%w: no NI-DAQmx there: %w", instrument.ErrIdentity, err)
	}
	return err
}
