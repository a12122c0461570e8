package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
)

// Note is a remark on a task.
type Note struct {
	Number uint32 // counts from 1
	At     time.Time
	Text   string
}

// Provenance is what a task was run from; what is not known is empty.
type Provenance struct {
	Host, OS                string
	Version, MonitorVersion string // of wattmark
	Directory, GitCommit    string
	GitDirty                bool     // with changes that are in no commit
	Command                 []string // by words
	TraceID                 string   // of OpenTelemetry
}

func parseNote(p *wattmarkv1.Note) (Note, error) {
	at, err := wire.ParseTime("note", p.GetAt())
	return Note{Number: p.GetNumber(), At: at, Text: p.GetText()}, err
}

func parseNotes(p []*wattmarkv1.Note) (out []Note, err error) {
	for _, x := range p {
		n, err := parseNote(x)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func parseProvenance(p *wattmarkv1.Provenance) *Provenance {
	if p == nil {
		return nil
	}
	return &Provenance{
		Host: p.Host, OS: p.Os, Version: p.Version, MonitorVersion: p.MonitorVersion, Directory: p.Directory,
		GitCommit: p.GitCommit, GitDirty: p.GitDirty, Command: p.Command, TraceID: p.TraceId,
	}
}

// SetTags sets tags of a task and removes others by their keys, all at once, and
// returns the task as it is then. The tags that are not named stay.
func (c *Client) SetTags(ctx context.Context, id int64, set map[string]string, remove ...string) (Task, error) {
	mask := &fieldmaskpb.FieldMask{}
	for k := range set {
		mask.Paths = append(mask.Paths, "tags."+k)
	}
	kept := make(map[string]string, len(set))
	for k, v := range set {
		kept[k] = v
	}
	for _, k := range remove {
		mask.Paths = append(mask.Paths, "tags."+k)
		delete(kept, k)
	}
	return c.update(ctx, id, &wattmarkv1.Task{Tags: kept}, mask)
}

// ReplaceTags gives a task these tags and no others.
func (c *Client) ReplaceTags(ctx context.Context, id int64, tags map[string]string) (Task, error) {
	return c.update(ctx, id, &wattmarkv1.Task{Tags: tags}, &fieldmaskpb.FieldMask{Paths: []string{"tags"}})
}

// Pin keeps a task from retention, or no longer.
func (c *Client) Pin(ctx context.Context, id int64, pinned bool) (Task, error) {
	return c.update(ctx, id, &wattmarkv1.Task{Pinned: pinned}, &fieldmaskpb.FieldMask{Paths: []string{"pinned"}})
}

func (c *Client) update(ctx context.Context, id int64, t *wattmarkv1.Task, mask *fieldmaskpb.FieldMask) (Task, error) {
	res, err := c.stub.UpdateTask(ctx, &wattmarkv1.UpdateTaskRequest{TaskId: id, Task: t, UpdateMask: mask})
	if err != nil {
		return Task{}, err
	}
	return parseTask(res.GetTask())
}

// AddNote adds a remark to a task.
func (c *Client) AddNote(ctx context.Context, id int64, text string) (Note, error) {
	res, err := c.stub.CreateNote(ctx, &wattmarkv1.CreateNoteRequest{TaskId: id, Note: &wattmarkv1.Note{Text: text}})
	if err != nil {
		return Note{}, err
	}
	return parseNote(res.GetNote())
}

// RemoveNote removes a remark; NOT_FOUND when there is none of that number.
func (c *Client) RemoveNote(ctx context.Context, id int64, number uint32) error {
	_, err := c.stub.DeleteNote(ctx, &wattmarkv1.DeleteNoteRequest{TaskId: id, Number: number})
	return err
}
