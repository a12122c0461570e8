package monitor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/auth"
	"wattmark/api/wire"
	"wattmark/measure/chunk"
	"wattmark/monitor/capture"
	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
)

// statuses maps errors to gRPC codes, the first that fits. docs/protocol.md
// shows the same table with what to do.
var statuses = []struct {
	err  error
	code codes.Code
}{
	{auth.ErrDenied, codes.PermissionDenied},
	{auth.ErrUnknown, codes.Unauthenticated},
	{capture.ErrBusy, codes.FailedPrecondition},
	{capture.ErrUnknown, codes.NotFound},
	{capture.ErrRequest, codes.InvalidArgument},
	{wire.ErrMessage, codes.InvalidArgument},
	{capture.ErrTransition, codes.FailedPrecondition},
	{capture.ErrNoStart, codes.FailedPrecondition},
	{capture.ErrPastEnd, codes.OutOfRange},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{capture.ErrRoom, codes.ResourceExhausted},
	{syscall.ENOSPC, codes.ResourceExhausted},
	{capture.ErrMended, codes.Unavailable},
	{spool.ErrTorn, codes.DataLoss},
	{chunk.ErrCorrupt, codes.DataLoss},
	{capture.ErrStopped, codes.Unavailable},
	{capture.ErrUnavailable, codes.Unavailable},
	{instrument.ErrDisconnected, codes.Unavailable},
	{instrument.ErrSilent, codes.Unavailable},
	{instrument.ErrIdentity, codes.Unavailable},
}

// toStatus turns an error into a gRPC status. A status, and nil, stay as they are.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	s := status.New(codeOf(err), strings.ToValidUTF8(err.Error(), "\uFFFD"))
	var busy *capture.BusyError
	if errors.As(err, &busy) {
		detailed, derr := s.WithDetails(&errdetails.PreconditionFailure{
			Violations: []*errdetails.PreconditionFailure_Violation{{
				Type: "BENCH_BUSY", Subject: busy.Holder,
				Description: fmt.Sprintf("capture %s since %s", busy.CaptureID, busy.Since.UTC().Format(time.RFC3339)),
			}},
		})
		if derr == nil {
			s = detailed
		}
	}
	return s.Err()
}

func codeOf(err error) codes.Code {
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.code
		}
	}
	return codes.Internal
}
