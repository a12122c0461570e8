// Package pki makes and reads the files of TLS: a private CA, certificates of servers
// with all their names, certificates of users with their role, and a server's TLS
// configuration, which reads its files again when they change.
//
// Keys are ECDSA P-256. A user's certificate has the user's name as its common name and
// the role as its organizational unit. Everything lies in one folder:
//
//	ca.crt, ca.key           the CA; the key is needed only to make certificates
//	server.crt, server.key   a server's
//	tokens.json              tokens, and which certificates were revoked (package auth)
package pki

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/auth"
)

// The files of a folder.
const (
	CACert     = "ca.crt"
	CAKey      = "ca.key"
	ServerCert = "server.crt"
	ServerKey  = "server.key"
	Tokens     = "tokens.json"
)

// CALife is how long a CA lasts.
const CALife = 10 * 365 * 24 * time.Hour

// early is how much before its making a certificate holds: clocks differ.
const early = 10 * time.Minute

// CA is a private certification authority.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, as PEM.
type Pair struct {
	Cert, Key []byte
	// Kept is the certificate's entry in the list of tokens.
	Kept auth.Certificate
}

// NewCA makes a CA in a folder, which is made too. One that is there is not touched.
func NewCA(dir string, now time.Time) (*CA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, CACert)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("CA: %s: %w, and %s is not beside it: make certificates where the key is kept",
			filepath.Join(dir, CACert), fs.ErrExist, CAKey)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template(pkix.Name{CommonName: "wattmark CA", Organization: []string{"wattmark"}}, now, CALife)
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	p, err := sign(t, t, key, key)
	if err != nil {
		return nil, err
	}
	// The key first: a CA without one is of no use, and is made anew.
	if err := auth.WriteNew(filepath.Join(dir, CAKey), p.Key, 0o600); err != nil {
		return nil, err
	}
	if err := auth.WriteNew(filepath.Join(dir, CACert), p.Cert, 0o644); err != nil {
		return nil, err
	}
	return LoadCA(dir)
}

// LoadCA reads the CA of a folder.
func LoadCA(dir string) (*CA, error) {
	pair, err := auth.ReadPair(filepath.Join(dir, CACert), filepath.Join(dir, CAKey))
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("CA: %s is no CA of wattmark", filepath.Join(dir, CACert))
	}
	return &CA{pair.Leaf, key}, nil
}

// Server makes a certificate for a server's names and addresses; localhost is among
// them in any case.
func (ca *CA) Server(hosts []string, now time.Time, life time.Duration) (Pair, error) {
	t := template(pkix.Name{CommonName: hosts[0], Organization: []string{"wattmark"}}, now, life)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range append(hosts, "localhost", "127.0.0.1", "::1") {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if h == "" || strings.ContainsAny(h, " /:*@") {
			return Pair{}, fmt.Errorf("host %q: want a name or an address, without a port", h)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	p, err := ca.issue(t)
	p.Kept.Name = strings.Join(hosts, ",")
	return p, err
}

// User makes a client certificate with a user's name and role.
func (ca *CA) User(name string, role auth.Role, now time.Time, life time.Duration) (Pair, error) {
	if err := auth.CheckName(name); err != nil {
		return Pair{}, err
	}
	if role < auth.Viewer || role > auth.Admin {
		return Pair{}, fmt.Errorf("%v cannot be given to anybody", role)
	}
	t := template(pkix.Name{
		CommonName: name, OrganizationalUnit: []string{role.String()},
		Organization: []string{"wattmark"},
	}, now, life)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	p, err := ca.issue(t)
	p.Kept.Name, p.Kept.Role = name, role
	return p, err
}

// issue makes a key, signs a certificate for it with the CA's key and returns both as
// PEM.
func (ca *CA) issue(t *x509.Certificate) (Pair, error) {
	if t.NotAfter.After(ca.cert.NotAfter) {
		return Pair{}, fmt.Errorf("the CA expires before that, at %s", ca.cert.NotAfter.Format(time.RFC3339))
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	return sign(t, ca.cert, key, ca.key)
}

// template returns the fields that all certificates share: a random serial number of 127
// bits, and a validity that begins early, for clocks that lag.
func template(subject pkix.Name, now time.Time, life time.Duration) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	serial[0] &= 0x7f        // positive
	now = now.UTC().Truncate(time.Second)
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial), Subject: subject, NotBefore: now.Add(-early),
		NotAfter: now.Add(life),
	}
}

// sign signs a certificate for key with the key by of its parent, and returns certificate
// and key as PEM.
func sign(t, parent *x509.Certificate, key, by *ecdsa.PrivateKey) (Pair, error) {
	if !t.NotAfter.After(t.NotBefore.Add(early)) {
		return Pair{}, errors.New("a certificate must hold for some time")
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, by)
	if err != nil {
		return Pair{}, err
	}
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k}),
		Kept: auth.Certificate{Serial: auth.Serial(t), Created: t.NotBefore.Add(early), Expires: t.NotAfter},
	}, nil
}

// Server is a server's side of TLS. Its files are read again when they change, so that
// a certificate can be renewed while it serves.
type Server struct {
	cert, key string
	users     *x509.CertPool // whose certificates identify users; nil for none
	log       *slog.Logger

	mu    sync.Mutex
	stamp [2]time.Time
	pair  *tls.Certificate
}

// OpenServer reads a server's certificate and key, and the CA of its users' ones, which
// may be empty for none.
func OpenServer(cert, key, users string, log *slog.Logger) (*Server, error) {
	s := &Server{cert: cert, key: key, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
	_, err := s.read()
	if err == nil && users != "" {
		s.users, err = auth.ReadCA(users)
	}
	return s, err
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
	// A file that hangs delays only the call that reads it.
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
// CA; a caller without one may still have a token.
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
		return nil, errors.New("servers know each other by certificates of a CA: name it (--client-ca), " +
			"or a folder made by wattmark auth init")
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

// errOther means that another server answers at this server's own address.
var errOther = errors.New("another server's certificate")

// Itself is the TLS of a client that speaks to this very server alone, whatever name it
// is reached by.
func (s *Server) Itself() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The certificate is compared with our own one, which is stronger than any CA.
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
