package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/store"
)

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
	f.Search = req.GetSearch()
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
	id, err := validID(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	change, err := relabelling(req.GetTask(), req.GetUpdateMask())
	if err != nil {
		return nil, err
	}
	var t store.Task
	if err = s.mine(ctx, id, auth.Operator); err == nil {
		err = s.db.Relabel(ctx, id, change)
	}
	if err == nil {
		t, err = s.taskResult(ctx, id, 0)
	}
	if err != nil {
		return nil, toStatus(fmt.Sprintf("label task %d", id), err)
	}
	brief := t.Brief()
	m := taskMessage(&brief)
	m.Verdict, _ = judge(&t)
	return &pb.UpdateTaskResponse{Task: m}, nil
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
			pinned := t.GetPinned()
			r.Pinned, r.Only = &pinned, r.Only || path == "*"
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
	id, err := validID(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	n := store.Note{At: time.Now(), Text: req.GetNote().GetText()}
	if err := store.CheckNote(n.Text); err != nil {
		return nil, invalid("note.text", "%v", err)
	}
	if err = s.mine(ctx, id, auth.Operator); err == nil {
		n.Number, err = s.db.AddNote(ctx, id, n.At, n.Text)
	}
	if err != nil {
		return nil, toStatus(fmt.Sprintf("note on task %d", id), err)
	}
	return &pb.CreateNoteResponse{Note: noteMessage(n)}, nil
}

// DeleteNote removes a remark from a task.
func (s *Service) DeleteNote(ctx context.Context, req *pb.DeleteNoteRequest) (*pb.DeleteNoteResponse, error) {
	id, err := validID(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	if req.GetNumber() == 0 {
		return nil, invalid("number", "0: notes are numbered from 1")
	}
	op := fmt.Sprintf("remove note %d of task %d", req.GetNumber(), id)
	if err := s.mine(ctx, id, auth.Operator); err != nil {
		return nil, toStatus(op, err)
	}
	err = s.db.RemoveNote(ctx, id, int(req.GetNumber()))
	if errors.Is(err, store.ErrNotFound) {
		return nil, status.Error(codes.NotFound, op+": there is no such note; GetTask shows which there are")
	}
	return &pb.DeleteNoteResponse{}, toStatus(op, err)
}

// noteMessage converts a remark.
func noteMessage(n store.Note) *pb.Note {
	return &pb.Note{Number: uint32(n.Number), At: wire.Time(n.At), Text: wire.Text(n.Text)}
}

// provenanceMessage converts a task's provenance; nil for none.
func provenanceMessage(p *store.Provenance) *pb.Provenance {
	if p == nil {
		return nil
	}
	return &pb.Provenance{
		Host: wire.Text(p.Host), Os: wire.Text(p.OS), Version: wire.Text(p.Version),
		MonitorVersion: wire.Text(p.MonitorVersion), Directory: wire.Text(p.Directory),
		GitCommit: wire.Text(p.GitCommit), GitDirty: p.GitDirty,
		Command: lists.Map(p.Command, wire.Text), TraceId: wire.Text(p.TraceID),
	}
}
