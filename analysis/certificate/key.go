package certificate

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Key is an Ed25519 key of an issuer. A public one cannot sign.
type Key struct {
	Name    string
	Public  ed25519.PublicKey
	Expires time.Time
	private ed25519.PrivateKey
}

// ErrKey is wrapped by errors about texts that hold no key.
var ErrKey = errors.New("not a key of certificates")

// NewKey makes a key by the system's random numbers.
func NewKey(name string, expires time.Time) (*Key, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	return &Key{name, public, expires.UTC().Truncate(time.Second), private}, err
}

// ID returns the beginning of the SHA-256 of the public key.
func (k *Key) ID() string {
	sum := sha256.Sum256(k.Public)
	return hex.EncodeToString(sum[:8])
}

// publicWord begins the line of a public key.
const publicWord = "wattmark-key"

// PublicLine returns the public key as a line: the word, base64, expiry and name.
func (k *Key) PublicLine() string {
	return fmt.Sprintf("%s %s %s %s\n", publicWord, base64.StdEncoding.EncodeToString(k.Public),
		k.Expires.Format(time.RFC3339), k.Name)
}

// ParsePublic reads the line of PublicLine. Errors wrap ErrKey.
func ParsePublic(line string) (*Key, error) {
	words := strings.SplitN(strings.TrimSpace(line), " ", 4)
	if len(words) != 4 || words[0] != publicWord {
		return nil, fmt.Errorf("certificate: %w: want %s KEY EXPIRY NAME, as wattmark certificate key writes it", ErrKey,
			publicWord)
	}
	public, err := base64.StdEncoding.DecodeString(words[1])
	if err != nil || len(public) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("certificate: %w: %q is not the base64 of %d bytes", ErrKey, words[1],
			ed25519.PublicKeySize)
	}
	expires, err := time.Parse(time.RFC3339, words[2])
	if err != nil {
		return nil, fmt.Errorf("certificate: %w: expiry: %w", ErrKey, err)
	}
	return &Key{Name: words[3], Public: public, Expires: expires}, nil
}

// PEM returns the private key as PKCS #8, which openssl and cosign read.
func (k *Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// Private joins the PEM of a private key to its public one. Errors wrap ErrKey.
func (k *Key) Private(text []byte) (*Key, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("certificate: %w: no PEM in it", ErrKey)
	}
	v, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := v.(ed25519.PrivateKey)
	if err != nil || !ok || !k.Public.Equal(private.Public()) {
		return nil, fmt.Errorf("certificate: %w: no Ed25519 key that belongs to the public one of %s", ErrKey, k.Name)
	}
	full := *k
	full.private = private
	return &full, nil
}
