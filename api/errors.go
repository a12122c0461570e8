package api

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/auth"
	"wattmark/api/wire"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// errorCodes says which gRPC code a sentinel becomes, and what the caller can
// do about it. The first that matches counts.
var errorCodes = []struct {
	sentinel error
	code     codes.Code
	hint     string
}{
	{auth.ErrDenied, codes.PermissionDenied, ""},
	{auth.ErrUnknown, codes.Unauthenticated, ""},
	{context.Canceled, codes.Canceled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "allow more time, or ask for less"},
	{store.ErrNotFound, codes.NotFound, "ListTasks (wattmark tasks) shows which there are"},
	{store.ErrNoHeader, codes.FailedPrecondition, "wait until the capture has begun"},
	{store.ErrNoClock, codes.FailedPrecondition, "only a task with markers, or with the time that its capture began, has a timeline"},
	{store.ErrPattern, codes.InvalidArgument, ""},
	{store.ErrPinned, codes.FailedPrecondition, ""},
	{store.ErrConflict, codes.FailedPrecondition, ""},
	{store.ErrBusy, codes.Unavailable, "try again, or close the other program"},
	{store.ErrFull, codes.ResourceExhausted, "free some space and try again"},
	{store.ErrReadOnly, codes.FailedPrecondition, "open the database for writing"},
	{store.ErrCorrupt, codes.DataLoss, "read the task again; if it stays, restore the file from a copy"},
	{chunk.ErrCorrupt, codes.DataLoss, "read the task again; if it stays, restore the file from a copy"},
	{store.ErrIO, codes.Internal, "look at the disk of the machine that holds the database"},
	{wire.ErrMessage, codes.InvalidArgument, ""},
}

// toStatus turns an error into a status that says what was done, what went
// wrong and what to do next. A status stays as it is, nil stays nil.
func toStatus(operation string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, c := range errorCodes {
		if !errors.Is(err, c.sentinel) {
			continue
		}
		if c.hint == "" {
			return status.Errorf(c.code, "%s: %v", operation, err)
		}
		return status.Errorf(c.code, "%s: %v; %s", operation, err, c.hint)
	}
	return status.Errorf(codes.Internal, "%s: %v", operation, err)
}

// invalid refuses a request, naming the field in the message and, for programs,
// in a BadRequest detail.
func invalid(field, format string, a ...any) error {
	what := fmt.Sprintf(format, a...)
	s := status.Newf(codes.InvalidArgument, "%s: %s", field, what)
	detailed, err := s.WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: what}},
	})
	if err != nil { // a detail that does not fit must not hide the error itself
		return s.Err()
	}
	return detailed.Err()
}

// validID refuses what cannot be a task's identity.
func validID(id int64) (store.TaskID, error) {
	if id <= 0 {
		return 0, invalid("task_id", "%d: task identities begin at 1", id)
	}
	return store.TaskID(id), nil
}
