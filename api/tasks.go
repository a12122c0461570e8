package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// GetTask returns one task with all but its samples.
func (s *Service) GetTask(ctx context.Context, req *pb.GetTaskRequest) (*pb.GetTaskResponse, error) {
	doing := fmt.Sprintf("get task %d", req.GetTaskId())
	t, err := s.taskResult(ctx, req.GetTaskId(), req.GetResult())
	if err != nil {
		return nil, toStatus(doing, err)
	}
	brief := t.Brief()
	res := detailMessage(t)
	res.Task = taskMessage(&brief)
	if hasHeader(&t) {
		res.Setup = wire.Setup(t.Setup)
	}
	res.Task.Verdict, res.Reasons = judge(&t)
	var w measure.Window
	if r := t.Result; r != nil {
		res.Budget = wire.Budget(r.Budget)
		w = measure.Window{From: r.From, To: r.To}
		res.Window, res.FirstScan = wire.Window(&w), r.FirstScan
		res.Rails = lists.Map(r.Rails, wire.RailResult)
	} else if _, res.FirstScan, err = s.db.ChunkAt(ctx, t.ID, 0); err != nil {
		return nil, toStatus(doing, err)
	}
	if t.Clock != nil {
		res.Clock = wire.Clock(*t.Clock, w.From, w.To)
	}
	switch from, to, err := s.db.Extent(ctx, t.ID); {
	case err == nil && from < to:
		res.Extent = wire.Window(&measure.Window{From: from, To: to})
	case err != nil && !errors.Is(err, store.ErrNoHeader):
		return nil, toStatus(doing, err)
	}
	return res, nil
}

// taskResult reads the task that a request names with the result of a number, 0 for the one in use.
func (s *Service) taskResult(ctx context.Context, asked int64, number uint32) (t store.Task, err error) {
	id, err := validID(asked)
	if err == nil {
		t, err = s.db.TaskResult(ctx, id, int(number))
	}
	if err == nil {
		auth.Note(ctx, "of", t.User)
	}
	return t, err
}

// judged returns a task as it is now, with its verdict.
func (s *Service) judged(ctx context.Context, id store.TaskID) (*pb.Task, error) {
	t, err := s.taskResult(ctx, int64(id), 0)
	if err != nil {
		return nil, err
	}
	m := taskMessage(new(t.Brief()))
	m.Verdict, _ = judge(&t)
	return m, nil
}

// hasHeader reports whether the stream's header has arrived.
func hasHeader(t *store.Task) bool { return len(t.Setup.Channels) > 0 }

// ListUsers returns all users with their number of tasks.
func (s *Service) ListUsers(ctx context.Context, _ *pb.ListUsersRequest) (*pb.ListUsersResponse, error) {
	users, err := s.db.Users(ctx)
	if err != nil {
		return nil, toStatus("list users", err)
	}
	return &pb.ListUsersResponse{Users: lists.Map(users, userMessage)}, nil
}

// DeleteTasks deletes by id, by name or by user. Pinned tasks stay unless it is forced.
func (s *Service) DeleteTasks(ctx context.Context, req *pb.DeleteTasksRequest) (*pb.DeleteTasksResponse, error) {
	var gone store.Deleted
	var err error
	o := store.DeleteOptions{Pinned: req.GetForce()}
	switch by := req.GetBy().(type) {
	case *pb.DeleteTasksRequest_TaskId:
		id, err := s.mine(ctx, by.TaskId, auth.Admin)
		if err != nil {
			return nil, toStatus(fmt.Sprintf("delete task %d", by.TaskId), err)
		}
		if err := s.db.DeleteTasks(ctx, []store.TaskID{id}, o); err != nil {
			return nil, toStatus("delete", err)
		}
		gone.Tasks = 1
	case *pb.DeleteTasksRequest_Name:
		gone, err = deleteAll("name", by.Name, func() (store.Deleted, error) { return s.deleteNamed(ctx, by.Name, o) })
	case *pb.DeleteTasksRequest_User:
		gone, err = deleteAll("user", by.User, func() (store.Deleted, error) {
			if err := auth.Own(ctx, "what "+by.User+" measured", by.User, auth.Admin); err != nil {
				return store.Deleted{}, err
			}
			return s.db.DeleteByUser(ctx, by.User, o)
		})
	default:
		err = invalid("by", "nothing chosen: set task_id, name or user")
	}
	if err != nil {
		return nil, err
	}
	pinned := lists.Map(gone.Pinned, func(id store.TaskID) int64 { return int64(id) })
	return &pb.DeleteTasksResponse{Deleted: gone.Tasks, PinnedTaskIds: pinned}, nil
}

// deleteAll deletes by name or by user; an empty one is more likely a mistake
// than a wish.
func deleteAll(field, value string, del func() (store.Deleted, error)) (store.Deleted, error) {
	if value == "" {
		return store.Deleted{}, invalid(field, "empty: say whose tasks, or which")
	}
	if err := validText(field, value); err != nil {
		return store.Deleted{}, err
	}
	gone, err := del()
	return gone, toStatus(fmt.Sprintf("delete tasks by %s %q", field, value), err)
}

// judge returns the verdict on a task with its reasons; nothing
// while it runs.
func judge(t *store.Task) (pb.Verdict, []*pb.VerdictReason) {
	v, ended := t.Verdict()
	if !ended {
		return pb.Verdict_VERDICT_UNSPECIFIED, nil
	}
	return level(v.Level), lists.Map(v.Reasons, reasonMessage)
}

// level is a level's number on the wire, where 0 is no verdict.
func level(l quality.Level) pb.Verdict { return pb.Verdict(l) + 1 }

// maxTags bounds the tags that a request selects by, and maxChanged those that it
// sets.
const (
	maxTags    = 32
	maxChanged = 256
)

// tags reads tags to select by.
func tags(field string, words []string) (out []store.Tag, err error) {
	if len(words) > maxTags {
		return nil, invalid(field, "%d tags: at most %d", len(words), maxTags)
	}
	for i, w := range words {
		t, err := store.ParseTag(w)
		if err != nil {
			return nil, invalid(fmt.Sprintf("%s[%d]", field, i), "%v", err)
		}
		out = append(out, t)
	}
	return out, nil
}

// labels reads a request's selection by labels.
func labels(req *pb.ListTasksRequest, f *store.Filter) (err error) {
	if f.Tags, err = tags("tags", req.GetTags()); err != nil {
		return err
	}
	if f.Without, err = tags("without_tags", req.GetWithoutTags()); err != nil {
		return err
	}
	if err := validText("search", f.Search); err != nil {
		return err
	}
	if err := store.CheckSearch(f.Search); err != nil {
		return invalid("search", "%v", err)
	}
	return nil
}

// UpdateTask changes a task's labels.
func (s *Service) UpdateTask(ctx context.Context, req *pb.UpdateTaskRequest) (*pb.UpdateTaskResponse, error) {
	res := &pb.UpdateTaskResponse{}
	id, err := s.mine(ctx, req.GetTaskId(), auth.Operator)
	var change store.Relabelling
	if err == nil {
		change, err = relabelling(req.GetTask(), req.GetUpdateMask())
	}
	if err == nil {
		err = s.db.Relabel(ctx, id, change)
	}
	if err == nil {
		res.Task, err = s.judged(ctx, id)
	}
	return res, toStatus(fmt.Sprintf("label task %d", req.GetTaskId()), err)
}

// relabelling returns the changes that a mask asks for (AIP-134, AIP-161). An empty mask stands for
// the fields that are set.
func relabelling(t *pb.Task, m *fieldmaskpb.FieldMask) (r store.Relabelling, err error) {
	paths := m.GetPaths()
	if len(paths) == 0 && t.GetPinned() {
		paths = append(paths, "pinned")
	}
	if len(m.GetPaths()) == 0 && len(t.GetTags()) > 0 {
		paths = append(paths, "tags")
	}
	if len(paths) > maxPaths {
		return r, invalid("update_mask", "%d paths: at most %d", len(paths), maxPaths)
	}
	r.Set = map[string]string{}
	for i, path := range paths {
		key, one := strings.CutPrefix(path, "tags.")
		v, there := t.GetTags()[key]
		switch {
		case path == "pinned" || path == "*":
			r.Pinned, r.Only = new(t.GetPinned()), r.Only || path == "*"
		case path == "tags":
			r.Only = true
		case one && there:
			r.Set[key] = v
		case one:
			if err := store.CheckTags(map[string]string{key: ""}); err != nil {
				return r, invalid(fmt.Sprintf("update_mask.paths[%d]", i), "%v", err)
			}
			r.Remove = append(r.Remove, key)
		case path == "task_id": // names the task, and changes nothing
		default:
			return r, invalid(fmt.Sprintf("update_mask.paths[%d]", i),
				"%q cannot be changed: tags, tags.KEY and pinned can", path)
		}
	}
	if r.Only {
		r.Set = t.GetTags()
	}
	return r, checkChange(&r)
}

// checkChange refuses a change of nothing, of too many tags, and tags that cannot be.
func checkChange(r *store.Relabelling) error {
	if r.Pinned == nil && !r.Only && len(r.Set) == 0 && len(r.Remove) == 0 {
		return invalid("update_mask", "nothing is to change: name pinned, tags or tags.KEY, and set them in task")
	}
	if len(r.Set) > maxChanged {
		return invalid("task.tags", "%d tags: at most %d", len(r.Set), maxChanged)
	}
	if err := store.CheckTags(r.Set); err != nil {
		return invalid("task.tags", "%v", err)
	}
	return nil
}

// CreateNote adds a remark to a task.
func (s *Service) CreateNote(ctx context.Context, req *pb.CreateNoteRequest) (*pb.CreateNoteResponse, error) {
	op := fmt.Sprintf("note on task %d", req.GetTaskId())
	id, err := s.mine(ctx, req.GetTaskId(), auth.Operator)
	if err != nil {
		return nil, toStatus(op, err)
	}
	n := store.Note{At: time.Now(), Text: req.GetNote().GetText()}
	if err := store.CheckNote(n.Text); err != nil {
		return nil, invalid("note.text", "%v", err)
	}
	if n.Number, err = s.db.AddNote(ctx, id, n.At, n.Text); err != nil {
		return nil, toStatus(op, err)
	}
	return &pb.CreateNoteResponse{Note: noteMessage(n)}, nil
}

// DeleteNote removes a remark from a task.
func (s *Service) DeleteNote(ctx context.Context, req *pb.DeleteNoteRequest) (*pb.DeleteNoteResponse, error) {
	op := fmt.Sprintf("remove note %d of task %d", req.GetNumber(), req.GetTaskId())
	id, err := s.mine(ctx, req.GetTaskId(), auth.Operator)
	if err != nil {
		return nil, toStatus(op, err)
	}
	if req.GetNumber() == 0 {
		return nil, invalid("number", "0: notes are numbered from 1")
	}
	err = s.db.RemoveNote(ctx, id, int(req.GetNumber()))
	if errors.Is(err, store.ErrNotFound) {
		return nil, status.Error(codes.NotFound, op+": there is no such note; GetTask shows which there are")
	}
	return &pb.DeleteNoteResponse{}, toStatus(op, err)
}
