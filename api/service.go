// Package api is the task database's service over gRPC: TaskService of
// wattmark.v1 over a store, with health and reflection.
//
//	wattmarkv1/  the generated messages and stubs
//	wire/        conversions and the codec that moves chunks without copying
//	client/      a Go client with the types of measure
//
// Errors are mapped to gRPC codes in errors.go and nowhere else.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
)

// Database is the part of the task database that the service uses. *store.DB is one.
// Its methods are called from many goroutines at once; their errors wrap the
// store's sentinels.
type Database interface {
	// TaskResult is one task with the result of a number, 0 for the one in use.
	TaskResult(ctx context.Context, id store.TaskID, number int) (store.Task, error)
	List(ctx context.Context, q store.ListQuery) (store.Page, error)
	Totals(ctx context.Context, f store.Filter) (store.Totals, error)
	Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.AggregateRow, error)
	Users(ctx context.Context) ([]store.UserTasks, error)
	DeleteTasks(ctx context.Context, ids []store.TaskID, o store.DeleteOptions) error
	DeleteByName(ctx context.Context, name string, o store.DeleteOptions) (store.Deleted, error)
	DeleteByUser(ctx context.Context, user string, o store.DeleteOptions) (store.Deleted, error)
	Chunks(ctx context.Context, id store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error]
	ChunkAt(ctx context.Context, id store.TaskID, scan uint64) (no, firstScan uint64, err error)
	// Window is the window in use and Extent the stored span, in device time.
	Window(ctx context.Context, id store.TaskID) (from, to measure.Seconds, ok bool, err error)
	Extent(ctx context.Context, id store.TaskID) (from, to measure.Seconds, err error)
	Envelope(ctx context.Context, id store.TaskID, from, to measure.Seconds, columns int) (*store.Envelope, error)
	SpanEnergy(ctx context.Context, id store.TaskID, from, to measure.Seconds) (measure.Result, error)
	AtWall(ctx context.Context, id store.TaskID, card *measure.Result, e measure.Edges) (*wall.Result, error)
	Timeline(ctx context.Context, id store.TaskID, from, to measure.Seconds, slices int) (store.Timeline, error)
	// LaunchTables and NameEnergies are recorded kernels and a result's energy by name.
	LaunchTables(ctx context.Context, id store.TaskID) (store.LaunchTables, error)
	NameEnergies(ctx context.Context, id store.TaskID, result int) ([]store.NameEnergy, error)
	// Ranges is the energy by range of a task's newest analysis; nil for none.
	Ranges(ctx context.Context, t *store.Task) (*store.Ranges, error)
	// Relabel changes tags and whether a task is pinned; notes are numbered from 1.
	Relabel(ctx context.Context, id store.TaskID, r store.Relabelling) error
	AddNote(ctx context.Context, id store.TaskID, at time.Time, text string) (number int, err error)
	RemoveNote(ctx context.Context, id store.TaskID, number int) error
	Traces(ctx context.Context, id store.TaskID, methods []string, from, to measure.Seconds, most int) (store.Traces,
		error)
	// Extract and Accept carry whole tasks in a file; Room is whether there is room for more.
	Extract(ctx context.Context, path string, ids []store.TaskID) (*store.Imported, error)
	Accept(ctx context.Context, path string, user func(string) string) ([]store.CopiedTask, error)
	Room(ctx context.Context) error
	// NewWatch, Marks and Selected serve WatchTasks.
	NewWatch(ctx context.Context) (*store.Watch, error)
	Marks(ctx context.Context, from store.TaskID, others []store.TaskID) ([]store.Mark, error)
	Selected(ctx context.Context, f store.Filter, ids []store.TaskID) ([]store.Brief, error)
}

// Service is TaskService over a database. Between calls it keeps the common state
// of all watches, and nothing while there is none.
type Service struct {
	pb.UnimplementedTaskServiceServer
	db    Database
	works Works
	hub   hub
	open  openWindows
	files chan struct{} // has an element for each file on its way
}

// Options change how the service works.
type Options struct {
	// Poll is how often the database is asked whether it changed while somebody
	// watches; 0 for four times a second.
	Poll time.Duration
	Works
}

// New returns the service over db. Its watches end with ctx, or with Close.
func New(ctx context.Context, db Database, o Options) *Service {
	o.Poll = cmp.Or(max(o.Poll, 0), 250*time.Millisecond)
	s := &Service{
		db: db, works: o.Works, hub: hub{db: db, options: o, watchers: map[*watcher]bool{}}, files: make(chan struct{}, maxFiles),
	}
	s.hub.closed, s.hub.close = context.WithCancel(ctx)
	s.open.open, s.open.ended = map[uint64]openWindow{}, map[store.TaskID][]serving.Window{}
	s.open.add = func(id store.TaskID, w []serving.Window) error {
		return o.AddWindows(context.WithoutCancel(ctx), id, w) // also while the service ends
	}
	return s
}

// Close ends all watches, which would otherwise keep a server from stopping; no
// new ones are let in. It stores the windows that ended. Other calls go on.
func (s *Service) Close() {
	s.hub.close()
	_ = s.open.store() // it is logged
}

// Register adds the service, health and reflection to a server, which is best made with
// wire.ServerOptions. Set the returned health server to NOT_SERVING (Shutdown) before the
// server is stopped.
func (s *Service) Register(server *grpc.Server) *health.Server {
	pb.RegisterTaskServiceServer(server, s)
	return wire.RegisterStandard(server)
}

// mine returns the task of a request; it fails where the caller neither owns it nor has at least the role over.
func (s *Service) mine(ctx context.Context, asked int64, over auth.Role) (store.TaskID, error) {
	id, err := validID(asked)
	if err != nil || auth.May(ctx, over) == nil {
		return id, err
	}
	t, err := s.db.TaskResult(ctx, id, 0)
	if err == nil {
		err = auth.Own(ctx, fmt.Sprintf("task %d", id), t.User, over)
	}
	return id, err
}

// deleteNamed deletes the tasks of a name: all of them, or the caller's. One after
// another, as others may measure under that name meanwhile.
func (s *Service) deleteNamed(ctx context.Context, name string, o store.DeleteOptions) (out store.Deleted, err error) {
	if auth.May(ctx, auth.Admin) == nil {
		return s.db.DeleteByName(ctx, name, o)
	}
	if err := auth.May(ctx, auth.Measurer); err != nil {
		return out, err
	}
	who, _ := auth.From(ctx)
	q := store.ListQuery{Filter: store.Filter{User: who.Name}, Limit: 1000}
	for more := true; more; more = q.After != nil {
		page, err := s.db.List(ctx, q)
		if err != nil {
			return out, err
		}
		for _, t := range page.Tasks {
			if t.Name != name || t.User != who.Name {
				continue
			}
			switch err := s.db.DeleteTasks(ctx, []store.TaskID{t.ID}, o); {
			case errors.Is(err, store.ErrPinned):
				out.Pinned = append(out.Pinned, t.ID)
			case err != nil:
				return out, err
			default:
				out.Tasks++
			}
		}
		q.After = page.Next
	}
	if out.Tasks == 0 && len(out.Pinned) == 0 {
		return out, fmt.Errorf("%w: %s has no task of this name; those of others need the role %v", auth.ErrDenied,
			who.Name, auth.Admin)
	}
	return out, nil
}

// toStatus turns an error of an operation into a status by outcomes.
func toStatus(operation string, err error) error { return wire.Status(operation, err, outcomes) }

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

// validID refuses numbers that cannot be a task's identity.
func validID(id int64) (store.TaskID, error) {
	if id <= 0 {
		return 0, invalid("task_id", "%d: task identities begin at 1", id)
	}
	return store.TaskID(id), nil
}

// outcomes are the codes of the errors of calls. The first that matches counts.
var outcomes = []wire.Outcome{
	{auth.ErrDenied, codes.PermissionDenied, ""},
	{auth.ErrUnknown, codes.Unauthenticated, ""},
	{context.Canceled, codes.Canceled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "allow more time, or ask for less"},
	{store.ErrNotFound, codes.NotFound, "ListTasks (wattmark tasks) shows which there are"},
	{store.ErrNoHeader, codes.FailedPrecondition, "wait until the capture has begun"},
	{measure.ErrThinned, codes.FailedPrecondition, "name a span that begins and ends beside them"},
	{
		store.ErrNoClock, codes.FailedPrecondition,
		"only a task with markers, or with the time that its capture began, has a timeline",
	},
	{errClosing, codes.Unavailable, "watch again with the last resume_token"},
	{store.ErrPattern, codes.InvalidArgument, ""},
	{store.ErrPinned, codes.FailedPrecondition, ""},
	{store.ErrRunning, codes.FailedPrecondition, "wait for its end: ListTasks (wattmark tasks) shows the state"},
	{store.ErrNotDatabase, codes.InvalidArgument, ""},
	{store.ErrForeign, codes.InvalidArgument, ""},
	{store.ErrLabel, codes.InvalidArgument, ""},
	{store.ErrOlder, codes.FailedPrecondition, "the client's version of wattmark is older than the host's: update it"},
	{store.ErrNewer, codes.FailedPrecondition, "the host's version of wattmark is older than the client's: update it"},
	{store.ErrConflict, codes.FailedPrecondition, ""},
	{store.ErrBusy, codes.Unavailable, "try again, or close the other program"},
	{store.ErrFull, codes.ResourceExhausted, "free some space and try again"},
	{store.ErrReadOnly, codes.FailedPrecondition, "open the database for writing"},
	{store.ErrCorrupt, codes.DataLoss, "read the task again; if it stays, restore the file from a copy"},
	{chunk.ErrCorrupt, codes.DataLoss, "read the task again; if it stays, restore the file from a copy"},
	{store.ErrIO, codes.Internal, "look at the disk of the machine that holds the database"},
	{wire.ErrMessage, codes.InvalidArgument, ""},
	{ErrRequest, codes.InvalidArgument, ""},
}
