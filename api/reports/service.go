package reports

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/analysis/validate"
	"wattmark/api/wattmarkv1"
	"wattmark/store"
)

// Database is what the service needs of the task database. *store.DB is one.
type Database interface {
	Task(ctx context.Context, id store.TaskID) (store.Task, error)
	Methods(ctx context.Context, id store.TaskID) ([]store.MethodResult, error)
	Analyses(ctx context.Context, kind string) ([]store.Analysis, error)
	MethodErrors(ctx context.Context, limit int) (list []store.MethodError, tasks int, more bool, err error)
}

// Subject makes of a stored task what a validation judges. Its truth is read while
// the validation runs.
type Subject func(ctx context.Context, id store.TaskID) (validate.Subject, error)

// Config is what a service works with.
type Config struct {
	DB      Database
	Subject Subject
	// ValidationKind is the kind of analysis that wattmark validate keeps.
	ValidationKind string
	// MaxScans is the longest task that is judged for who asks here, in scans; 2^26
	// when zero: 55 minutes at 20 kHz.
	MaxScans uint64
}

// Service is ReportService.
type Service struct {
	wattmarkv1.UnimplementedReportServiceServer
	cfg   Config
	judge *judge
}

// New returns the service. Close ends what it works out.
func New(cfg Config) *Service {
	if cfg.MaxScans == 0 {
		cfg.MaxScans = 1 << 26
	}
	return &Service{cfg: cfg, judge: newJudge(&cfg)}
}

// Register adds the service to a server.
func (s *Service) Register(server *grpc.Server) { wattmarkv1.RegisterReportServiceServer(server, s) }

// Close gives up what is being worked out.
func (s *Service) Close() { s.judge.close() }

// toStatus turns an error into a status. A status stays as it is, nil stays nil.
func toStatus(operation string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, c := range []struct {
		sentinel error
		code     codes.Code
		hint     string
	}{
		{context.Canceled, codes.Canceled, ""},
		{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
		{store.ErrNotFound, codes.NotFound, "; ListTasks (wattmark tasks) shows which there are"},
		{store.ErrBusy, codes.Unavailable, "; try again"},
		{store.ErrCorrupt, codes.DataLoss, "; read it again; if it stays, restore the file from a copy"},
		{store.ErrIO, codes.Internal, "; look at the disk of the machine that holds the database"},
		{errBusy, codes.ResourceExhausted, "; try again"},
		{errStopped, codes.Unavailable, ""},
		{validate.ErrSubject, codes.FailedPrecondition, ""},
		{errUnfit, codes.FailedPrecondition, ""},
	} {
		if errors.Is(err, c.sentinel) {
			return status.Errorf(c.code, "%s: %v%s", operation, err, c.hint)
		}
	}
	return status.Errorf(codes.Internal, "%s: %v", operation, err)
}
