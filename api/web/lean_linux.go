package web

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent is how much of an answer may wait in a socket for the network, in bytes. More
// would be old news when it comes to who watches over a slow line. How fast a line is
// does not suffer, as a small buffer for all that is on its way would make it.
const unsent = 16 << 10

// keepLittle bounds the bytes that a connection takes and cannot send yet to unsent.
// Where the system does not support it its own buffers must do.
func keepLittle(c net.Conn) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
		})
	}
}
