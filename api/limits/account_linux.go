package limits

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// accountOf returns the account that made a connection within this machine: the owner of
// the socket at its other end, by the kernel's table of sockets.
func accountOf(c net.Conn) (uid uint32, ok bool) {
	far, err1 := netip.ParseAddrPort(c.RemoteAddr().String())
	near, err2 := netip.ParseAddrPort(c.LocalAddr().String())
	if err1 != nil || err2 != nil {
		return 0, false
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		uid, ok = ownerIn(f, far, near)
		_ = f.Close()
		if ok {
			return uid, true
		}
	}
	return 0, false
}

// established is the state of a connection that is open, as the table names it.
const established = "01"

// ownerIn finds the owner of an open socket in a table as /proc/net/tcp, by the socket's
// own address and its peer's.
func ownerIn(table io.Reader, local, peer netip.AddrPort) (uid uint32, ok bool) {
	for lines := bufio.NewScanner(table); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 8 || f[3] != established || !isEnd(f[1], local) || !isEnd(f[2], peer) {
			continue
		}
		n, err := strconv.ParseUint(f[7], 10, 32)
		return uint32(n), err == nil
	}
	return 0, false
}

// isEnd reports whether a table's entry is an address: words of 32 bits in the
// machine's order, in hexadecimal, and the port. An IPv4 address can stand in the table
// of IPv6 as well.
func isEnd(entry string, a netip.AddrPort) bool {
	return entry == endText(a.Addr().Unmap().AsSlice(), a.Port()) || a.Addr().Unmap().Is4() && entry == endText(mapped(a.Addr()), a.Port())
}

func mapped(a netip.Addr) []byte {
	b := netip.AddrFrom4(a.Unmap().As4()).As16()
	return b[:]
}

func endText(address []byte, port uint16) string {
	var s strings.Builder
	for ; len(address) >= 4; address = address[4:] {
		fmt.Fprintf(&s, "%08X", binary.NativeEndian.Uint32(address))
	}
	fmt.Fprintf(&s, ":%04X", port)
	return s.String()
}
