package api

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/store"
)

// Page sizes of ListTasks.
const (
	defaultPage = 100
	maxPage     = 1000
)

// tokenVersion is the first byte of a token: the layout of the rest.
const tokenVersion = 3

const tokenHead = 1 + 8 + 8 + 1 + 8 // version, hash, id, none, key; then the text

// pageToken makes the token for the page behind a place. It is opaque to
// callers: the place, and a hash that binds it to the question, so that a
// token that was cut, made up or taken from another question is refused
// instead of answered wrongly. It is no secret and protects nothing.
func pageToken(at *store.Position, q *store.ListQuery) string {
	b := append(make([]byte, 0, tokenHead+len(at.Text)), tokenVersion)
	b = binary.BigEndian.AppendUint64(b, 0) // the hash's place
	b = binary.BigEndian.AppendUint64(b, uint64(at.ID))
	key := uint64(at.Nanos)
	if at.Number != 0 {
		key = math.Float64bits(at.Number)
	}
	b = binary.BigEndian.AppendUint64(append(b, byte(bit(at.None))), key)
	b = append(b, at.Text...)
	binary.BigEndian.PutUint64(b[1:], questionHash(b[9:], q))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePageToken returns the place behind which the page begins; nil for no token.
func parsePageToken(token string, q *store.ListQuery) (*store.Position, error) {
	if token == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 1 || b[0] == tokenVersion && len(b) < tokenHead {
		return nil, invalid("page_token", "not a token of this service: pass next_page_token unchanged")
	}
	if b[0] != tokenVersion {
		return nil, invalid("page_token", "made by another version of this service: begin with the first page again")
	}
	at := &store.Position{
		ID: store.TaskID(binary.BigEndian.Uint64(b[9:])), None: b[17] == 1, Text: string(b[tokenHead:]),
	}
	if at.ID <= 0 || b[17] > 1 || binary.BigEndian.Uint64(b[1:]) != questionHash(b[9:], q) {
		return nil, invalid("page_token",
			"belongs to another question: keep all but page_size, with_totals and read_mask from page to page")
	}
	key := binary.BigEndian.Uint64(b[18:])
	switch q.Order {
	case store.ByLaunched:
		at.Nanos = int64(key)
	case store.ByEnergy, store.ByDuration:
		at.Number = math.Float64frombits(key)
	}
	return at, nil
}

// questionHash binds a place to the query.
func questionHash(place []byte, q *store.ListQuery) uint64 {
	h := fnv.New64a()
	number := func(v uint64) { _, _ = h.Write(binary.BigEndian.AppendUint64(nil, v)) }
	text := func(s string) {
		number(uint64(len(s)))
		_, _ = h.Write([]byte(s))
	}
	number(tokenVersion)
	text(string(place))
	for _, s := range []string{q.User, q.Name, q.Job, q.GPU, q.Search} {
		text(s)
	}
	for _, list := range [][]store.Tag{q.Tags, q.Without} {
		number(uint64(len(list)))
		for _, t := range list {
			text(t.Key)
			text(t.Value)
		}
	}
	number(instant(q.Since))
	number(instant(q.Until))
	for _, f := range []float64{
		float64(q.MinEnergy), float64(q.MaxEnergy), float64(q.MinDuration), float64(q.MaxDuration),
	} {
		number(math.Float64bits(f))
	}
	var states uint64
	for _, s := range q.States {
		states |= 1 << s
	}
	for _, v := range []uint64{states, uint64(q.Group), uint64(q.Order), bit(q.Ascending)} {
		number(v)
	}
	return h.Sum64()
}

func bit(set bool) uint64 {
	if set {
		return 1
	}
	return 0
}

// instant is a time as a number; all that counts is that equal times are equal.
func instant(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.Unix())*1e9 + uint64(t.Nanosecond())
}

// maxPaths bounds a field mask.
const maxPaths = 256

// mask is a tree of the fields wanted: one without branches is wanted as a whole.
// A nil mask wants all.
type mask map[protoreflect.Name]mask

// parseMask reads the fields of Task that are wanted; nil for all.
func parseMask(m *fieldmaskpb.FieldMask) (mask, error) {
	paths := m.GetPaths()
	if len(paths) == 0 {
		return nil, nil
	}
	if len(paths) > maxPaths {
		return nil, invalid("read_mask", "%d paths: at most %d", len(paths), maxPaths)
	}
	root := mask{}
	for _, path := range paths {
		if !root.add((*pb.Task)(nil).ProtoReflect().Descriptor(), path) {
			return nil, invalid("read_mask", "%q is not a field of Task: name fields as in task_id or energy.energy_j",
				path)
		}
	}
	return root, nil
}

// add adds a path; it is false for one that there is not.
func (m mask) add(message protoreflect.MessageDescriptor, path string) bool {
	name, rest, deeper := strings.Cut(path, ".")
	f := message.Fields().ByName(protoreflect.Name(name))
	if f == nil || deeper && (f.Message() == nil || f.IsList() || f.IsMap()) {
		return false
	}
	sub, there := m[f.Name()]
	switch {
	case !deeper:
		m[f.Name()] = nil // the whole field includes its named parts
		return true
	case !there:
		sub = mask{}
		m[f.Name()] = sub
	case sub == nil:
		sub = mask{} // it is wanted as a whole already: only check the path
	}
	return sub.add(f.Message(), rest)
}

// prune clears the fields of a message that are not in the tree, and goes down where the
// tree does. m is not nil.
func (m mask) prune(message protoreflect.Message) {
	message.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch sub, wanted := m[f.Name()]; {
		case !wanted:
			message.Clear(f)
		case sub != nil:
			sub.prune(v.Message())
		}
		return true
	})
}
