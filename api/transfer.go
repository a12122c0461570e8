package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/store"
)

// Bounds on the transfer of whole tasks.
const (
	maxFetched   = 1000        // tasks of one call
	maxFile      = 16 << 30    // bytes of a task database on its way
	maxPart      = 1 << 20     // bytes of one message that is sent
	maxFiles     = 4           // files at once; further calls wait
	storeStall   = time.Minute // for each maxPart of an upload
	perSample    = 4           // bytes of one channel's sample in a file, at most and about
	transferName = "tasks.db"
)

// place returns a path in a folder of its own for a file on its way, once there are fewer than
// maxFiles. free removes the folder.
func (s *Service) place(ctx context.Context) (path string, free func(), err error) {
	select {
	case s.files <- struct{}{}:
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
	dir, err := store.TempDir()
	if err != nil {
		<-s.files
		return "", nil, err
	}
	return filepath.Join(dir, transferName), func() {
		_ = os.RemoveAll(dir)
		<-s.files
	}, nil
}

// ReadTasks streams whole tasks as a task database.
func (s *Service) ReadTasks(req *pb.ReadTasksRequest, stream pb.TaskService_ReadTasksServer) error {
	const operation = "read tasks"
	ctx := stream.Context()
	ids, err := s.fetched(ctx, req.GetTaskIds())
	if err != nil {
		return toStatus(operation, err)
	}
	path, free, err := s.place(ctx)
	if err != nil {
		return toStatus(operation, err)
	}
	defer free()
	made, err := s.db.Extract(ctx, path, ids)
	if err != nil {
		return toStatus(operation, err)
	}
	if len(made.Running) > 0 {
		return toStatus(fmt.Sprintf("read task %d", made.Running[0]), store.ErrRunning)
	}
	f, err := os.Open(path)
	if err != nil {
		return toStatus(operation, err)
	}
	defer f.Close()
	for part := make([]byte, maxPart); ; {
		n, err := io.ReadFull(f, part)
		if n == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return toStatus(operation, err)
		}
		if err := stream.Send(&pb.ReadTasksResponse{Data: part[:n]}); err != nil {
			return toStatus(operation, err)
		}
	}
}

// fetched checks the tasks of a request: their number, that they exist, and their size.
func (s *Service) fetched(ctx context.Context, asked []int64) (ids []store.TaskID, err error) {
	if n := len(asked); n == 0 || n > maxFetched {
		return nil, invalid("task_ids", "%d tasks: want 1 to %d", n, maxFetched)
	}
	size := uint64(0)
	for _, n := range asked {
		id, err := validID(n)
		if err != nil {
			return nil, err
		}
		t, err := s.taskResult(ctx, id, 0)
		if err != nil {
			return nil, err
		}
		if size += perSample * t.Scans * uint64(len(t.Setup.Channels)); size > maxFile {
			return nil, status.Errorf(codes.ResourceExhausted,
				"task %d: with it the file may have more than %d GiB: fetch fewer tasks, or copy them on the "+
					"host's own machine (wattmark db detach)", id, maxFile>>30)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// StoreTasks stores tasks that a client measured, as the caller's own.
func (s *Service) StoreTasks(stream pb.TaskService_StoreTasksServer) error {
	const operation = "store tasks"
	ctx := stream.Context()
	if err := s.db.Room(ctx); err != nil {
		return toStatus(operation, err)
	}
	path, free, err := s.place(ctx)
	if err != nil {
		return toStatus(operation, err)
	}
	defer free()
	keep, err := s.receive(ctx, stream, path)
	if err != nil {
		return toStatus(operation, err)
	}
	// A client may ask before it measures whether it may store something later.
	if st, err := os.Stat(path); err == nil && st.Size() == 0 {
		return stream.SendAndClose(&pb.StoreTasksResponse{})
	}
	done, err := s.db.Accept(ctx, path, func(said string) string {
		if who, known := auth.From(ctx); known && !keep {
			return who.Name
		}
		return auth.User(ctx, said)
	})
	if err != nil {
		return toStatus(operation, err)
	}
	return stream.SendAndClose(&pb.StoreTasksResponse{Tasks: lists.Map(done, func(t store.CopiedTask) *pb.StoredTask {
		return &pb.StoredTask{FileTaskId: int64(t.From), TaskId: int64(t.To), Known: t.Known}
	})})
}

// receive writes the file of a stream. It ends with DEADLINE_EXCEEDED where the next maxPart, or the
// end, does not come within storeStall: a call that is as good as silent would keep its place from
// others.
func (s *Service) receive(ctx context.Context, stream pb.TaskService_StoreTasksServer, path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	// A message that does not come can only be left waiting for: the end of the call ends the wait.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stalled := time.AfterFunc(storeStall, cancel)
	defer stalled.Stop()
	type end struct {
		keep bool
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		size, next := 0, maxPart
		for e.err == nil {
			var m *pb.StoreTasksRequest
			if m, e.err = stream.Recv(); e.err != nil {
				break
			}
			e.keep = e.keep || m.GetKeepUsers()
			if size += len(m.GetData()); size >= next {
				stalled.Reset(storeStall)
				next = size + maxPart
			}
			if size > maxFile {
				e.err = status.Errorf(codes.ResourceExhausted, "the file has more than %d GiB: store fewer tasks at once",
					maxFile>>30)
				break
			}
			_, e.err = f.Write(m.GetData())
		}
		if errors.Is(e.err, io.EOF) {
			e.err = nil
		}
		e.err = errors.Join(e.err, f.Close())
		ended <- e
	}()
	select {
	case e := <-ended:
		return e.keep, e.err
	case <-ctx.Done():
		if err := stream.Context().Err(); err != nil {
			return false, err
		}
		return false, status.Errorf(codes.DeadlineExceeded, "less than %d KiB came in %v", maxPart>>10, storeStall)
	}
}
