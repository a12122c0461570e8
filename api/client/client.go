// Package client reads a task database over gRPC with the types of measure: watts are measure.Watt, a missing window
// is a missing window, and a stream is an iterator that closes itself.
//
//	c, err := client.Dial("gpu-host:7500")
//	defer c.Close()
//	for task, err := range c.Tasks(ctx, client.Query{User: "lab"}) { … }
//	for item, err := range c.Samples(ctx, 42, client.Range{}) { … }
//
// Errors are those of gRPC (status.FromError), or wrap wire.ErrMessage when the answer contradicts itself.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"strconv"
	"strings"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// Client is a connection to a task database. It is safe for concurrent use.
type Client struct {
	conn *grpc.ClientConn
	stub pb.TaskServiceClient
}

// Dial prepares a connection; nothing is sent before the first call, which fails with UNAVAILABLE where no
// server answers. target is host, host:port, unix:path or any other gRPC target. Without options the connection is not
// encrypted; add grpc.WithTransportCredentials for TLS, or auth.Client.DialOptions for TLS and a token.
func Dial(target string, options ...grpc.DialOption) (*Client, error) {
	all := append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	target = wire.WithPort(target, wire.HostPort)
	conn, err := grpc.NewClient(target, append(all, options...)...)
	if err != nil {
		return nil, fmt.Errorf("dial the task database at %s: %w", target, err)
	}
	return &Client{conn: conn, stub: pb.NewTaskServiceClient(conn)}, nil
}

// Close ends all calls and the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Query selects tasks, newest first unless it has another order.
type Query struct {
	User string // empty for all
	// Name is a pattern: * is any text, ? any one character, \* and \? themselves; empty for all.
	Name         string
	Job          string    // exact; empty for all
	Since, Until time.Time // launched at or after, and before; zero for all
	GPU          string    // a UUID, or a part of the model's name in either case
	Group        int64     // the measurement of several GPUs; 0 for all
	States       []State   // empty for all
	// Tags are all had, and of WithoutTags none: "key=value", or "key" alone for any value. Search wants all of its
	// words, or beginnings of words, in name, notes or tags.
	Tags, WithoutTags []string
	Search            string
	Verdicts          []Verdict // empty for all
	// Limits of the window's energy and length, both included; 0 for none. With one of
	// them only tasks that have a window are selected.
	MinEnergy, MaxEnergy     measure.Joule
	MinDuration, MaxDuration measure.Seconds
	Order                    Order // 0 is ByID
	Ascending                bool  // otherwise the greatest or newest first
	// Before selects tasks with a smaller ID, in the order of ByID without Ascending; 0 for all.
	Before int64
	// Page is how many tasks are asked for at once, 1 to 1000; 0 leaves it to the
	// server. All tasks are delivered in any case.
	Page int
}

// Tasks yields the tasks that a query selects, in its order, fetching page
// after page as they are asked for. An error is the last thing it yields.
func (c *Client) Tasks(ctx context.Context, q Query) iter.Seq2[Task, error] {
	return func(yield func(Task, error) bool) {
		req := q.request()
		for {
			res, err := c.stub.ListTasks(ctx, req)
			if err != nil {
				yield(Task{}, err)
				return
			}
			for _, p := range res.Tasks {
				t, err := parseTask(p)
				if !yield(t, err) || err != nil {
					return
				}
			}
			if req.PageToken, req.BeforeTaskId = res.NextPageToken, 0; req.PageToken == "" {
				return
			}
		}
	}
}

// Task returns one task with all but its samples.
func (c *Client) Task(ctx context.Context, id int64) (Detail, error) { return c.TaskResult(ctx, id, 0) }

// TaskResult returns one task with the result of a number, under its own
// calibration, in place of the one in use; NOT_FOUND when there is none.
func (c *Client) TaskResult(ctx context.Context, id int64, number uint32) (Detail, error) {
	res, err := c.stub.GetTask(ctx, &pb.GetTaskRequest{TaskId: id, Result: number})
	return parsed(res, err, parseDetail)
}

// parsed reads the answer of a call, unless that failed.
func parsed[A, B any](a A, err error, parse func(A) (B, error)) (b B, _ error) {
	if err != nil {
		return b, err
	}
	return parse(a)
}

// User is a user with the number of their tasks.
type User struct {
	Name  string
	Tasks uint64
}

// Users returns all users that have tasks, by name.
func (c *Client) Users(ctx context.Context) ([]User, error) {
	res, err := c.stub.ListUsers(ctx, &pb.ListUsersRequest{})
	return lists.Map(res.GetUsers(), func(u *pb.User) User { return User{u.GetUser(), u.GetTasks()} }), err
}

// Delete deletes one task with all that belongs to it; NOT_FOUND when there is none. A pinned
// one is FAILED_PRECONDITION.
func (c *Client) Delete(ctx context.Context, id int64) error { return c.delete(ctx, id, false) }

// DeletePinned is Delete, of a pinned task too.
func (c *Client) DeletePinned(ctx context.Context, id int64) error { return c.delete(ctx, id, true) }

func (c *Client) delete(ctx context.Context, id int64, force bool) error {
	_, err := c.stub.DeleteTasks(ctx,
		&pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_TaskId{TaskId: id}, Force: force})
	return err
}

// DeleteByName deletes all tasks of exactly this name, but for pinned ones, and returns how many.
func (c *Client) DeleteByName(ctx context.Context, name string) (uint64, error) {
	res, err := c.stub.DeleteTasks(ctx, &pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_Name{Name: name}})
	return res.GetDeleted(), err
}

// DeleteByUser deletes all tasks of a user, but for pinned ones, and returns how many.
func (c *Client) DeleteByUser(ctx context.Context, user string) (uint64, error) {
	res, err := c.stub.DeleteTasks(ctx, &pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_User{User: user}})
	return res.GetDeleted(), err
}

// The protocol's enums under short names. Word gives the word for a value.
type (
	State     = pb.TaskState
	Verdict   = pb.Verdict     // trust in a result: that of the gravest Reason
	Order     = pb.TaskOrder   // of a list
	Grouping  = pb.AggregateBy // of Aggregate
	EventKind = pb.TaskEvent   // of Watch
	// Reason is one finding about a result, with its own verdict.
	Reason = pb.VerdictReason
	// Provenance is the program, machine and source that a task was run from; unknown fields are empty.
	Provenance = pb.Provenance
)

const (
	Running    = pb.TaskState_TASK_STATE_RUNNING
	Complete   = pb.TaskState_TASK_STATE_COMPLETE
	Incomplete = pb.TaskState_TASK_STATE_INCOMPLETE
	Untrimmed  = pb.TaskState_TASK_STATE_UNTRIMMED
	Failed     = pb.TaskState_TASK_STATE_FAILED // the work failed; its samples are kept

	NotJudged = pb.Verdict_VERDICT_UNSPECIFIED // of a task that runs
	Good      = pb.Verdict_VERDICT_GOOD
	Usable    = pb.Verdict_VERDICT_USABLE
	Doubtful  = pb.Verdict_VERDICT_DOUBTFUL
	Void      = pb.Verdict_VERDICT_VOID

	ByID       = pb.TaskOrder_TASK_ORDER_ID // as they were begun
	ByLaunched = pb.TaskOrder_TASK_ORDER_LAUNCHED
	ByEnergy   = pb.TaskOrder_TASK_ORDER_ENERGY
	ByDuration = pb.TaskOrder_TASK_ORDER_DURATION // of the window
	ByName     = pb.TaskOrder_TASK_ORDER_NAME

	PerUser   = pb.AggregateBy_AGGREGATE_BY_USER
	PerDay    = pb.AggregateBy_AGGREGATE_BY_DAY // UTC
	PerGPU    = pb.AggregateBy_AGGREGATE_BY_GPU
	PerKernel = pb.AggregateBy_AGGREGATE_BY_KERNEL // names of recorded kernels
	PerJob    = pb.AggregateBy_AGGREGATE_BY_JOB

	Watching = pb.TaskEvent_TASK_EVENT_WATCHING // the watch has begun
	Added    = pb.TaskEvent_TASK_EVENT_ADDED
	Changed  = pb.TaskEvent_TASK_EVENT_CHANGED   // state, result or labels
	Deleted  = pb.TaskEvent_TASK_EVENT_DELETED   // the task has its ID only
	ListAnew = pb.TaskEvent_TASK_EVENT_LIST_ANEW // changes were missed: list the tasks anew
)

// Word returns an enum value's name in lower case without the enum's own: "complete" for TASK_STATE_COMPLETE.
func Word(v protoreflect.Enum) string {
	names := v.Descriptor().Values()
	value := names.ByNumber(v.Number())
	if value == nil {
		return strconv.Itoa(int(v.Number()))
	}
	prefix := strings.TrimSuffix(string(names.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix))
}

// Totals is the sum of several tasks.
type Totals struct {
	Tasks, Measured uint64           // Measured have a window
	Energy          measure.Estimate // with the errors that the tasks share
	Duration        measure.Seconds
	Samples         uint64
}

// request returns the query as ListTasks takes it.
func (q Query) request() *pb.ListTasksRequest {
	r := listRequest(q)
	r.PageSize = int32(min(q.Page, 1000))
	return r
}

// Totals adds up all tasks that a query selects, whatever their verdicts.
func (c *Client) Totals(ctx context.Context, q Query) (Totals, error) {
	req := q.request()
	req.Verdicts, req.PageSize, req.WithTotals = nil, 1, true
	res, err := c.stub.ListTasks(ctx, req)
	return parsed(res.GetTotals(), err, parseTotals)
}

// Row is one user, day, GPU, kernel, job or value of a tag.
type Row struct {
	// Key is the login, the day as in 2026-01-31, the GPU's UUID, the kernel's name,
	// the job or the tag's value; empty where it is not known. Label is the GPU's model.
	Key, Label string
	Totals
	Launches uint64 // of a kernel
}

// Aggregate adds up the tasks that a query selects, the greatest energy first, days newest first; its order, verdicts
// and page are not looked at. It returns at most the first 10 000 rows.
func (c *Client) Aggregate(ctx context.Context, q Query, by Grouping) ([]Row, error) {
	return c.aggregate(ctx, q, by, "")
}

// AggregateByTag is Aggregate by the value of a tag; a row with an empty key has the tasks without it.
func (c *Client) AggregateByTag(ctx context.Context, q Query, key string) ([]Row, error) {
	return c.aggregate(ctx, q, pb.AggregateBy_AGGREGATE_BY_TAG, key)
}

// aggregate asks for the rows of a grouping; tag is the key of a grouping by tag.
func (c *Client) aggregate(ctx context.Context, q Query, by Grouping, tag string) ([]Row, error) {
	r := aggregateRequest(q)
	r.By, r.TagKey, r.Limit = by, tag, 10000
	res, err := c.stub.Aggregate(ctx, r)
	if err != nil {
		return nil, err
	}
	return wire.ParseEach(res.Rows, parseRow)
}

// Event is a change of a task.
type Event struct {
	Kind EventKind
	Task *Task // nil for Watching and ListAnew; has its ID alone for Deleted
	// Resume is where to go on from behind this event.
	Resume string
}

// Watch is which tasks are watched.
type Watch struct {
	User, Name, Job   string   // as in Query
	Tags, WithoutTags []string // as in Query
	// Resume is from the last event that was seen, to get the changes since; empty from now on.
	Resume string
}

// Watch yields new tasks and their changes, until ctx ends or the loop is left. An error is the last thing it yields;
// UNAVAILABLE means that the server stopped: go on with the last event's Resume once it is back.
func (c *Client) Watch(ctx context.Context, w Watch) iter.Seq2[Event, error] {
	return items(ctx, c.stub.WatchTasks, watchRequest(w), func(m *pb.WatchTasksResponse) (e Event, err error) {
		e = Event{Kind: m.GetEvent(), Resume: m.GetResumeToken()}
		switch {
		case e.Kind == Deleted:
			e.Task = &Task{ID: m.GetTask().GetTaskId()}
		case m.GetTask() != nil:
			var t Task
			t, err = parseTask(m.GetTask())
			e.Task = &t
		}
		return e, err
	})
}

// items makes a call and yields the messages of its stream as parse reads them, until the
// stream or the loop ends; both close the stream. An error is the last item.
func items[Q, M, T any](ctx context.Context,
	call func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[M], error), req *Q,
	parse func(*M) (T, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var item T
		stream, err := call(ctx, req)
		for err == nil {
			var m *M
			if m, err = stream.Recv(); errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				item, err = parse(m)
			}
			if err == nil && !yield(item, nil) {
				return
			}
		}
		var none T
		yield(none, err)
	}
}

// Note is a remark on a task.
type Note struct {
	Number uint32 // counts from 1
	At     time.Time
	Text   string
}

// SetTags sets tags of a task and removes others by their keys, all at once, and
// returns the task as it is then. The tags that are not named stay.
func (c *Client) SetTags(ctx context.Context, id int64, set map[string]string, remove ...string) (Task, error) {
	mask := &fieldmaskpb.FieldMask{}
	for k := range set {
		mask.Paths = append(mask.Paths, "tags."+k)
	}
	kept := maps.Clone(set)
	for _, k := range remove {
		mask.Paths = append(mask.Paths, "tags."+k)
		delete(kept, k)
	}
	return c.update(ctx, id, &pb.Task{Tags: kept}, mask)
}

// ReplaceTags gives a task these tags and no others.
func (c *Client) ReplaceTags(ctx context.Context, id int64, tags map[string]string) (Task, error) {
	return c.update(ctx, id, &pb.Task{Tags: tags}, &fieldmaskpb.FieldMask{Paths: []string{"tags"}})
}

// Pin keeps a task from retention, or no longer.
func (c *Client) Pin(ctx context.Context, id int64, pinned bool) (Task, error) {
	return c.update(ctx, id, &pb.Task{Pinned: pinned}, &fieldmaskpb.FieldMask{Paths: []string{"pinned"}})
}

// Trim gives a task a window by hand, in seconds of device time, and returns the task with its new result.
// INVALID_ARGUMENT means that no samples lie in it.
func (c *Client) Trim(ctx context.Context, id int64, from, to float64) (Task, error) {
	res, err := c.stub.TrimTask(ctx, &pb.TrimTaskRequest{TaskId: id, FromS: from, ToS: to})
	return parsed(res.GetTask(), err, parseTask)
}

// update changes the fields of a task that a mask names, and returns the changed task.
func (c *Client) update(ctx context.Context, id int64, t *pb.Task, mask *fieldmaskpb.FieldMask) (Task, error) {
	res, err := c.stub.UpdateTask(ctx, &pb.UpdateTaskRequest{TaskId: id, Task: t, UpdateMask: mask})
	return parsed(res.GetTask(), err, parseTask)
}

// AddNote adds a remark to a task.
func (c *Client) AddNote(ctx context.Context, id int64, text string) (Note, error) {
	res, err := c.stub.CreateNote(ctx, &pb.CreateNoteRequest{TaskId: id, Note: &pb.Note{Text: text}})
	return parsed(res.GetNote(), err, parseNote)
}

// RemoveNote removes a remark; NOT_FOUND when there is none of that number.
func (c *Client) RemoveNote(ctx context.Context, id int64, number uint32) error {
	_, err := c.stub.DeleteNote(ctx, &pb.DeleteNoteRequest{TaskId: id, Number: number})
	return err
}

// Fetch writes whole tasks as a SQLite task database, which package store opens. The file is whole where there is no
// error. NOT_FOUND means that a task does not exist, FAILED_PRECONDITION that one is being measured.
func (c *Client) Fetch(ctx context.Context, ids []int64, w io.Writer) error {
	data := func(m *pb.ReadTasksResponse) ([]byte, error) { return m.GetData(), nil }
	for data, err := range items(ctx, c.stub.ReadTasks, &pb.ReadTasksRequest{TaskIds: ids}, data) {
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Stored is a task of a file that the host has stored.
type Stored struct {
	FileTask, Task int64 // its ID in the file and at the host
	Known          bool  // it was there already
}

// storePart is the size of the parts in which Store sends a file, in bytes.
const storePart = 1 << 20

// Store sends a SQLite task database, whose tasks have all ended, and returns them as the host
// stored them: under the caller's own name or, with keepUsers and the role operator, under the
// names in the file. After an error it can be repeated: what is stored already stays.
func (c *Client) Store(ctx context.Context, r io.Reader, keepUsers bool) ([]Stored, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a file that cannot be read is not sent to its end
	stream, err := c.stub.StoreTasks(ctx)
	if err != nil {
		return nil, err
	}
	for {
		part := make([]byte, storePart) // a message may be read after Send
		n, err := io.ReadFull(r, part)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		last := err != nil
		// EOF: the host has ended the call, and CloseAndRecv returns why.
		if err := stream.Send(&pb.StoreTasksRequest{Data: part[:n], KeepUsers: keepUsers}); err != nil || last {
			break
		}
	}
	res, err := stream.CloseAndRecv()
	return lists.Map(res.GetTasks(), func(t *pb.StoredTask) Stored {
		return Stored{t.GetFileTaskId(), t.GetTaskId(), t.GetKnown()}
	}), err
}
