package auth

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Client holds the certificates and tokens by which a client and its servers know each
// other. The zero one speaks plain text, and is anonymous.
type Client struct {
	CA        string // file with the certificates that a server's must come from
	Cert, Key string // files of the client's own certificate; both or neither
	TokenFile string // a file with a token
	Token     string // the token itself, which goes before the file
}

// FromEnv fills in unset fields from WATTMARK_TLS_CA, WATTMARK_TLS_CERT,
// WATTMARK_TLS_KEY, WATTMARK_TOKEN_FILE and WATTMARK_TOKEN. A token has no flag: a
// command line can be read by others.
func (c Client) FromEnv() Client {
	c.CA = cmp.Or(c.CA, os.Getenv("WATTMARK_TLS_CA"))
	c.Cert = cmp.Or(c.Cert, os.Getenv("WATTMARK_TLS_CERT"))
	c.Key = cmp.Or(c.Key, os.Getenv("WATTMARK_TLS_KEY"))
	c.TokenFile = cmp.Or(c.TokenFile, os.Getenv("WATTMARK_TOKEN_FILE"))
	if c.TokenFile == os.Getenv("WATTMARK_TOKEN_FILE") { // a file that was named goes first
		c.Token = cmp.Or(c.Token, os.Getenv("WATTMARK_TOKEN"))
	}
	return c
}

// DialOptions returns the options for dialling a gRPC server, to be appended to the
// other options. TLS is spoken where there is a CA or a certificate, and where
// a token would leave this machine; a token goes in the clear to this machine alone.
func (c Client) DialOptions(target string) ([]grpc.DialOption, error) {
	if IsUnix(target) {
		return nil, nil // the kernel identifies the caller
	}
	token, secure, err := c.Secret(target)
	if err != nil {
		return nil, err
	}
	config, err := c.TLS()
	if err != nil {
		return nil, err
	}
	var options []grpc.DialOption
	if secure {
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{token, secure}))
	}
	return options, nil
}

// Secret is the token or the content of its file, empty for none, and whether TLS must be spoken to
// an address: where the server is to be known by a certificate, or this client is, and where a token
// would leave this machine.
func (c Client) Secret(target string) (token string, secure bool, err error) {
	if token = c.Token; token == "" && c.TokenFile != "" {
		token, err = readToken(c.TokenFile)
	}
	return token, c.CA != "" || c.Cert != "" || token != "" && !IsLoopback(target), err
}

// TLS is how the client speaks it: 1.3, with a server that the CA, or without one this
// machine's own list of them, vouches for.
func (c Client) TLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.CA != "" {
		pool, err := ReadCA(c.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("a client's certificate and its key belong together: name both (--tls-cert, --tls-key)")
	}
	if c.Cert != "" {
		pair, err := ReadPair(c.Cert, c.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{*pair}
	}
	return config, nil
}

// ReadCA reads the certificates that others must come from; there must be one.
func ReadCA(path string) (*x509.CertPool, error) {
	b, err := ReadPublic(path)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("CA: there is no certificate in %s", path)
	}
	return pool, nil
}

// ReadPair reads a certificate and its key.
func ReadPair(cert, key string) (*tls.Certificate, error) {
	c, err := ReadPublic(cert)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	k, err := ReadSecret(key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	return &pair, nil
}

// bearer gives a token with each call.
type bearer struct {
	token  string
	secure bool
}

// GetRequestMetadata is part of credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity is part of credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return b.secure }

// IsUnix reports whether a gRPC target is a unix socket.
func IsUnix(target string) bool {
	return strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:")
}

// IsLoopback reports whether a host and port are of this machine alone, by names and
// addresses that no other machine's owner can make point here.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback())
}

// ErrMode: others can read or change a file that must be kept from them.
var ErrMode = errors.New("others can get at this file")

// maxFile bounds the files that are read here, in bytes.
const maxFile = 8 << 20

// ReadSecret reads a file that only its owner, this user or root, may read; one that
// is root's may be read by a group too.
func ReadSecret(path string) ([]byte, error) { return readFile(path, true) }

// ReadPublic reads a file. It refuses one that others than this user and root may write.
func ReadPublic(path string) ([]byte, error) { return readFile(path, false) }

// readFile reads a file whose owner and mode are checked on the opened descriptor, so
// that no other file can take its place in between. Errors wrap ErrMode where others can
// get at it.
func readFile(path string, secret bool) ([]byte, error) {
	// What is no plain file is refused below, and not waited for here.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkMode(path, s, secret); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return b, err
}

// checkMode refuses files of other owners than this user and root, and modes that let
// others write, or read a secret. A secret of root may be read by its group: services
// read it so.
func checkMode(path string, s fs.FileInfo, secret bool) error {
	if !s.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: it is no plain file", path, ErrMode)
	}
	// −1 where the system has no owners: then the mode alone counts.
	uid := -1
	if st, ok := s.Sys().(*syscall.Stat_t); ok {
		uid = int(st.Uid)
	}
	if uid > 0 && uid != os.Geteuid() && os.Geteuid() != 0 {
		return fmt.Errorf("%s: %w: it belongs to user %d, not to this user or root: chown %d %[1]s", path, ErrMode, uid, os.Geteuid())
	}
	forbidden, want := fs.FileMode(0o022), "go-w"
	if secret {
		forbidden, want = 0o077, "go="
		if uid == 0 {
			forbidden, want = 0o037, "g-w,o="
		}
	}
	if p := s.Mode().Perm(); p&forbidden != 0 {
		return fmt.Errorf("%s: %w: its mode is %#o: chmod %s %s", path, ErrMode, uint32(p), want, path)
	}
	return nil
}

// WriteNew makes a file that must not be there yet.
func WriteNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Replace puts a file in another's place, whole or not at all; owner and mode stay.
func Replace(path string, data []byte, mode fs.FileMode) error {
	// In the same folder, so that the rename stays within one file system.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone, once it was renamed
	if s, err := os.Stat(path); err == nil {
		mode = s.Mode().Perm()
		if st, ok := s.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(st.Uid), int(st.Gid)) // a file that root replaces stays its owner's
		}
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// readToken reads a token from a file: its first line that is no comment.
func readToken(path string) (string, error) {
	b, err := ReadSecret(path)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line, nil
		}
	}
	return "", fmt.Errorf("token: %s is empty", path)
}
