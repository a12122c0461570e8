package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/store"
)

// Key names a task, or the source of its samples, in the streams: 32 hexadecimal digits.
type Key string

// Identity makes a task the same one in every database.
type Identity struct {
	Monitor    string `json:"monitor,omitempty"`
	Capture    string `json:"capture,omitempty"`
	LaunchedNS int64  `json:"launched_ns"`
	GPU        string `json:"gpu,omitempty"` // its UUID
	User       string `json:"user"`
	Name       string `json:"name"`
	Bench      string `json:"bench,omitempty"` // that the capture was made on
}

// IdentityOf returns a task's identity.
func IdentityOf(t *store.Task) Identity {
	i := Identity{Monitor: t.Monitor, Capture: t.CaptureID, GPU: t.GPUUUID, User: t.User, Name: t.Name}
	if t.CaptureID != "" {
		i.Bench = t.Bench
	}
	if !t.Launched.IsZero() {
		i.LaunchedNS = t.Launched.UnixNano()
	}
	return i
}

// partitionDigits are the digits of a key that choose the stream.
const partitionDigits = 4

// Key returns the first half of the SHA-256 over the identity, with its source's digits where they choose
// the partition: a capture's samples and all tasks made of them go through one stream.
func (i Identity) Key() Key {
	return i.Source()[:partitionDigits] + digest(i)[partitionDigits:]
}

// Source names the origin of the samples, which the host and the monitor both know: the
// capture and its bench. A task without a capture, such as an import, is its own source.
func (i Identity) Source() Key {
	if i.Capture == "" {
		return digest(i)
	}
	return digest(struct {
		Capture string `json:"capture"`
		Bench   string `json:"bench"`
	}{i.Capture, i.Bench})
}

// digest returns the first half of the SHA-256 over the JSON of v. Hosts, monitors and stores
// of all versions must agree on it: fields are never reordered.
func digest(v any) Key {
	b, err := json.Marshal(v)
	if err != nil { // of texts and a number there is none
		panic(err)
	}
	sum := sha256.Sum256(b)
	return Key(hex.EncodeToString(sum[:16]))
}

// bytes returns the key as pieces carry it.
func (k Key) bytes() (out [16]byte, err error) {
	b, err := hex.DecodeString(string(k))
	if err == nil && len(b) != len(out) {
		err = fmt.Errorf("%d bytes, want %d", len(b), len(out))
	}
	if err != nil {
		return out, fmt.Errorf("key %q: %w", string(k), err)
	}
	return [16]byte(b), nil
}

// Partition returns the stream, of so many, that the task goes through.
func (k Key) Partition(of int) int {
	b, err := k.bytes()
	if err != nil || of < 1 {
		return 0
	}
	return (int(b[0])<<8 | int(b[1])) % of
}

// MaxPartitions is the most streams that a cluster has: two hexadecimal digits.
const MaxPartitions = 256

// The kinds of messages, as subjects end.
const (
	kindChunk = "chunk" // of a source; its key is sourceItself
	kindIndex = "index" // the same: which chunks a monitor has published
	kindRest  = "rest"
	kindEnd   = "end"
	kindAside = "aside"
)

const subjectRoot = "wattmark"

// StreamName returns the name of a partition's stream.
func StreamName(partition int) string { return fmt.Sprintf("WATTMARK-%02X", partition) }

// sourceItself takes the key's place in subjects of samples, which any number of tasks share.
const sourceItself Key = "capture"

// publisher is a subject's publisher, which the nodes enforce: the name of a user with the
// right to publish under that name alone, in hexadecimal, and anyone for all others.
type publisher string

const (
	// anyone publishes for all users: an operator, or any client of a cluster without access control.
	anyone publisher = "_"
	// nobody publishes nothing: a reader.
	nobody publisher = ""
)

// publisherOf returns the publisher of a user with the right to publish under that name alone.
func publisherOf(user string) publisher { return publisher(hex.EncodeToString([]byte(user))) }

// user returns the only user that a publisher may publish for; empty for all.
func (p publisher) user() string {
	if name, err := hex.DecodeString(string(p)); err == nil {
		return string(name)
	}
	return ""
}

// publishesFor reports whether a publisher may publish tasks of a user.
func (p publisher) publishesFor(user string) bool { return p == anyone || p.user() == user }

// UserSubjects returns the subjects of a user with the right to publish under that name alone.
func UserSubjects(user string) []string {
	return lists.Map([]string{kindChunk, kindIndex, kindRest, kindEnd}, func(kind string) string {
		return fmt.Sprintf("%s.*.%s.*.*.%s", subjectRoot, publisherOf(user), kind)
	})
}

// AllSubjects returns the subjects of a publisher for all users.
func AllSubjects() []string { return []string{subjectRoot + ".>"} }

// subject returns the subject of messages of a kind; "*" for publisher, source, key or kind
// fits all of them.
func subject(partition int, by publisher, source, k Key, kind string) string {
	return fmt.Sprintf("%s.%02X.%s.%s.%s.%s", subjectRoot, partition, by, source, k, kind)
}

// address is the content of a subject.
type address struct {
	partition   int // −1 where there is none
	by          publisher
	source, key Key // empty where there is none, and for sourceItself
}

// parseSubject reads a subject; one of another form has the zero address of partition −1.
func parseSubject(s string) address {
	a := address{partition: -1}
	parts := strings.Split(s, ".")
	if len(parts) != 6 || parts[0] != subjectRoot {
		return a
	}
	if n, err := strconv.ParseUint(parts[1], 16, 8); err == nil {
		a.partition = int(n)
	}
	a.by = publisher(parts[2])
	for i, k := range []*Key{&a.source, &a.key} {
		if _, err := Key(parts[3+i]).bytes(); err == nil {
			*k = Key(parts[3+i])
		}
	}
	return a
}
