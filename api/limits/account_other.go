//go:build !linux

package limits

import "net"

// accountOf is known on Linux alone.
func accountOf(net.Conn) (uint32, bool) { return 0, false }
