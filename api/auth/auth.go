// Package auth identifies callers and decides which calls they may make.
//
// It stands on both sides of the wire and knows neither: a server guards its calls
// with a Guard, a client is dialled with the options of a Client. A caller is known by a
// token, a client certificate of a private CA (package pki), or, on a unix socket, by
// the account that the kernel names.
//
//	role      may
//	viewer    read
//	measurer  measure, and change and delete their own tasks
//	operator  end and release captures of others: the bench is theirs to run
//	admin     delete tasks of others; look into the program
//
// Rows is the whole table of calls. A call that has no row is refused.
//
// Where no authentication is configured callers are not identified: From then returns
// false, and Own and May refuse nothing.
package auth

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Errors that refusals wrap.
var (
	// ErrUnknown: the caller is not identified, or its credential has ended.
	ErrUnknown = errors.New("not signed in")
	// ErrDenied: the caller is identified and lacks the right.
	ErrDenied = errors.New("not allowed")
	// ErrRegistry: the list of tokens cannot be read now.
	ErrRegistry = errors.New("the list of tokens cannot be read")
)

// Kind is the means by which a caller was identified.
type Kind string

// The kinds.
const (
	ByToken       Kind = "token"
	ByCertificate Kind = "certificate"
	ByAccount     Kind = "account" // of this machine, at the other end of a unix socket
)

// Identity is an identified caller.
type Identity struct {
	// Name is the user that tasks and captures belong to. Two credentials of one name
	// are one user.
	Name string `json:"name"`
	Role Role   `json:"role"`
	By   Kind   `json:"by"`
	// ID is the token's id, the certificate's serial number in hexadecimal, or the
	// account's number.
	ID string `json:"id"`
	// Expires is when the credential does; zero for never.
	Expires time.Time `json:"expires,omitzero"`
}

// maxName is the longest name of a user, in bytes.
const maxName = 64

// CheckName refuses a name that cannot be shown, or that looks like two.
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("a name of %d bytes: want 1 to %d", len(name), maxName)
	}
	if err := measure.CheckText("name", name); err != nil {
		return err
	}
	if i := strings.IndexAny(name, " @/,="); i >= 0 {
		return fmt.Errorf("name %q: %q cannot be in a user's name", name, name[i])
	}
	return nil
}

// caller is an identified caller and its address, which is empty for none.
type caller struct {
	Who  Identity `json:"who"`
	From string   `json:"from"`
}

type callerKey struct{}

// With returns a context with the identity of the caller.
func With(ctx context.Context, i Identity) context.Context { return WithFrom(ctx, i, "") }

// WithFrom returns a context with the identity and the address of the caller.
func WithFrom(ctx context.Context, i Identity, from string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{i, from})
}

// From returns the caller's identity; false where the service does not identify callers.
func From(ctx context.Context) (Identity, bool) {
	c, ok := ctx.Value(callerKey{}).(caller)
	return c.Who, ok
}

// May returns an error unless the caller has at least a role. It allows every caller of a service
// without authentication.
func May(ctx context.Context, role Role) error {
	i, known := From(ctx)
	if !known || i.Role >= role {
		return nil
	}
	return i.less(role)
}

// less returns the refusal of an identity below a role: ErrUnknown for an anonymous
// caller, which may sign in, and ErrDenied for any other.
func (i Identity) less(role Role) error {
	if i.Role == Nobody {
		return fmt.Errorf("%w: this needs the role %v: %s", ErrUnknown, role, howTo)
	}
	return fmt.Errorf("%w: %s is %v, and this needs the role %v", ErrDenied, i.Name, i.Role, role)
}

// Own returns an error unless the caller owns a thing or has at least the role over. A thing
// without an owner needs that role.
func Own(ctx context.Context, what, owner string, over Role) error {
	i, known := From(ctx)
	switch {
	case !known || i.Role >= over || i.Name == owner && i.Role >= Measurer:
		return nil
	case i.Role < Measurer:
		return i.less(Measurer)
	case owner == "":
		return fmt.Errorf("%w: %s is nobody's by name; touching it needs the role %v, and %s is %v", ErrDenied, what,
			over, i.Name, i.Role)
	}
	return fmt.Errorf("%w: %s belongs to %s; touching it needs the role %v, and %s is %v", ErrDenied, what,
		measure.Printable(owner), over, i.Name, i.Role)
}

// User returns the user that a measurement is for: the caller's own name, or the name
// asked for where the caller may act for others (Operator).
func User(ctx context.Context, said string) string {
	if i, known := From(ctx); known && i.Role < Operator {
		return i.Name
	}
	return said
}

// Role is a set of rights; each includes those before it.
type Role uint8

// The roles.
const (
	Nobody Role = iota // a caller that is not identified
	Viewer
	Measurer
	Operator
	Admin
)

var roleNames = [...]string{"nobody", "viewer", "measurer", "operator", "admin"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// ParseRole reads the name of a role other than Nobody.
func ParseRole(s string) (Role, error) {
	for r := Viewer; r <= Admin; r++ {
		if r.String() == s {
			return r, nil
		}
	}
	return Nobody, fmt.Errorf("no such role: %q: want viewer, measurer, operator or admin", s)
}

// MarshalText writes the role's name.
func (r Role) MarshalText() ([]byte, error) {
	if r < Viewer || r > Admin {
		return nil, fmt.Errorf("%v cannot be given to anybody", r)
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads the role's name.
func (r *Role) UnmarshalText(b []byte) (err error) {
	*r, err = ParseRole(string(b))
	return err
}

// Row is the role that a call needs, and whether it is audited.
type Row struct {
	Role Role
	// Changes: the call changes something, and is kept in the audit log also where it
	// was allowed. What is refused is kept always.
	Changes bool
	// Reads: the call hands out measured data, and is kept where Config.Reads asks
	// for it.
	Reads bool
}

const (
	monitorService = "/wattmark.v1.MonitorService/"
	taskService    = "/wattmark.v1.TaskService/"
	hostService    = "/wattmark.v1.HostService/"
	benchService   = "/wattmark.v1.BenchService/"
	reportService  = "/wattmark.v1.ReportService/"
	healthService  = "/grpc.health.v1.Health/"
)

// Rows gives the least role of each call by its full name. The owner of a capture or a task is
// checked where it is known: see Own.
var Rows = map[string]Row{
	monitorService + "GetBench":       {Role: Viewer},
	monitorService + "ListCaptures":   {Role: Viewer, Reads: true},
	monitorService + "WatchRails":     {Role: Viewer, Reads: true},
	monitorService + "ReadCapture":    {Role: Viewer, Reads: true},
	monitorService + "StartCapture":   {Role: Measurer, Changes: true},
	monitorService + "RenewLease":     {Role: Measurer},                // of others: operator
	monitorService + "StopCapture":    {Role: Measurer, Changes: true}, // of others: operator
	monitorService + "EndCapture":     {Role: Operator, Changes: true},
	monitorService + "ReleaseCapture": {Role: Measurer, Changes: true}, // of others: operator
	monitorService + "ForgetChunks":   {Role: Measurer, Changes: true}, // of others: operator

	taskService + "ListTasks":     {Role: Viewer, Reads: true},
	taskService + "GetTask":       {Role: Viewer, Reads: true},
	taskService + "ListUsers":     {Role: Viewer},
	taskService + "ReadSamples":   {Role: Viewer, Reads: true},
	taskService + "ReadEnvelope":  {Role: Viewer, Reads: true},
	taskService + "ReadEnergy":    {Role: Viewer, Reads: true},
	taskService + "ReadTimeline":  {Role: Viewer, Reads: true},
	taskService + "ReadKernels":   {Role: Viewer, Reads: true},
	taskService + "ReadReadings":  {Role: Viewer, Reads: true},
	taskService + "ReadRanges":    {Role: Viewer, Reads: true},
	taskService + "Aggregate":     {Role: Viewer, Reads: true},
	taskService + "WatchTasks":    {Role: Viewer, Reads: true},
	taskService + "ReadTasks":     {Role: Viewer, Reads: true},
	taskService + "StoreTasks":    {Role: Measurer, Changes: true}, // as the caller's own
	taskService + "DeleteTasks":   {Role: Measurer, Changes: true}, // of others: admin
	taskService + "UpdateTask":    {Role: Measurer, Changes: true}, // of others: operator
	taskService + "BeginWindow":   {Role: Measurer, Changes: true}, // of others' tasks: operator
	taskService + "EndWindow":     {Role: Measurer, Changes: true}, // the same
	taskService + "RecordWindows": {Role: Measurer, Changes: true}, // the same
	taskService + "ReadWindows":   {Role: Viewer, Reads: true},
	taskService + "CreateNote":    {Role: Measurer, Changes: true}, // of others: operator
	taskService + "DeleteNote":    {Role: Measurer, Changes: true}, // of others: operator
	taskService + "TrimTask":      {Role: Measurer, Changes: true}, // of others: operator
	taskService + "ReadExport":    {Role: Viewer, Reads: true},

	benchService + "ListBenches":    {Role: Viewer},
	benchService + "ReadBench":      {Role: Viewer, Reads: true},
	benchService + "WatchBenches":   {Role: Viewer, Reads: true},
	benchService + "StartRecording": {Role: Operator, Changes: true},
	benchService + "StopRecording":  {Role: Operator, Changes: true},

	reportService + "ListSensors":      {Role: Viewer},
	reportService + "ListSensorErrors": {Role: Viewer},
	reportService + "ReadValidation":   {Role: Viewer, Reads: true},
	reportService + "ListValidations":  {Role: Viewer, Reads: true},
	reportService + "ReadComparison":   {Role: Viewer, Reads: true},
	reportService + "ReadSwings":       {Role: Viewer, Reads: true},

	hostService + "Describe": {Role: Viewer},
	hostService + "Measure":  {Role: Measurer, Changes: true},

	// Who watches over a service need not be let in.
	healthService + "Check": {Role: Nobody},
	healthService + "List":  {Role: Viewer},
	healthService + "Watch": {Role: Viewer},

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {Role: Viewer},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {Role: Viewer},
}

// A server's connections are of three kinds, and the peer of each is identified in its
// own way: TLS by a certificate, a unix socket by the account, a pipe within this
// program by the identity that its other end relays. All others are plain TCP.

// Kinds of connections without TLS whose peers are known.
const (
	account = "account" // a unix socket: the account at its other end
	inside  = "inside"  // a pipe within this program
)

// Inside marks a listener's connections as coming from within this program: the
// identities that they relay are trusted. The other end is dialled with RelayOptions.
func Inside(l net.Listener) net.Listener { return insideListener{l} }

type insideListener struct{ net.Listener }

// Accept marks the connection as one from within this program.
func (l insideListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return insideConn{c}, err
}

type insideConn struct{ net.Conn }

// handshakes are the transport credentials of a server: those of TLS, or of plain text. gRPC
// calls a server's ServerHandshake and Info alone.
type handshakes struct {
	credentials.TransportCredentials
}

// Handshakes are the transport credentials of a server that speaks TLS, to all but unix
// sockets and pipes within this program. c is nil where it is not spoken.
func Handshakes(c *tls.Config) credentials.TransportCredentials {
	if c == nil {
		return handshakes{insecure.NewCredentials()}
	}
	return handshakes{credentials.NewTLS(c)}
}

// ServerHandshake identifies the peer.
func (h handshakes) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	private := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	switch c := c.(type) {
	case insideConn:
		return c, local{private, inside, 0}, nil
	case *net.UnixConn:
		uid, err := peerAccount(c)
		return c, local{private, account, uid}, err
	}
	return h.TransportCredentials.ServerHandshake(c)
}

// peerAccount asks the kernel which account made a unix connection.
func peerAccount(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = cmp.Or(err, asked); err != nil {
		return 0, fmt.Errorf("who is at the other end of the socket: %w", err)
	}
	return cred.Uid, nil
}

// local is the other end of a unix socket, or of a pipe within this program.
type local struct {
	credentials.CommonAuthInfo
	kind string
	uid  uint32 // of the account
}

// AuthType is part of credentials.AuthInfo.
func (l local) AuthType() string { return l.kind }
