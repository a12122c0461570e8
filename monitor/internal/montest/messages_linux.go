package montest

import (
	"context"
	"os"
	"strings"
	"testing"

	scpiface "github.com/wattmark/wattmark/monitor/emulator/scpi"
	"github.com/wattmark/wattmark/monitor/transport"
	"golang.org/x/sys/unix"
)

// Messages puts an instrument on a socket that keeps messages whole, as the
// system's usbtmc driver does, until the test ends. It returns how to dial it,
// which works once.
func Messages(t *testing.T, s *scpiface.Session) func(context.Context) (transport.Conn, error) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("no SOCK_SEQPACKET here:", err)
	}
	if err := unix.SetsockoptTimeval(p[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
		t.Fatal(err)
	}
	// Like the system's driver it is read by a call that ends after a while, so that a time-out works;
	// and a message without a question mark has no answer that could be fetched.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		buf := make([]byte, 4096)
		for {
			n, err := unix.Read(p[1], buf)
			if n <= 0 || err != nil {
				return
			}
			s.Send(string(buf[:n]))
			if strings.Contains(string(buf[:n]), "?") {
				if r, ok := s.Receive(); ok {
					_, _ = unix.Write(p[1], r)
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = unix.Shutdown(p[1], unix.SHUT_RDWR)
		<-gone
		_ = unix.Close(p[1])
	})
	return func(context.Context) (transport.Conn, error) {
		return transport.NewMessages(os.NewFile(uintptr(p[0]), "usbtmc"), "usbtmc:test", nil), nil
	}
}
