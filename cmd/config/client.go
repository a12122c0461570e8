package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/monitor/regular"
)

// Settings are the values that a client uses where neither the command line nor the
// environment has them. Empty fields are not set.
type Settings struct {
	Monitor   string `yaml:"monitor,omitempty"`
	Host      string `yaml:"host,omitempty"`
	DB        string `yaml:"db,omitempty"`
	User      string `yaml:"user,omitempty"`
	GPU       string `yaml:"gpu,omitempty"`
	TLSCA     string `yaml:"tls_ca,omitempty"`
	TLSCert   string `yaml:"tls_cert,omitempty"`
	TLSKey    string `yaml:"tls_key,omitempty"`
	TokenFile string `yaml:"token_file,omitempty"`
}

// Field returns the field of a key, such as tls_ca; nil for an unknown one.
func (s *Settings) Field(key string) *string {
	return map[string]*string{
		"monitor": &s.Monitor, "host": &s.Host, "db": &s.DB, "user": &s.User, "gpu": &s.GPU,
		"tls_ca": &s.TLSCA, "tls_cert": &s.TLSCert, "tls_key": &s.TLSKey, "token_file": &s.TokenFile,
	}[key]
}

// Keys are the keys of Settings, in the order of its fields.
func Keys() []string {
	return []string{"monitor", "host", "db", "user", "gpu", "tls_ca", "tls_cert", "tls_key", "token_file"}
}

// ClientFile is one file of client settings: those that always hold, and named contexts, one
// of which may be in use. A context's settings have precedence.
type ClientFile struct {
	Context  string `yaml:"context,omitempty"`
	Settings `yaml:",inline"`
	Contexts map[string]*Settings `yaml:"contexts,omitempty"`

	path     string
	comments yaml.CommentMap
}

// ReadClient reads a file of client settings; a missing file has none. Errors name line and
// column.
func ReadClient(path string) (*ClientFile, error) {
	data, err := read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return ParseClient(path, data)
}

// ParseClient reads client settings from a file's text.
func ParseClient(path string, data []byte) (*ClientFile, error) {
	f, comments := &ClientFile{}, yaml.CommentMap{}
	err := yaml.UnmarshalWithOptions(data, f, yaml.Strict(), yaml.CommentToMap(comments))
	f.path, f.comments = path, comments
	var ye yaml.Error
	switch {
	case errors.As(err, &ye) && ye.GetToken() != nil:
		at, message := ye.GetToken().Position, regular.YAMLMessage(ye.GetMessage())
		if strings.HasPrefix(message, "unknown field") {
			message += ": there are context, contexts, " + strings.Join(Keys(), ", ")
		}
		return nil, fmt.Errorf("%s:%d:%d: %s", path, at.Line, at.Column, message)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = map[string]*Settings{}
	}
	for name, s := range f.Contexts {
		if s == nil {
			f.Contexts[name] = &Settings{}
		}
	}
	return f, nil
}

// Write replaces the file, whole or not at all, and makes its folder. Comments stay. A file
// without settings stays too.
func (f *ClientFile) Write() error {
	b, err := yaml.MarshalWithOptions(f, yaml.WithComment(f.comments))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	return auth.Replace(f.path, b, 0o600)
}

// Client is the configuration of a client: the user's file, then the machine's.
type Client struct {
	Files   []*ClientFile
	Context string // in use; empty for none
}

// The places of the client configuration: WATTMARK_CONFIG names one file in their place, or
// is "none".
const (
	systemClient = "/etc/wattmark/client.yaml"
	clientEnv    = "WATTMARK_CONFIG"
)

// UserFile returns the path of the user's file, which config set writes.
func UserFile() (string, error) {
	if path := os.Getenv(clientEnv); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "wattmark", "config.yaml"), err
}

// OpenClient reads the client configuration. context is the one to use, empty for
// WATTMARK_CONTEXT or that of the files; an unknown one is an error that lists those there are.
func OpenClient(context string) (*Client, error) {
	c := &Client{}
	paths := []string{systemClient}
	// A user without a home has the machine's file alone.
	if user, err := UserFile(); err == nil {
		paths = []string{user, systemClient}
	}
	switch set := os.Getenv(clientEnv); set {
	case "":
	case "none":
		paths = nil
	default:
		paths = []string{set}
	}
	c.Context = cmp.Or(context, os.Getenv("WATTMARK_CONTEXT"))
	for _, path := range paths {
		f, err := ReadClient(path)
		if err != nil {
			return nil, err
		}
		c.Files = append(c.Files, f)
		c.Context = cmp.Or(c.Context, f.Context)
	}
	if names := c.Contexts(); c.Context != "" && !slices.Contains(names, c.Context) {
		there := "there is none: wattmark config set monitor ADDRESS --context " + c.Context + " makes it"
		if len(names) > 0 {
			there = "there are " + strings.Join(names, ", ")
		}
		return nil, fmt.Errorf("no context is named %q: %s", c.Context, there)
	}
	return c, nil
}

// Contexts returns the names of all contexts, sorted.
func (c *Client) Contexts() []string {
	all := map[string]*Settings{}
	for _, f := range c.Files {
		maps.Copy(all, f.Contexts)
	}
	return slices.Sorted(maps.Keys(all))
}

// Value returns the value of a key and its source, both empty where it is not set: a variable
// of the environment, else the context in use, else what holds in all contexts.
func (c *Client) Value(key string) (value, source string) {
	env := "WATTMARK_" + strings.ToUpper(key)
	// WATTMARK_HOST=none is for programs that are to measure without a daemon.
	if v := os.Getenv(env); v != "" && (key != "host" || v != "none") {
		return v, env
	}
	if key == "token_file" && os.Getenv("WATTMARK_TOKEN") != "" {
		return "", "" // a token of the environment has precedence over a file of the configuration
	}
	for _, f := range c.Files {
		if s := f.Contexts[c.Context]; s != nil && *s.Field(key) != "" {
			return f.located(key, *s.Field(key)), "context " + c.Context + " of " + f.path
		}
	}
	for _, f := range c.Files {
		if v := *f.Field(key); v != "" {
			return f.located(key, v), f.path
		}
	}
	return "", ""
}

// located returns a value with ~/ replaced by the home folder; a relative path of a
// certificate, key or token is relative to the file's folder.
func (f *ClientFile) located(key, value string) string {
	if rest, ok := strings.CutPrefix(value, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if isFile(key) && !filepath.IsAbs(value) {
		return filepath.Join(filepath.Dir(f.path), value)
	}
	return value
}

// isFile reports whether the value of a key is the path of a certificate, key or token.
func isFile(key string) bool { return strings.HasPrefix(key, "tls_") || key == "token_file" }

// Typed returns a value for a file from one of the command line, whose relative paths are of the working directory.
func Typed(key, value string) (string, error) {
	if !isFile(key) || value == "" || strings.HasPrefix(value, "~/") {
		return value, nil
	}
	return filepath.Abs(value)
}
