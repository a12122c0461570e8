package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Client says how a client knows its servers, and what it tells them of itself. The
// zero one speaks as before: plainly, and as nobody.
type Client struct {
	CA        string // file with the certificates that a server's must come from
	Cert, Key string // files of the client's own certificate; both or neither
	TokenFile string // a file with a token
	Token     string // the token itself, which goes before the file
}

// FromEnv fills in what is not said from WATTMARK_TLS_CA, WATTMARK_TLS_CERT,
// WATTMARK_TLS_KEY, WATTMARK_TOKEN_FILE and WATTMARK_TOKEN. A token has no flag: what
// stands on a command line can be read by others.
func (c Client) FromEnv() Client {
	for _, f := range []struct {
		to  *string
		env string
	}{
		{&c.CA, "WATTMARK_TLS_CA"}, {&c.Cert, "WATTMARK_TLS_CERT"}, {&c.Key, "WATTMARK_TLS_KEY"}, {&c.TokenFile, "WATTMARK_TOKEN_FILE"},
	} {
		if *f.to == "" {
			*f.to = os.Getenv(f.env)
		}
	}
	if c.Token == "" && c.TokenFile == os.Getenv("WATTMARK_TOKEN_FILE") { // a file that was named goes first
		c.Token = os.Getenv("WATTMARK_TOKEN")
	}
	return c
}

// DialOptions are what a gRPC client of an address is dialled with, behind what it is
// dialled with otherwise. TLS is spoken where there is a CA or a certificate, and where
// a token would leave this machine; a token goes in the clear to this machine alone.
func (c Client) DialOptions(target string) ([]grpc.DialOption, error) {
	if IsUnix(target) {
		return nil, nil // the kernel says who asks
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

// Secret is the token, empty for none, and whether TLS must be spoken to an address: where
// the server is to be known by a certificate, or this client is, and where a token would
// leave this machine.
func (c Client) Secret(target string) (token string, secure bool, err error) {
	token, err = c.token()
	return token, c.CA != "" || c.Cert != "" || token != "" && !IsLoopback(target), err
}

func (c Client) token() (string, error) {
	if c.Token != "" || c.TokenFile == "" {
		return c.Token, nil
	}
	return readToken(c.TokenFile)
}

// TLS is how the client speaks it: 1.3, with a server that the CA, or without one this
// machine's own list of them, vouches for.
func (c Client) TLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.CA != "" {
		b, err := ReadPublic(c.CA)
		if err != nil {
			return nil, fmt.Errorf("CA: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("CA: there is no certificate in %s", c.CA)
		}
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

// IsLoopback reports whether a host and port are of this machine alone, by what no
// other machine's owner can make point here.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback())
}
