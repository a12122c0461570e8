package api

import (
	"context"
	"errors"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/store"
)

// maxTold is how many tasks are read at once for a watcher.
const maxTold = 256

// WatchTasks streams new tasks and what becomes of them, until it is cancelled.
func (s *Service) WatchTasks(req *wattmarkv1.WatchTasksRequest, stream grpc.ServerStreamingServer[wattmarkv1.WatchTasksResponse]) error {
	f := store.Filter{User: req.GetUser(), Name: req.GetName(), Job: req.GetJob()}
	for _, t := range [][2]string{{"user", f.User}, {"name", f.Name}, {"job", f.Job}} {
		if err := validText(t[0], t[1]); err != nil {
			return err
		}
	}
	if err := f.Check(); err != nil {
		return invalid("name", "%v", err)
	}
	if err := labels(req, "", &f); err != nil {
		return err
	}
	since, err := parseResume(req.GetResumeToken())
	if err != nil {
		return err
	}
	ctx := stream.Context()
	w, at, anew, err := s.hub.join(ctx, since)
	if err != nil {
		return watchStatus(err)
	}
	defer s.hub.leave(w)
	if err := begin(stream, since, &at, anew); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return toStatus("watch tasks", ctx.Err())
		case <-s.hub.closed.Done():
			return watchStatus(errClosing)
		case <-w.wake:
		}
		events, at, err := w.take()
		if err != nil {
			return watchStatus(err)
		}
		if err := s.tell(ctx, stream, f, events, at.token()); err != nil {
			return err
		}
	}
}

// begin tells that the watch has begun, and whether something was missed.
func begin(stream grpc.ServerStreamingServer[wattmarkv1.WatchTasksResponse], since, at *waypoint, anew bool) error {
	token := at.token()
	if since != nil { // until it was told what happened since, that is where it is
		token = since.token()
	}
	err := stream.Send(&wattmarkv1.WatchTasksResponse{Event: wattmarkv1.TaskEvent_TASK_EVENT_WATCHING, ResumeToken: token})
	if err == nil && anew {
		err = stream.Send(&wattmarkv1.WatchTasksResponse{Event: wattmarkv1.TaskEvent_TASK_EVENT_LIST_ANEW, ResumeToken: at.token()})
	}
	return err
}

// tell sends events, oldest task first. The token goes with the last of them: who
// is cut off before it is told all of them again.
func (s *Service) tell(ctx context.Context, stream grpc.ServerStreamingServer[wattmarkv1.WatchTasksResponse], f store.Filter,
	events map[store.TaskID]wattmarkv1.TaskEvent, token string,
) error {
	var held *wattmarkv1.WatchTasksResponse
	send := func(next *wattmarkv1.WatchTasksResponse) error {
		last := held
		held = next
		if last == nil {
			return nil
		}
		return stream.Send(last)
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(events)), maxTold) {
		tasks, err := s.db.Selected(ctx, f, ids)
		if err != nil {
			return toStatus("watch tasks", err)
		}
		there := make(map[store.TaskID]*store.Brief, len(tasks))
		for i := range tasks {
			there[tasks[i].ID] = &tasks[i]
		}
		for _, id := range ids {
			m := &wattmarkv1.WatchTasksResponse{Event: events[id]}
			switch t := there[id]; {
			case m.Event == wattmarkv1.TaskEvent_TASK_EVENT_DELETED:
				m.Task = &wattmarkv1.Task{TaskId: int64(id)}
			case t == nil:
				continue // not selected, or deleted: that is told next
			default:
				m.Task = taskMessage(t)
			}
			if err := send(m); err != nil {
				return err
			}
		}
	}
	if held == nil {
		return nil
	}
	held.ResumeToken = token
	return stream.Send(held)
}

func watchStatus(err error) error {
	if errors.Is(err, errClosing) {
		return status.Error(codes.Unavailable, "watch tasks: the server is stopping; watch again with the last resume_token")
	}
	return toStatus("watch tasks", err)
}
