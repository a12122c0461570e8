package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
)

// statuses maps errors to gRPC codes; the first that fits counts. docs/protocol.md has the
// same table with remedies.
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
	{capture.ErrQuota, codes.ResourceExhausted},
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

// toStatus converts an error to a gRPC status; a busy bench adds its holder as a detail.
// A status, and nil, stay as they are.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Internal
	for _, s := range slices.Backward(statuses) { // the first row that fits remains
		if errors.Is(err, s.err) {
			code = s.code
		}
	}
	s := status.New(code, strings.ToValidUTF8(err.Error(), "\uFFFD"))
	if busy, ok := errors.AsType[*capture.BusyError](err); ok {
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
