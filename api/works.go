package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// Works are operations on stored tasks that need more than the database: the service's program
// has them. Calls of what is nil are Unimplemented. They run in many goroutines at once.
type Works struct {
	// Trim gives a task a window in device time and computes its results anew. Errors wrap
	// measure.ErrWindow or measure.ErrNoData for a window without samples.
	Trim func(ctx context.Context, id store.TaskID, w measure.Window) error
	// Export writes a span of a task in one of the formats; a zero span is its usual one. Errors wrap
	// ErrRequest for a span without samples.
	Export  func(ctx context.Context, w io.Writer, t *store.Task, format string, span measure.Window) error
	Formats []string
	// Sensed returns the energy of the GPU's own sensor over a window in device time, and the
	// method of the readings; nil where it was not read all the time.
	Sensed func(ctx context.Context, t *store.Task, w measure.Window) (*measure.Joule, string, error)
}

// ErrRequest is an error of a work by what was asked for.
var ErrRequest = errors.New("cannot be done")

// errElsewhere is the answer to calls of works that this program does not have.
var errElsewhere = status.Error(codes.Unimplemented, "this service only reads: ask wattmark host")

// TrimTask sets a task's window by hand.
func (s *Service) TrimTask(ctx context.Context, req *pb.TrimTaskRequest) (*pb.TrimTaskResponse, error) {
	x, err := s.span(ctx, req, amount{})
	switch {
	case err != nil:
		return nil, err
	case s.works.Trim == nil:
		return nil, errElsewhere
	case req.GetFromS() == 0 && req.GetToS() == 0:
		return nil, invalid("to_s", "name the window: from_s and to_s in device time")
	}
	operation := fmt.Sprintf("trim task %d", x.id)
	if err := s.mine(ctx, x.id, auth.Operator); err != nil {
		return nil, toStatus(operation, err)
	}
	err = s.works.Trim(ctx, x.id, measure.Window{From: x.from, To: x.to})
	if errors.Is(err, measure.ErrWindow) || errors.Is(err, measure.ErrNoData) {
		return nil, invalid("from_s", "%v", err)
	}
	var t store.Task
	if err == nil {
		t, err = s.taskResult(ctx, x.id, 0)
	}
	if err != nil {
		return nil, toStatus(operation, err)
	}
	brief := t.Brief()
	m := taskMessage(&brief)
	m.Verdict, _ = judge(&t)
	return &pb.TrimTaskResponse{Task: m}, nil
}

// ReadExport streams a span of a task as a file.
func (s *Service) ReadExport(req *pb.ReadExportRequest, stream pb.TaskService_ReadExportServer) error {
	ctx := stream.Context()
	if s.works.Export == nil {
		return errElsewhere
	}
	if !slices.Contains(s.works.Formats, req.GetFormat()) {
		return invalid("format", "%q: want one of %q", req.GetFormat(), s.works.Formats)
	}
	x, err := s.span(ctx, req, amount{})
	if err != nil {
		return err
	}
	operation := fmt.Sprintf("export task %d", x.id)
	t, err := s.taskResult(ctx, x.id, 0)
	if err != nil {
		return toStatus(operation, err)
	}
	var w measure.Window
	if req.GetFromS() != 0 || req.GetToS() != 0 {
		w = measure.Window{From: x.from, To: x.to}
	}
	// Parts of a megabyte at most: the formats write a few hundred bytes at a time.
	out := bufio.NewWriterSize(parts{stream}, maxPart)
	if err := s.works.Export(ctx, out, &t, req.GetFormat(), w); err != nil {
		return toStatus(operation, err)
	}
	return toStatus(operation, out.Flush())
}

// parts sends what is written to it as parts of a file.
type parts struct {
	to pb.TaskService_ReadExportServer
}

// Write sends b. The message is encoded before it returns.
func (p parts) Write(b []byte) (int, error) {
	for c := range slices.Chunk(b, maxPart) {
		if err := p.to.Send(&pb.ReadExportResponse{Data: c}); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
