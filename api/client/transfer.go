package client

import (
	"context"
	"errors"
	"io"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
)

// Fetch writes whole tasks as a SQLite task database, which package store opens. The file is
// whole where there is no error. NOT_FOUND means that a task does not exist,
// FAILED_PRECONDITION that one is being measured.
func (c *Client) Fetch(ctx context.Context, ids []int64, w io.Writer) error {
	for data, err := range items(ctx, func(ctx context.Context) (func() (*pb.ReadTasksResponse, error), error) {
		stream, err := c.stub.ReadTasks(ctx, &pb.ReadTasksRequest{TaskIds: ids})
		if err != nil {
			return nil, err
		}
		return stream.Recv, nil
	}, func(m *pb.ReadTasksResponse) ([]byte, error) { return m.GetData(), nil }) {
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
func (c *Client) Store(ctx context.Context, r io.Reader, keepUsers bool) (out []Stored, err error) {
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
	for _, t := range res.GetTasks() {
		out = append(out, Stored{t.GetFileTaskId(), t.GetTaskId(), t.GetKnown()})
	}
	return out, err
}
