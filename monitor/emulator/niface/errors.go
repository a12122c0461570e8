package niface

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Errors of the driver.
const (
	errNotYet          = -200284
	errOverwritten     = -200279
	errNegativeSample  = -200277
	errNeverAvailable  = -200278
	errAttribute       = -200233
	errArrayTooSmall   = -200229
	errDevice          = -200220
	errChannel         = -200170
	errInvalidTask     = -200088
	errInvalidChannel  = -200087
	errMinMax          = -200082
	errRateAndChannels = -200081
	errValue           = -200077
	errRate            = -200332
	errNotWhileRunning = -200479
	errNotRunning      = -200475
	errNoChannels      = -200478
	errDuplicate       = -200003
	errSamples         = -200096
	errFIFO            = -200361
	errDeviceGone      = -201003
	errReserved        = -50103
)

var texts = map[int32]string{
	errOverwritten:     "The samples that were to be read are no longer in the buffer.",
	errNegativeSample:  "The read would begin before the first sample.",
	errNeverAvailable:  "The samples that were to be read will never come.",
	errAttribute:       "The attribute is not valid here.",
	errArrayTooSmall:   "The array is too small for the samples.",
	errDevice:          "The device identifier is invalid.",
	errChannel:         "The physical channel does not exist.",
	errInvalidTask:     "The task is invalid or does not exist.",
	errInvalidChannel:  "The channel is not in the task.",
	errMinMax:          "The minimum is not less than the maximum.",
	errRateAndChannels: "The rate, the number of channels and the time of a conversion do not fit together.",
	errValue:           "The value is not supported for this property.",
	errRate:            "The sample rate is larger than the device can keep.",
	errNotWhileRunning: "This cannot be done while the task is running.",
	errNotRunning:      "This cannot be done while the task is not running.",
	errNoChannels:      "This cannot be done with no channels in the task.",
	errDuplicate:       "A channel of that name is in the task already.",
	errSamples:         "The number of samples to read must be -1, zero or more.",
	errFIFO:            "The memory of the device overflowed.",
	errDeviceGone:      "The device cannot be accessed.",
	errReserved:        "The resource is reserved by another task.",
}

// refuse ends a call as the server does where the driver fails: UNKNOWN, with the
// driver's error in a trailer.
func refuse(ctx context.Context, code int32) error {
	_ = grpc.SetTrailer(ctx, metadata.Pairs("ni-error", strconv.Itoa(int(code))))
	return status.Error(codes.Unknown, texts[code])
}

// tellRead puts into the trailer how many samples a channel a read has taken.
func tellRead(ctx context.Context, n int) {
	_ = grpc.SetTrailer(ctx, metadata.Pairs("ni-samps-per-chan-read", strconv.Itoa(n)))
}

// unset is what the server says of an enum with neither arm.
func unset(what string) error {
	return status.Errorf(codes.InvalidArgument, "The value for %s was not specified or out of range", what)
}
