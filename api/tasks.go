package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
)

// GetTask returns one task with all but its samples.
func (s *Service) GetTask(ctx context.Context, req *pb.GetTaskRequest) (*pb.GetTaskResponse, error) {
	id, err := validID(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	t, err := s.taskResult(ctx, id, req.GetResult())
	if err != nil {
		return nil, toStatus(fmt.Sprintf("get task %d", id), err)
	}
	brief := t.Brief()
	res := &pb.GetTaskResponse{
		Task: taskMessage(&brief), Markers: wire.Markers(t.Markers), Instrument: wire.Instrument(t.Instrument),
	}
	if hasHeader(&t) {
		res.Setup = wire.Setup(t.Setup)
	}
	res.Task.Verdict, res.Reasons = judge(&t)
	res.Notes, res.Provenance = lists.Map(t.Notes, noteMessage), provenanceMessage(t.Provenance)
	res.Result, res.NvmlMethod = uint32(t.ResultNumber), wire.Text(t.NVMLMethod)
	res.Results = lists.Map(t.Results, func(r store.ResultInfo) *pb.TaskResult {
		return &pb.TaskResult{
			Number: uint32(r.Number), CalibrationId: wire.Text(r.CalibrationID), Computed: wire.Time(r.Computed),
			Energy: wire.Energy(r.Estimate), InUse: r.InUse,
		}
	})
	res.Events, res.Started = lists.Map(t.Events, wire.Event), wire.Time(t.Started)
	var w measure.Window
	if r := t.Result; r != nil {
		res.Budget = wire.Budget(r.Budget)
		w = measure.Window{From: r.From, To: r.To}
		res.Window, res.FirstScan = wire.Window(&w), r.FirstScan
		res.Rails = lists.Map(r.Rails, wire.RailResult)
	} else if res.FirstScan, err = s.firstStored(ctx, id); err != nil {
		return nil, toStatus(fmt.Sprintf("get task %d", id), err)
	}
	if t.Clock != nil {
		res.Clock = wire.Clock(*t.Clock, w.From, w.To)
	}
	switch from, to, err := s.db.Extent(ctx, id); {
	case err == nil && from < to:
		res.Extent = wire.Window(&measure.Window{From: from, To: to})
	case err != nil && !errors.Is(err, store.ErrNoHeader):
		return nil, toStatus(fmt.Sprintf("get task %d", id), err)
	}
	return res, nil
}

// taskResult reads a task with the result of a number, 0 for the one in use.
func (s *Service) taskResult(ctx context.Context, id store.TaskID, number uint32) (store.Task, error) {
	t, err := s.db.TaskResult(ctx, id, int(number))
	if err == nil {
		auth.Note(ctx, "of", t.User)
	}
	return t, err
}

// hasHeader reports whether the stream's header has arrived.
func hasHeader(t *store.Task) bool { return len(t.Setup.Channels) > 0 }

// firstStored returns the first scan that is stored; 0 when there is none.
func (s *Service) firstStored(ctx context.Context, id store.TaskID) (uint64, error) {
	for c, err := range s.db.Chunks(ctx, id, 0) {
		if err != nil {
			return 0, err
		}
		return c.FirstScan, nil
	}
	return 0, nil
}

// ListUsers returns all users with their number of tasks.
func (s *Service) ListUsers(ctx context.Context, _ *pb.ListUsersRequest) (*pb.ListUsersResponse, error) {
	users, err := s.db.Users(ctx)
	if err != nil {
		return nil, toStatus("list users", err)
	}
	return &pb.ListUsersResponse{Users: lists.Map(users, func(u store.UserTasks) *pb.User {
		return &pb.User{User: wire.Text(u.User), Tasks: u.Tasks}
	})}, nil
}

// DeleteTasks deletes by id, by name or by user. Pinned tasks stay unless it is forced.
func (s *Service) DeleteTasks(ctx context.Context, req *pb.DeleteTasksRequest) (*pb.DeleteTasksResponse, error) {
	var gone store.Deleted
	var err error
	o := store.DeleteOptions{Pinned: req.GetForce()}
	switch by := req.GetBy().(type) {
	case *pb.DeleteTasksRequest_TaskId:
		id, err := validID(by.TaskId)
		if err != nil {
			return nil, err
		}
		if err := s.mine(ctx, id, auth.Admin); err != nil {
			return nil, toStatus(fmt.Sprintf("delete task %d", id), err)
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
	return level(v.Level), lists.Map(v.Reasons, func(r quality.Reason) *pb.VerdictReason {
		return &pb.VerdictReason{
			Cause: string(r.Cause), Verdict: level(r.Level), Subject: wire.Text(r.Subject), Text: wire.Text(r.Text),
		}
	})
}

// level is a level's number on the wire, where 0 is no verdict.
func level(l quality.Level) pb.Verdict { return pb.Verdict(l) + 1 }
