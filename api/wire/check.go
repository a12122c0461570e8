package wire

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"wattmark/measure"
)

// ErrMessage is wrapped by every error about a message that cannot be what it
// claims to be. gRPC services answer it with INVALID_ARGUMENT.
var ErrMessage = errors.New("bad message")

// Bounds on lists, so that a message cannot make its reader allocate without
// end. They are far above any bench.
const (
	// MaxChannels is the largest number of channels in a setup.
	MaxChannels = 256
	// MaxRails is the largest number of rails, and of missing rails, in a setup.
	MaxRails = 128
	// MaxEdges is the largest number of chip edges in a marker.
	MaxEdges = 4096
	// MaxText is the longest name or sentence, in bytes.
	MaxText = 4096
)

func refuse(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMessage, fmt.Sprintf(format, a...))
}

// field is a number with the name that its error gives.
type field struct {
	name string
	v    float64
}

// finite refuses a NaN or an infinity, naming the message and the field.
func finite(message string, fields ...field) error {
	for _, f := range fields {
		if math.IsNaN(f.v) || math.IsInf(f.v, 0) {
			return refuse("%s: %s is %v: must be a finite number", message, f.name, f.v)
		}
	}
	return nil
}

// text refuses strings that are too long to be a name or a sentence.
func text(message string, values ...string) error {
	for _, s := range values {
		if len(s) > MaxText {
			return refuse("%s: a text of %d bytes: at most %d", message, len(s), MaxText)
		}
	}
	return nil
}

// Text makes a string fit for a message: protobuf refuses to send bytes that
// are not UTF-8, and a name typed in another encoding, or read from a device
// with a worn memory, must not make everything around it unreadable, nor a
// terminal at the other end do as it says.
func Text(s string) string { return measure.Printable(s) }

// Time converts a time; the zero time becomes an unset field.
func Time(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// ParseTime converts a timestamp; an unset field becomes the zero time.
func ParseTime(name string, p *timestamppb.Timestamp) (time.Time, error) {
	if p == nil {
		return time.Time{}, nil
	}
	if err := p.CheckValid(); err != nil {
		return time.Time{}, refuse("%s: %v", name, err)
	}
	return p.AsTime(), nil
}

// toInt32 and toUint32 clamp small numbers (indices, chips, counts) that would
// be absurd long before the clamp changes them.
func toInt32(v int) int32 {
	return int32(max(math.MinInt32, min(math.MaxInt32, v)))
}

func toUint32(v int) uint32 {
	return uint32(max(0, min(math.MaxUint32, v)))
}

func seconds(v float64) measure.Seconds { return measure.Seconds(v) }

func quote(s string) string { return strconv.Quote(s) }
