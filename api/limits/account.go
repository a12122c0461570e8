package limits

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// accountOf returns the account that made a connection within this machine: the owner of
// the socket at its other end. It is false where the kernel has no answer: the connection
// is closed, or sock_diag(7) is not to be had.
func accountOf(c net.Conn) (uid uint32, ok bool) {
	far, err1 := netip.ParseAddrPort(c.RemoteAddr().String())
	near, err2 := netip.ParseAddrPort(c.LocalAddr().String())
	if err1 != nil || err2 != nil {
		return 0, false
	}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, false
	}
	defer unix.Close(s)
	if err := unix.Sendto(s, diagRequest(far, near), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, false
	}
	// The kernel has answered by the time that sendto returns.
	answer := make([]byte, 1024)
	n, _, err := unix.Recvfrom(s, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, false
	}
	return diagOwner(answer[:n])
}

// Messages of sock_diag(7): struct nlmsghdr, then struct inet_diag_req_v2 or struct
// inet_diag_msg, in the machine's order but for ports and addresses.
const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	headerSize   = unix.SizeofNlMsghdr
	requestSize  = headerSize + 8 + 48
	ownerAt      = headerSize + 4 + 48 + 12
	established  = 1 // TCP_ESTABLISHED
)

// diagRequest asks for the one TCP socket with these ends. It is looked up, not searched
// for: the time does not depend on how many sockets there are.
func diagRequest(local, peer netip.AddrPort) []byte {
	b := make([]byte, requestSize)
	order := binary.NativeEndian
	order.PutUint32(b, requestSize)
	order.PutUint16(b[4:], diagByFamily)
	order.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[headerSize:]
	r[0], r[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if local.Addr().Unmap().Is4() {
		r[0] = unix.AF_INET
	}
	order.PutUint32(r[4:], 0xffffffff) // any state
	binary.BigEndian.PutUint16(r[8:], local.Port())
	binary.BigEndian.PutUint16(r[10:], peer.Port())
	copy(r[12:28], local.Addr().Unmap().AsSlice())
	copy(r[28:44], peer.Addr().Unmap().AsSlice())
	for i := 48; i < 56; i++ {
		r[i] = 0xff // no cookie
	}
	return b
}

// diagOwner returns the owner of the socket that an answer describes, if that is open.
func diagOwner(answer []byte) (uid uint32, ok bool) {
	if len(answer) < ownerAt+4 || binary.NativeEndian.Uint16(answer[4:]) != diagByFamily ||
		answer[headerSize+1] != established {
		return 0, false
	}
	return binary.NativeEndian.Uint32(answer[ownerAt:]), true
}
