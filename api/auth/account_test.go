package auth_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"wattmark/api/auth"
)

// nobody is an account that every Linux has.
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
