package auth_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/auth/pki"
)

const longEnough = 30 * time.Second

// lab is a folder with a CA, a server that asks, and its health service: Check is
// everybody's, List and Watch are a viewer's.
type lab struct {
	testing.TB
	dir, address string
	guard        *auth.Guard
	ca           *pki.CA
}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{TB: t, dir: filepath.Join(t.TempDir(), "auth")}
	now := time.Now()
	var err error
	if l.ca, err = pki.NewCA(l.dir, now); err != nil {
		t.Fatal(err)
	}
	l.files("server", func() (pki.Pair, error) { return l.ca.Server([]string{"lab"}, now, time.Hour) })
	if err := auth.Change(l.path(pki.Tokens), func(*auth.List) error { return nil }); err != nil {
		t.Fatal(err)
	}
	r, err := auth.OpenRegistry(l.path(pki.Tokens), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := pki.OpenServer(l.path(pki.ServerCert), l.path(pki.ServerKey), l.path(pki.CACert), nil)
	if err != nil {
		t.Fatal(err)
	}
	audit, err := auth.OpenAudit(l.path("audit"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = audit.Close() })
	l.guard = auth.New(auth.Config{Registry: r, Audit: audit})
	l.address = l.serve(l.listen("tcp", "127.0.0.1:0"), l.guard.ServerOptions(s.Config()))
	return l
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) files(name string, make func() (pki.Pair, error)) {
	l.Helper()
	p, err := make()
	if err == nil {
		err = errors.Join(auth.WriteNew(l.path(name+".key"), p.Key, 0o600), auth.WriteNew(l.path(name+".crt"), p.Cert, 0o644))
	}
	if err == nil {
		err = auth.Change(l.path(pki.Tokens), func(x *auth.List) error {
			x.Certificates = append(x.Certificates, p.Kept)
			return nil
		})
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) listen(network, address string) net.Listener {
	l.Helper()
	n, err := net.Listen(network, address)
	if err != nil {
		l.Fatal(err)
	}
	return n
}

func (l *lab) serve(n net.Listener, o []grpc.ServerOption) string {
	s := grpc.NewServer(o...)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- s.Serve(n) }()
	l.Cleanup(func() {
		s.Stop()
		<-done
	})
	return n.Addr().String()
}

func (l *lab) token(name string, role auth.Role, at time.Time, life time.Duration) string {
	l.Helper()
	text, t, err := auth.NewToken(name, role, at, life)
	if err == nil {
		err = auth.Change(l.path(pki.Tokens), func(x *auth.List) error {
			x.Tokens = append(x.Tokens, t)
			return nil
		})
	}
	if err != nil {
		l.Fatal(err)
	}
	return text
}

func (l *lab) revoke(what string) {
	l.Helper()
	if err := auth.Change(l.path(pki.Tokens), func(x *auth.List) error {
		if len(x.Revoke(what, time.Now())) == 0 {
			l.Errorf("nothing of %s was revoked", what)
		}
		return nil
	}); err != nil {
		l.Fatal(err)
	}
}

// dial returns a client of the health service.
func (l *lab) dial(target string, o ...grpc.DialOption) grpc_health_v1.HealthClient {
	l.Helper()
	c, err := grpc.NewClient(target, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, o...)...)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = c.Close() })
	return grpc_health_v1.NewHealthClient(c)
}

// as returns a client of the lab.
func (l *lab) as(c auth.Client) grpc_health_v1.HealthClient {
	l.Helper()
	o, err := c.DialOptions(l.address)
	if err != nil {
		l.Fatal(err)
	}
	return l.dial(l.address, o...)
}

// list makes a call that a viewer may make, and returns what became of it.
func (l *lab) list(c grpc_health_v1.HealthClient) error {
	ctx, cancel := context.WithTimeout(l.Context(), longEnough)
	defer cancel()
	_, err := c.List(ctx, &grpc_health_v1.HealthListRequest{})
	return err
}

func (l *lab) wants(what string, err error, code codes.Code, words ...string) {
	l.Helper()
	if status.Code(err) != code {
		l.Errorf("%s: %v, want %v", what, err, code)
	}
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			l.Errorf("%s: %v does not say %q", what, err, w)
		}
	}
}

func TestWhoGetsIn(t *testing.T) {
	l := newLab(t)
	now := time.Now()
	ca := l.path(pki.CACert)
	l.files("ada", func() (pki.Pair, error) { return l.ca.User("ada", auth.Viewer, now, time.Hour) })
	l.files("eve", func() (pki.Pair, error) { return l.ca.User("eve", auth.Viewer, now, time.Hour) })
	l.files("old", func() (pki.Pair, error) { return l.ca.User("old", auth.Viewer, now.Add(-2*time.Hour), time.Hour) })
	l.revoke("eve")
	other := newLab(t)
	other.files("ada", func() (pki.Pair, error) { return other.ca.User("ada", auth.Admin, now, time.Hour) })
	token := l.token("bob", auth.Viewer, now, time.Hour)
	revoked := l.token("mallory", auth.Admin, now, time.Hour)
	l.revoke("mallory")

	l.wants("a token", l.list(l.as(auth.Client{CA: ca, Token: token})), codes.OK)
	l.wants("a certificate", l.list(l.as(auth.Client{CA: ca, Cert: l.path("ada.crt"), Key: l.path("ada.key")})), codes.OK)
	l.wants("nobody", l.list(l.as(auth.Client{CA: ca})), codes.Unauthenticated, "--token-file")
	l.wants("an expired token", l.list(l.as(auth.Client{CA: ca, Token: l.token("bob", auth.Admin, now.Add(-2*time.Hour), time.Hour)})), codes.Unauthenticated, "expired")
	l.wants("a revoked token", l.list(l.as(auth.Client{CA: ca, Token: revoked})), codes.Unauthenticated, "revoked")
	l.wants("another lab's token", l.list(l.as(auth.Client{CA: ca, Token: other.token("bob", auth.Admin, now, time.Hour)})), codes.Unauthenticated, "not known here")
	l.wants("a revoked certificate", l.list(l.as(auth.Client{CA: ca, Cert: l.path("eve.crt"), Key: l.path("eve.key")})), codes.Unauthenticated, "revoked")
	l.wants("an expired certificate", l.list(l.as(auth.Client{CA: ca, Cert: l.path("old.crt"), Key: l.path("old.key")})), codes.Unavailable)
	l.wants("another CA's certificate", l.list(l.forced(other.path("ada.crt"), other.path("ada.key"))), codes.Unavailable)
	l.wants("a server's certificate", l.list(l.forced(l.path(pki.ServerCert), l.path(pki.ServerKey))), codes.Unavailable)
	l.wants("a revoked token with a good certificate", l.list(l.as(auth.Client{CA: ca, Cert: l.path("ada.crt"), Key: l.path("ada.key"), Token: revoked})), codes.Unauthenticated, "revoked")
	// The client's own side: it tells a token to nobody whom it does not know.
	l.wants("another CA", l.list(l.as(auth.Client{CA: other.path(pki.CACert), Token: token})), codes.Unavailable, "certificate")
	l.wants("no TLS", l.list(l.dial(l.address)), codes.Unavailable)
	l.wants("TLS 1.2", l.list(l.dial(l.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})))), codes.Unavailable, "protocol version")
	if _, err := l.as(auth.Client{CA: ca}).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("anybody may ask for health: %v", err)
	}
	if b, err := os.ReadFile(l.path("audit")); err != nil || strings.Contains(string(b), strings.Split(token, "_")[2]) || !strings.Contains(string(b), `"code":"Unauthenticated"`) {
		t.Errorf("%v %s", err, b)
	}
}

// forced is a client that shows a certificate whatever the server would take.
func (l *lab) forced(cert, key string) grpc_health_v1.HealthClient {
	l.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		l.Fatal(err)
	}
	return l.dial(l.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	})))
}

// What is said of who asks is looked at only where it comes from within the program.
func TestHeadersAreNotBelieved(t *testing.T) {
	l := newLab(t)
	c := l.as(auth.Client{CA: l.path(pki.CACert)})
	token := l.token("bob", auth.Viewer, time.Now(), time.Hour)
	for _, pairs := range [][]string{
		{"wattmark-relayed-bin", `{"who":{"name":"root","role":"admin","by":"account","id":"0"},"from":"x"}`},
		{"authorization", token},
		{"authorization", "Basic " + token},
		{"authorization", "Bearer "},
		{"authorization", "Bearer " + token, "authorization", "Bearer " + token},
		{"authorization", "Bearer " + strings.Repeat("a", 4096)},
		{"authorization", "Bearer wm_x_y'; DROP TABLE task; --"},
		{"authorization", "Bearer ../../../../etc/passwd"},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), pairs...)
		_, err := c.List(ctx, &grpc_health_v1.HealthListRequest{})
		l.wants(pairs[0], err, codes.Unauthenticated)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "bearer "+token)
	if _, err := c.List(ctx, &grpc_health_v1.HealthListRequest{}); err != nil {
		t.Error(err)
	}
}

// A stream of who is revoked, or has expired, ends.
func TestStreamsEndWithTheirRight(t *testing.T) {
	l := newLab(t)
	for name, cut := range map[string]func(){
		"ada": func() { l.revoke("ada") },
		"bob": func() {
			err := auth.Change(l.path(pki.Tokens), func(x *auth.List) error {
				for i := range x.Tokens {
					if x.Tokens[i].Name == "bob" {
						x.Tokens[i].Expires = time.Now().Add(-time.Second)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		},
	} {
		token := l.token(name, auth.Viewer, time.Now(), time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), longEnough)
		s, err := l.as(auth.Client{CA: l.path(pki.CACert), Token: token}).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		l.guard.Recheck()
		cut()
		l.guard.Recheck()
		_, err = s.Recv()
		l.wants(name, err, codes.Unauthenticated)
		cancel()
	}
}

// On a unix socket the kernel says who asks; a token is not needed, and does not help.
func TestSocketAndPipe(t *testing.T) {
	l := newLab(t)
	path := filepath.Join(l.dir, "s")
	var who auth.Identity
	look := grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		who, _ = auth.From(ctx)
		return h(ctx, req)
	})
	l.serve(l.listen("unix", path), append(auth.New(auth.Config{}).ServerOptions(nil), look))
	l.wants("this account", l.list(l.dial("unix:"+path)), codes.OK)
	if who.By != auth.ByAccount || who.Role != auth.Admin || who.Name == "" {
		t.Errorf("this account is %+v", who)
	}
	pipe := bufconn.Listen(1 << 16)
	l.serve(auth.Inside(pipe), append(l.guard.ServerOptions(nil), look))
	c := l.dial("passthrough:///x", append(auth.RelayOptions(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))...)
	_, err := c.List(auth.WithFrom(t.Context(), auth.Identity{Name: "ада", Role: auth.Viewer, By: auth.ByAccount}, "192.0.2.1:5"), &grpc_health_v1.HealthListRequest{})
	if err != nil || who.Name != "ада" || who.Role != auth.Viewer {
		t.Errorf("through the pipe: %+v %v", who, err)
	}
	l.wants("nobody, through the pipe", l.list(c), codes.Unauthenticated)
	ctx, end := context.WithCancelCause(auth.WithFrom(t.Context(), auth.Identity{Name: "ada", Role: auth.Viewer}, "192.0.2.1:5"))
	s, err := c.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	l.wants("a stream through the pipe", err, codes.OK)
	end(fmt.Errorf("%w: signed out", auth.ErrUnknown))
	_, err = s.Recv()
	l.wants("a stream whose caller signed out", err, codes.Unauthenticated)
	_, err = c.List(ctx, &grpc_health_v1.HealthListRequest{})
	l.wants("a call whose caller signed out", err, codes.Unauthenticated)
}

// A certificate that was renewed is shown from the next connection on; one that is
// broken is not.
func TestRenewal(t *testing.T) {
	l := newLab(t)
	seen := func() *x509.Certificate {
		t.Helper()
		config, err := auth.Client{CA: l.path(pki.CACert)}.TLS()
		if err != nil {
			t.Fatal(err)
		}
		config.ServerName, config.NextProtos = "lab", []string{"h2"}
		c, err := tls.Dial("tcp", l.address, config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0]
	}
	first := seen()
	if err := os.WriteFile(l.path(pki.ServerCert), []byte("broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !seen().Equal(first) {
		t.Error("a broken certificate changed something")
	}
	p, err := l.ca.Server([]string{"lab", "192.0.2.7"}, time.Now(), time.Hour)
	if err == nil {
		err = errors.Join(auth.Replace(l.path(pki.ServerKey), p.Key, 0o600), auth.Replace(l.path(pki.ServerCert), p.Cert, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := seen(); got.Equal(first) || auth.Serial(got) != p.Kept.Serial || len(got.IPAddresses) != 3 {
		t.Errorf("the new one is not shown: %v", got.IPAddresses)
	}
	if err := os.Chmod(l.path(pki.ServerKey), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.OpenServer(l.path(pki.ServerCert), l.path(pki.ServerKey), "", nil); !errors.Is(err, auth.ErrMode) {
		t.Errorf("a key that all may read: %v", err)
	}
	if _, err := l.ca.Server([]string{"lab:7551"}, time.Now(), time.Hour); err == nil {
		t.Error("a port is in a certificate")
	}
	if _, err := l.ca.User("a b", auth.Viewer, time.Now(), time.Hour); err == nil {
		t.Error("a name of two words is in a certificate")
	}
	if _, err := l.ca.User("ada", auth.Viewer, time.Now(), 20*365*24*time.Hour); err == nil {
		t.Error("a certificate outlives its CA")
	}
	if _, err := pki.NewCA(l.dir, time.Now()); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second CA: %v", err)
	}
}

// BenchmarkCall is a short call: plainly, and over TLS with a token that is asked for.
func BenchmarkCall(b *testing.B) {
	l := newLab(b)
	token := l.token("ada", auth.Viewer, time.Now(), time.Hour)
	for name, c := range map[string]grpc_health_v1.HealthClient{
		"plain": l.dial(l.serve(l.listen("tcp", "127.0.0.1:0"), nil)), "TLS and a token": l.as(auth.Client{CA: l.path(pki.CACert), Token: token}),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.List(b.Context(), &grpc_health_v1.HealthListRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// nobody is the number of an account that every Linux has.
const nobody = 65534

// dialAs connects to a socket as another account: its thread alone changes.
func dialAs(t *testing.T, uid int, path string) net.Conn {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	same := ^uintptr(0)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); e != 0 {
		t.Skipf("only root can be another account: %v", e)
	}
	defer func() {
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); e != 0 {
			panic(e) // the thread must not go on like that
		}
	}()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Another account is who the kernel says it is, and a measurer unless it was given
// another role.
func TestAnotherAccount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another account")
	}
	l := newLab(t)
	dir, err := os.MkdirTemp("", "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for role, accounts := range map[auth.Role]map[string]auth.Role{
		auth.Measurer: nil, auth.Operator: {"nobody": auth.Operator, "root": auth.Viewer},
	} {
		path := filepath.Join(dir, role.String())
		var who auth.Identity
		look := grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			who, _ = auth.From(ctx)
			return h(ctx, req)
		})
		l.serve(l.listen("unix", path), append(auth.New(auth.Config{Accounts: accounts}).ServerOptions(nil), look))
		for _, mode := range []struct {
			path string
			mode os.FileMode
		}{{dir, 0o755}, {path, 0o666}} {
			if err := os.Chmod(mode.path, mode.mode); err != nil {
				t.Fatal(err)
			}
		}
		c := dialAs(t, nobody, path)
		client := l.dial("passthrough:///x", grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return c, nil }))
		l.wants("nobody's call", l.list(client), codes.OK)
		if who.Name != "nobody" || who.Role != role || who.ID != "65534" || who.By != auth.ByAccount {
			t.Errorf("with %v: %+v", accounts, who)
		}
		l.wants("root's call", l.list(l.dial("unix:"+path)), codes.OK)
		if who.Role != auth.Admin { // root is root, whatever is said
			t.Errorf("root is %+v", who)
		}
	}
}
