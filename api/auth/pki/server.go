package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"wattmark/api/auth"
)

// Server is a server's side of TLS. Its files are read again when they change, so that
// a certificate can be renewed while it serves.
type Server struct {
	cert, key string
	users     *x509.CertPool // whose certificates tell who somebody is; nil for nobody's
	log       *slog.Logger

	mu    sync.Mutex
	stamp [2]time.Time
	pair  *tls.Certificate
}

// OpenServer reads a server's certificate and key, and the CA of its users' ones, which
// may be empty for none.
func OpenServer(cert, key, users string, log *slog.Logger) (*Server, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cert: cert, key: key, log: log}
	if _, err := s.read(); err != nil {
		return nil, err
	}
	if users != "" {
		b, err := auth.ReadPublic(users)
		if err != nil {
			return nil, fmt.Errorf("CA: %w", err)
		}
		if s.users = x509.NewCertPool(); !s.users.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("CA: there is no certificate in %s", users)
		}
	}
	return s, nil
}

// read returns the certificate as it is now. One that has become unreadable leaves the
// old one in use.
func (s *Server) read() (*tls.Certificate, error) {
	var now [2]time.Time
	for i, name := range []string{s.cert, s.key} {
		if f, err := os.Stat(name); err == nil {
			now[i] = f.ModTime()
		}
	}
	s.mu.Lock()
	pair, fresh := s.pair, now == s.stamp
	s.mu.Unlock()
	if pair != nil && fresh {
		return pair, nil
	}
	// A file that hangs holds up who asks for it, and nobody else.
	pair, err := auth.ReadPair(s.cert, s.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamp = now
	switch {
	case err == nil:
		s.pair = pair
	case s.pair != nil:
		s.log.Error("the certificate stays as it was", "error", err)
	default:
		return nil, err
	}
	return s.pair, nil
}

// Config is the TLS that is spoken: 1.3. Who shows a certificate must show one of the
// CA; who shows none may still have a token.
func (s *Server) Config(protocols ...string) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.read() },
	}
	if s.users != nil {
		c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, s.users
	}
	return c
}

// Nodes is the TLS between servers that are one service together: each shows the other
// its server's certificate, and both must be of the CA. Users' certificates are of no use
// here. Errors where no CA was named.
func (s *Server) Nodes() (*tls.Config, error) {
	if s.users == nil {
		return nil, errors.New("servers know each other by certificates of a CA: name it (--client-ca), or a folder made by wattmark auth init")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: s.users,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.read() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.read() },
		ClientAuth:           tls.RequireAnyClientCert,
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 0 {
				return errors.New("a server without a certificate")
			}
			between := x509.NewCertPool()
			for _, x := range c.PeerCertificates[1:] {
				between.AddCert(x)
			}
			_, err := c.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: s.users, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			return err
		},
	}, nil
}

// Users reports whether users are known by certificates.
func (s *Server) Users() bool { return s.users != nil }

// Expires is when the server's certificate does.
func (s *Server) Expires() (time.Time, error) {
	p, err := s.read()
	if err != nil {
		return time.Time{}, err
	}
	return p.Leaf.NotAfter, nil
}

// errOther: somebody else answers at this server's own address.
var errOther = errors.New("another server's certificate")

// Itself is the TLS of a client that speaks to this very server alone, whatever name it
// is reached by.
func (s *Server) Itself() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The certificate is compared with the one that is ours, which says more than any CA.
		InsecureSkipVerify: true, // #nosec G402 -- VerifyConnection compares the certificate itself
		VerifyConnection: func(c tls.ConnectionState) error {
			p, err := s.read()
			if err != nil {
				return err
			}
			if len(c.PeerCertificates) == 0 || !bytes.Equal(c.PeerCertificates[0].Raw, p.Leaf.Raw) {
				return errOther
			}
			return nil
		},
	}
}
