package nidaqmx

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"wattmark/monitor/instrument"
)

// Codes of the driver.
const (
	notYetAvailable    = -200284 // told beside data, never as an error
	noLongerAvailable  = -200279 // overwritten before it was read
	stoppedToProtect   = -200222 // sampling has stopped so that nothing is overwritten
	fifoOverflow       = -200361 // the device's own memory was full: sampling has stopped
	fifoOverflowOld    = -200010
	busTooSlow         = -200714
	notPerformedWhile  = -200479
	propertyWhileRuns  = -200557
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

// hints say what to do next.
var hints = map[int32]string{
	invalidDevice:      "there is no device of that name: see NI MAX, or nilsdev, on the server's machine, and set device",
	noSuchChannel:      "the device has no such input: see inputs[].ai",
	invalidValue:       "the device cannot do that: see inputs[].range and inputs[].terminal (differential pairs begin at ai0 to ai7 and ai16 to ai23)",
	rateTooHigh:        "lower rate",
	rateAndChannels:    "lower rate, or scan fewer inputs",
	convertRateTooHigh: "lower rate, or scan fewer inputs",
	reserved:           "another program, or a task that was left behind, uses the device: close it, or restart NI's server",
	taskExists:         "the driver has a task of that name: choose another session, or restart NI's server",
	deviceGone:         "is it plugged in and powered?",
	deviceAbsent:       "is it plugged in and powered?",
	deviceRemoved:      "is it plugged in and powered?",
}

// DriverError is what NI's driver said. It wraps instrument.ErrIdentity where the
// device is another, and instrument.ErrDisconnected where opening again may help.
type DriverError struct {
	// Code is negative.
	Code int32
	// Message is the driver's.
	Message string
	// Read is the samples a channel that a failed read had taken from the buffer.
	Read int64
}

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
	var e *DriverError
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// asleep is by how much a call must outlast its own time for this program to be the
// one that was stopped: timers of a program that runs are not that late.
const asleep = 2 * time.Second

// fault puts into words what a call failed with; late is by how much it outlasted its
// time.
func fault(ctx context.Context, err error, trailer metadata.MD, late time.Duration) error {
	st, _ := status.FromError(err)
	if code, ok := trailerInt(trailer, "ni-error"); ok && st.Code() == codes.Unknown {
		read, _ := trailerInt(trailer, "ni-samps-per-chan-read")
		return &DriverError{Code: int32(code), Message: st.Message(), Read: read}
	}
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded:
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if late > asleep {
			return fmt.Errorf("%w: this program was stopped, or kept waiting, for at least %v in the midst of a call to NI's server", instrument.ErrDisconnected, late.Round(time.Second))
		}
		return fmt.Errorf("%w: NI's server does not answer", instrument.ErrDisconnected)
	case codes.Unavailable:
		return fmt.Errorf("%w: %s (is NI's gRPC Device Server running, and does its configuration let other machines in?)", instrument.ErrDisconnected, st.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%w: no NI-DAQmx there: %w", instrument.ErrIdentity, err)
	}
	return err
}

func trailerInt(trailer metadata.MD, key string) (int64, bool) {
	values := trailer.Get(key)
	if len(values) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 32)
	return n, err == nil
}
