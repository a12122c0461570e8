//go:build !linux

package web

import "net"

// keepLittle does nothing: the system's own buffers must do.
func keepLittle(net.Conn) {}
