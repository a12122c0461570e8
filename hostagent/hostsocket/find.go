package hostsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Env names the daemon's socket, or says that there is none.
const Env = "WATTMARK_HOST"

// none, as a place, says that there is no daemon.
const none = "none"

const (
	folder = "wattmark"
	file   = "host.sock"
)

// shared is the folder of a daemon that serves several users.
var shared = "/run/" + folder

// ErrPlace: what is said of the daemon's socket cannot be.
var ErrPlace = errors.New("no place of a host daemon")

// Default is the socket that the daemon makes unless told otherwise.
func Default() string {
	if dir := runtimeDir(); dir != "" {
		return filepath.Join(dir, folder, file)
	}
	if unix.Access(shared, unix.W_OK) == nil {
		return filepath.Join(shared, file)
	}
	return temporary()
}

// runtimeDir is the user's own folder for sockets; empty for none. A relative one
// is to be passed over (XDG Base Directory Specification).
func runtimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return dir
	}
	return ""
}

func temporary() string {
	return filepath.Join(os.TempDir(), folder+"-"+strconv.Itoa(os.Getuid()), file)
}

// Find returns the socket of the daemon to measure through: the place that is
// given, else what WATTMARK_HOST says, else the first default place with a socket.
// It is empty where there is no daemon. That somebody listens is not looked at: a
// daemon that is there and does not answer is an error, which its first call tells.
func Find(place string) (string, error) {
	from := "host"
	if place == "" {
		place, from = os.Getenv(Env), Env
	}
	if place == "" {
		return findDefault(), nil
	}
	if place == none {
		return "", nil
	}
	path, ok := strings.CutPrefix(place, "unix:")
	if !ok || path == "" {
		return "", fmt.Errorf("%w: %s is %q: want unix:PATH, or none to measure without a daemon", ErrPlace, from, place)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%w: %s is %q: %w", ErrPlace, from, place, err)
	}
	return path, nil
}

func findDefault() string {
	var places []string
	if dir := runtimeDir(); dir != "" {
		places = append(places, filepath.Join(dir, folder, file))
	}
	places = append(places, filepath.Join(shared, file))
	if t := temporary(); ours(filepath.Dir(t)) {
		places = append(places, t)
	}
	for _, p := range places {
		if isSocket(p) {
			return p
		}
	}
	return ""
}

// ours reports whether a folder belongs to this user and nobody else may write
// there: in a folder for all, anybody could have put a socket of that name.
func ours(dir string) bool {
	var s unix.Stat_t
	return unix.Lstat(dir, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR && int(s.Uid) == os.Getuid() && s.Mode&0o022 == 0
}

func isSocket(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.Mode().Type() == fs.ModeSocket
}
