package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"wattmark/store"
)

// Key names a task in the streams: 32 hexadecimal digits.
type Key string

// Identity is what a task is known by wherever it is stored.
type Identity struct {
	Monitor    string `json:"monitor,omitempty"`
	Capture    string `json:"capture,omitempty"`
	LaunchedNS int64  `json:"launched_ns"`
	GPU        string `json:"gpu,omitempty"` // its UUID
	User       string `json:"user"`
	Name       string `json:"name"`
	Bench      string `json:"bench,omitempty"` // that the capture was made on
}

// stored is the identity as a database takes it.
func (i Identity) stored() store.Identity {
	out := store.Identity{Monitor: i.Monitor, CaptureID: i.Capture, GPUUUID: i.GPU, User: i.User, Name: i.Name}
	if i.LaunchedNS != 0 {
		out.Launched = time.Unix(0, i.LaunchedNS)
	}
	return out
}

// IdentityOf says what a task is known by.
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

// partitionDigits are those of a key that say which stream a task goes through.
const partitionDigits = 4

// Key is the first half of the SHA-256 over the identity, but for the digits that choose
// the partition: those are its source's, so that a capture's samples and all that is said
// of them go through one stream.
func (i Identity) Key() Key {
	k := digest(i)
	return i.Source()[:partitionDigits] + k[partitionDigits:]
}

// Source names where the samples come from, as the host's task and the monitor that made
// the capture both know it: the capture and its bench. What was not captured, as an
// import, is its own source.
func (i Identity) Source() Key {
	if i.Capture == "" {
		return digest(i)
	}
	return CaptureKey(i.Capture, i.Bench)
}

// CaptureKey is the source of a capture's samples.
func CaptureKey(capture, bench string) Key {
	return digest(struct {
		Capture string `json:"capture"`
		Bench   string `json:"bench"`
	}{capture, bench})
}

func digest(v any) Key {
	b, err := json.Marshal(v)
	if err != nil { // of texts and a number there is none
		panic(err)
	}
	sum := sha256.Sum256(b)
	return Key(hex.EncodeToString(sum[:16]))
}

// bytes are the key as it stands in a piece.
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

// Partition is the stream, of so many, that the task goes through.
func (k Key) Partition(of int) int {
	b, err := k.bytes()
	if err != nil || of < 1 {
		return 0
	}
	return (int(b[0])<<8 | int(b[1])) % of
}

// MaxPartitions is how many streams there may be.
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

// StreamName is the stream of a partition.
func StreamName(partition int) string { return fmt.Sprintf("WATTMARK-%02X", partition) }

// sourceItself stands for the key in subjects of messages that are of no task, but of what
// tasks are made of.
const sourceItself Key = "capture"

// publisher names in a subject who published a message, as the nodes know it: a user who may
// publish under the own name alone by the name in hexadecimal, all others by anyone.
type publisher string

// anyone publishes for all users: an operator, or a client of a cluster that asks nobody.
const anyone publisher = "_"

// nobody may read alone.
const nobody publisher = ""

func publisherOf(user string) publisher { return publisher(hex.EncodeToString([]byte(user))) }

// user is the only user that a publisher may publish for; empty for all.
func (p publisher) user() string {
	name, err := hex.DecodeString(string(p))
	if err != nil {
		return ""
	}
	return string(name)
}

// UserSubjects are what a user may publish who publishes under the own name alone.
func UserSubjects(user string) (out []string) {
	for _, kind := range []string{kindChunk, kindIndex, kindRest, kindEnd} {
		out = append(out, fmt.Sprintf("%s.*.%s.*.*.%s", subjectRoot, publisherOf(user), kind))
	}
	return out
}

// AllSubjects are what who publishes for all users may publish.
func AllSubjects() []string { return []string{subjectRoot + ".>"} }

// subject is that of a task's messages of a kind; with "*" for publisher, source, key or kind, of all.
func subject(partition int, by publisher, source, k Key, kind string) string {
	return fmt.Sprintf("%s.%02X.%s.%s.%s.%s", subjectRoot, partition, by, source, k, kind)
}

// keyOf reads the key in a subject; empty where there is none.
func keyOf(subject string) Key { return keyAt(subject, 4) }

// sourceOf reads the source in a subject; empty where there is none.
func sourceOf(subject string) Key { return keyAt(subject, 3) }

const subjectParts = 6

// byOf reads the publisher in a subject; empty where there is none.
func byOf(subject string) publisher {
	parts := strings.Split(subject, ".")
	if len(parts) != subjectParts || parts[0] != subjectRoot {
		return ""
	}
	return publisher(parts[2])
}

// partitionOf reads the partition in a subject; -1 where there is none.
func partitionOf(subject string) int {
	parts := strings.Split(subject, ".")
	if len(parts) != subjectParts || parts[0] != subjectRoot {
		return -1
	}
	n, err := strconv.ParseUint(parts[1], 16, 8)
	if err != nil {
		return -1
	}
	return int(n)
}

func keyAt(subject string, at int) Key {
	parts := strings.Split(subject, ".")
	if len(parts) != subjectParts || parts[0] != subjectRoot {
		return ""
	}
	if _, err := Key(parts[at]).bytes(); err != nil {
		return ""
	}
	return Key(parts[at])
}
