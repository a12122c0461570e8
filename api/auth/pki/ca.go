package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"wattmark/api/auth"
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
	// Kept is what is kept of it.
	Kept auth.Certificate
}

// NewCA makes a CA in a folder, which is made too. One that is there is not touched.
func NewCA(dir string, now time.Time) (*CA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, CACert)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("CA: %s: %w, and %s is not beside it: make certificates where the key is kept", filepath.Join(dir, CACert), fs.ErrExist, CAKey)
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

// User makes a certificate that says who somebody is, and what they may do.
func (ca *CA) User(name string, role auth.Role, now time.Time, life time.Duration) (Pair, error) {
	if err := auth.CheckName(name); err != nil {
		return Pair{}, err
	}
	if role < auth.Viewer || role > auth.Admin {
		return Pair{}, fmt.Errorf("%v cannot be given to anybody", role)
	}
	t := template(pkix.Name{CommonName: name, OrganizationalUnit: []string{role.String()}, Organization: []string{"wattmark"}}, now, life)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	p, err := ca.issue(t)
	p.Kept.Name, p.Kept.Role = name, role
	return p, err
}

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

func template(subject pkix.Name, now time.Time, life time.Duration) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	serial[0] &= 0x7f        // positive
	now = now.UTC().Truncate(time.Second)
	return &x509.Certificate{SerialNumber: new(big.Int).SetBytes(serial), Subject: subject, NotBefore: now.Add(-early), NotAfter: now.Add(life)}
}

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
