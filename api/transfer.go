package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	out := bufio.NewWriterSize(parts(func(part []byte) error {
		return stream.Send(&pb.ReadTasksResponse{Data: part})
	}), maxPart)
	_, err = io.Copy(out, f)
	return toStatus(operation, errors.Join(err, out.Flush()))
}

// fetched checks the tasks of a request: their number, that they exist, and their size.
func (s *Service) fetched(ctx context.Context, asked []int64) (ids []store.TaskID, err error) {
	if n := len(asked); n == 0 || n > maxFetched {
		return nil, invalid("task_ids", "%d tasks: want 1 to %d", n, maxFetched)
	}
	size := uint64(0)
	for _, n := range asked {
		t, err := s.taskResult(ctx, n, 0)
		if err != nil {
			return nil, err
		}
		if size += perSample * t.Scans * uint64(len(t.Setup.Channels)); size > maxFile {
			return nil, status.Errorf(codes.ResourceExhausted,
				"task %d: with it the file may have more than %d GiB: fetch fewer tasks, or copy them on the "+
					"host's own machine (wattmark db detach)", n, maxFile>>30)
		}
		ids = append(ids, t.ID)
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
	auth.Note(ctx, "tasks", strings.Join(lists.Map(done, func(t store.CopiedTask) string { return fmt.Sprint(t.To) }), " "))
	return stream.SendAndClose(&pb.StoreTasksResponse{Tasks: lists.Map(done, storedMessage)})
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
	keep := false // the goroutine's until it has ended
	ended := make(chan error, 1)
	go func() {
		size, next := 0, maxPart
		m, err := stream.Recv()
		for ; err == nil; m, err = stream.Recv() {
			keep = keep || m.GetKeepUsers()
			if size += len(m.GetData()); size > maxFile {
				err = status.Errorf(codes.ResourceExhausted, "the file has more than %d GiB: store fewer tasks at once",
					maxFile>>30)
				break
			}
			if size >= next {
				stalled.Reset(storeStall)
				next = size + maxPart
			}
			if _, err = f.Write(m.GetData()); err != nil {
				break
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		ended <- errors.Join(err, f.Close())
	}()
	select {
	case err := <-ended:
		return keep, err
	case <-ctx.Done():
		if err := stream.Context().Err(); err != nil {
			return false, err
		}
		return false, status.Errorf(codes.DeadlineExceeded, "less than %d KiB came in %v", maxPart>>10, storeStall)
	}
}

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
	// AddWindows stores windows of a server with a task. Windows returns them with their energies and the number of the
	// result these rest on; notes report what some lack.
	AddWindows func(ctx context.Context, id store.TaskID, w []serving.Window) error
	Windows    func(ctx context.Context, id store.TaskID) (w []serving.Window, result int, notes []string, err error)
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
	if _, err := s.mine(ctx, int64(x.id), auth.Operator); err != nil {
		return nil, toStatus(operation, err)
	}
	err = s.works.Trim(ctx, x.id, measure.Window{From: x.from, To: x.to})
	if errors.Is(err, measure.ErrWindow) || errors.Is(err, measure.ErrNoData) {
		return nil, invalid("from_s", "%v", err)
	}
	res := &pb.TrimTaskResponse{}
	if err == nil {
		res.Task, err = s.judged(ctx, x.id)
	}
	return res, toStatus(operation, err)
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
	t, err := s.taskResult(ctx, int64(x.id), 0)
	if err != nil {
		return toStatus(operation, err)
	}
	var w measure.Window
	if req.GetFromS() != 0 || req.GetToS() != 0 {
		w = measure.Window{From: x.from, To: x.to}
	}
	// Parts of a megabyte at most: the formats write a few hundred bytes at a time.
	out := bufio.NewWriterSize(parts(func(part []byte) error {
		return stream.Send(&pb.ReadExportResponse{Data: part})
	}), maxPart)
	if err := s.works.Export(ctx, out, &t, req.GetFormat(), w); err != nil {
		return toStatus(operation, err)
	}
	return toStatus(operation, out.Flush())
}

// parts sends a part of a file, whose message is encoded before it returns.
type parts func(part []byte) error

// Write sends b, in parts.
func (p parts) Write(b []byte) (int, error) {
	for part := range slices.Chunk(b, maxPart) {
		if err := p(part); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
