package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
)

// Client is a connection to a task database. It is safe for concurrent use.
type Client struct {
	conn *grpc.ClientConn
	stub wattmarkv1.TaskServiceClient
}

// Dial prepares a connection; nothing is sent before the first call, which
// fails with UNAVAILABLE when nobody answers. target is host:port, unix:path or
// any other gRPC target. Without options the connection is not encrypted; add
// grpc.WithTransportCredentials for TLS, or what auth.Client.DialOptions returns for TLS
// and a token.
func Dial(target string, options ...grpc.DialOption) (*Client, error) {
	all := append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(target, append(all, options...)...)
	if err != nil {
		return nil, fmt.Errorf("dial the task database at %s: %w", target, err)
	}
	return &Client{conn: conn, stub: wattmarkv1.NewTaskServiceClient(conn)}, nil
}

// Close ends all calls and the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Query selects tasks, newest first unless it has another order.
type Query struct {
	User string // empty for all
	// Name is a pattern: * is any text, ? any one character, \* and \? themselves;
	// empty for all.
	Name         string
	Job          string    // exact; empty for all
	Since, Until time.Time // launched at or after, and before; zero for all
	GPU          string    // a UUID, or a part of the model's name in either case
	Group        int64     // the measurement of several GPUs; 0 for all
	States       []State   // empty for all
	// Tags are all had, and of WithoutTags none: "key=value", or "key" alone for any
	// value. Search wants all of its words, or beginnings of words, in name, notes or
	// tags.
	Tags, WithoutTags []string
	Search            string
	Verdicts          []Verdict // empty for all
	// Limits of the window's energy and length, both included; 0 for none. With one of
	// them only tasks that have a window are selected.
	MinEnergy, MaxEnergy     measure.Joule
	MinDuration, MaxDuration measure.Seconds
	Order                    Order // 0 is ByID
	Ascending                bool  // otherwise the greatest or newest first
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
			if req.PageToken = res.NextPageToken; req.PageToken == "" {
				return
			}
		}
	}
}

// Task returns one task with all but its samples.
func (c *Client) Task(ctx context.Context, id int64) (Detail, error) {
	return c.TaskResult(ctx, id, 0)
}

// TaskResult returns one task with the result of a number, under its own
// calibration, in place of the one in use; NOT_FOUND when there is none.
func (c *Client) TaskResult(ctx context.Context, id int64, number uint32) (Detail, error) {
	res, err := c.stub.GetTask(ctx, &wattmarkv1.GetTaskRequest{TaskId: id, Result: number})
	if err != nil {
		return Detail{}, err
	}
	return parseDetail(res)
}

// User is a user with the number of their tasks.
type User struct {
	Name  string
	Tasks uint64
}

// Users returns all users that have tasks, by name.
func (c *Client) Users(ctx context.Context) ([]User, error) {
	res, err := c.stub.ListUsers(ctx, &wattmarkv1.ListUsersRequest{})
	if err != nil {
		return nil, err
	}
	var out []User
	for _, u := range res.Users {
		out = append(out, User{Name: u.GetUser(), Tasks: u.GetTasks()})
	}
	return out, nil
}

// Delete deletes one task with all that belongs to it; NOT_FOUND when there is none.
func (c *Client) Delete(ctx context.Context, id int64) error {
	_, err := c.stub.DeleteTasks(ctx, &wattmarkv1.DeleteTasksRequest{By: &wattmarkv1.DeleteTasksRequest_TaskId{TaskId: id}})
	return err
}

// DeleteByName deletes all tasks of exactly this name, but for pinned ones, and returns how many.
func (c *Client) DeleteByName(ctx context.Context, name string) (uint64, error) {
	res, err := c.stub.DeleteTasks(ctx, &wattmarkv1.DeleteTasksRequest{By: &wattmarkv1.DeleteTasksRequest_Name{Name: name}})
	return res.GetDeleted(), err
}

// DeleteByUser deletes all tasks of a user, but for pinned ones, and returns how many.
func (c *Client) DeleteByUser(ctx context.Context, user string) (uint64, error) {
	res, err := c.stub.DeleteTasks(ctx, &wattmarkv1.DeleteTasksRequest{By: &wattmarkv1.DeleteTasksRequest_User{User: user}})
	return res.GetDeleted(), err
}
