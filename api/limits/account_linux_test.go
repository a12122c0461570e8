package limits

import (
	"net"
	"os"
	"testing"
)

// The kernel is asked for one socket, however many there are; one that is closed, or is
// none, has no owner.
func TestOwnersOfSockets(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Log(err)
			continue
		}
		defer l.Close()
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		if uid, ok := accountOf(far); !ok || uid != uint32(os.Getuid()) {
			t.Errorf("%s: uid %d, %v; want %d", address, uid, ok, os.Getuid())
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is closed", func() bool { _, ok := accountOf(far); return !ok })
	}
	for _, answer := range [][]byte{nil, make([]byte, 20), make([]byte, 200)} {
		if _, ok := diagOwner(answer); ok {
			t.Errorf("%d bytes have an owner", len(answer))
		}
	}
}

func BenchmarkAccountOf(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer far.Close()
	for b.Loop() {
		if _, ok := accountOf(far); !ok {
			b.Fatal("no owner")
		}
	}
}
