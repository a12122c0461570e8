package api

import (
	"context"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// Database is what the service needs of the task database. *store.DB is one.
// Its methods are called from many goroutines at once; their errors wrap the
// store's sentinels.
type Database interface {
	// TaskResult is one task with the result of a number, 0 for the one in use.
	TaskResult(ctx context.Context, id store.TaskID, number int) (store.Task, error)
	Tasks(ctx context.Context, q store.Query) ([]store.Task, error)
	Users(ctx context.Context) ([]store.UserTasks, error)
	DeleteTask(ctx context.Context, id store.TaskID) error
	DeleteByName(ctx context.Context, name string) (uint64, error)
	DeleteByUser(ctx context.Context, user string) (uint64, error)
	Chunks(ctx context.Context, id store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error]
}

// Service is TaskService over a database. It keeps nothing between calls.
type Service struct {
	wattmarkv1.UnimplementedTaskServiceServer
	db Database
}

// New returns the service over db.
func New(db Database) *Service { return &Service{db: db} }

// Register adds TaskService over db, health and reflection to a server, which
// is best made with wire.ServerOptions. Set the returned health server to
// NOT_SERVING (Shutdown) before the server is stopped.
func Register(server *grpc.Server, db Database) *health.Server {
	wattmarkv1.RegisterTaskServiceServer(server, New(db))
	return wire.RegisterStandard(server)
}
