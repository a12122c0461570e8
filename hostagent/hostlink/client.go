package hostlink

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
)

// callTime is how long a daemon has to answer a short call.
const callTime = 15 * time.Second

// Client talks to the daemon at one socket. It is safe for concurrent use.
type Client struct {
	path string
	conn *grpc.ClientConn
	rpc  wattmarkv1.HostServiceClient
}

// Dial prepares a client of the daemon at a unix socket. The first call tells
// whether it answers.
func Dial(path string) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///host", append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}))...)
	if err != nil {
		return nil, fmt.Errorf("wattmark host at %s: %w", path, err)
	}
	return &Client{path: path, conn: conn, rpc: wattmarkv1.NewHostServiceClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Description is what a daemon says of itself.
type Description struct {
	Version  string
	PID      int
	Database string // an absolute path
	Monitor  string // host:port
	Started  time.Time
}

// Describe asks the daemon for itself. ErrUnreachable when nobody answers.
func (c *Client) Describe(ctx context.Context) (Description, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := c.rpc.Describe(ctx, &wattmarkv1.DescribeRequest{})
	if err != nil {
		return Description{}, c.fail(err)
	}
	at, err := wire.ParseTime("started", r.Started)
	return Description{Version: r.Version, PID: int(r.Pid), Database: r.Database, Monitor: r.Monitor, Started: at}, err
}

// fail says what the matter with a call was that never became a measurement.
func (c *Client) fail(err error) error {
	s := status.Convert(err)
	hint := "is wattmark host running there? start it, remove the socket, or set WATTMARK_HOST=none to measure without it"
	if s.Code() == codes.Unimplemented {
		hint = "what listens there is no wattmark host of this version"
	}
	return fmt.Errorf("%w: %s: %s; %s", ErrUnreachable, c.path, s.Message(), hint)
}

// program names this process's program.
func program() string { return filepath.Base(os.Args[0]) }
