package api

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// Database is what the service needs of the task database. *store.DB is one.
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
	// Window is the window in use and Extent what is stored, in device time.
	Window(ctx context.Context, id store.TaskID) (from, to measure.Seconds, ok bool, err error)
	Extent(ctx context.Context, id store.TaskID) (from, to measure.Seconds, err error)
	Envelope(ctx context.Context, id store.TaskID, from, to measure.Seconds, columns int) (*store.Envelope, error)
	SpanEnergy(ctx context.Context, id store.TaskID, from, to measure.Seconds) (measure.Result, error)
	Timeline(ctx context.Context, id store.TaskID, from, to measure.Seconds, slices int) (store.Timeline, error)
	// Relabel changes tags and whether a task is pinned; notes are numbered from 1.
	Relabel(ctx context.Context, id store.TaskID, r store.Relabelling) error
	AddNote(ctx context.Context, id store.TaskID, at time.Time, text string) (number int, err error)
	RemoveNote(ctx context.Context, id store.TaskID, number int) error
	Traces(ctx context.Context, id store.TaskID, methods []string, from, to measure.Seconds, most int) (store.Traces, error)
	// NewWatch, Marks and Selected are what watching rests on.
	NewWatch(ctx context.Context) (*store.Watch, error)
	Marks(ctx context.Context, from store.TaskID, others []store.TaskID) ([]store.Mark, error)
	Selected(ctx context.Context, f store.Filter, ids []store.TaskID) ([]store.Brief, error)
}

// Service is TaskService over a database. Between calls it keeps what those who
// watch have in common, and nothing while nobody does.
type Service struct {
	wattmarkv1.UnimplementedTaskServiceServer
	db  Database
	hub hub
}

// Options change how the service works.
type Options struct {
	// Poll is how often the database is asked whether it changed while somebody
	// watches; 0 for four times a second.
	Poll time.Duration
}

// New returns the service over db.
func New(db Database) *Service { return NewWith(db, Options{}) }

// NewWith returns the service over db with options.
func NewWith(db Database, o Options) *Service {
	if o.Poll <= 0 {
		o.Poll = 250 * time.Millisecond
	}
	s := &Service{db: db}
	s.hub.begin(db, o)
	return s
}

// Close ends all watches, which would otherwise keep a server from stopping; no
// new ones are let in. Other calls go on.
func (s *Service) Close() { s.hub.close() }

// Register adds TaskService over db, health and reflection to a server, which
// is best made with wire.ServerOptions. Set the returned health server to
// NOT_SERVING (Shutdown) before the server is stopped.
func Register(server *grpc.Server, db Database) *health.Server {
	return New(db).Register(server)
}

// Register adds the service, health and reflection to a server, as Register does.
func (s *Service) Register(server *grpc.Server) *health.Server {
	wattmarkv1.RegisterTaskServiceServer(server, s)
	return wire.RegisterStandard(server)
}
