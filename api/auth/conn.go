package auth

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

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
