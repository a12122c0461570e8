package api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/store"
)

// seen is the tasks as they stood at a look.
type seen struct {
	marks   map[store.TaskID]uint64
	running map[store.TaskID]bool
	last    store.TaskID // the greatest id that was ever seen
	digest  uint64       // sum over all marks, so that one task's part can be taken out
}

// look reads the marks of all tasks for the first time.
func look(ctx context.Context, db Database) (*seen, error) {
	s := &seen{marks: map[store.TaskID]uint64{}, running: map[store.TaskID]bool{}}
	marks, _, err := s.look(ctx, db, true)
	if err != nil {
		return nil, err
	}
	s.take(marks, nil, true)
	return s, nil
}

// look reads the marks of all tasks, or only of new ones and of those that ran.
func (s *seen) look(ctx context.Context, db Database, all bool) (marks []store.Mark, asked []store.TaskID, err error) {
	from := s.last + 1
	if all {
		from = 1
	} else {
		asked = slices.Sorted(maps.Keys(s.running))
	}
	marks, err = db.Marks(ctx, from, asked)
	return marks, asked, err
}

// take takes marks over and returns the events. Those of asked, or all known
// ones, that are not among the marks are gone.
func (s *seen) take(marks []store.Mark, asked []store.TaskID, all bool) map[store.TaskID]pb.TaskEvent {
	events := map[store.TaskID]pb.TaskEvent{}
	there := make(map[store.TaskID]bool, len(marks))
	for _, m := range marks {
		there[m.ID] = true
		old, known := s.marks[m.ID]
		switch {
		case !known:
			events[m.ID] = pb.TaskEvent_TASK_EVENT_ADDED
		case old != m.Sum:
			events[m.ID] = pb.TaskEvent_TASK_EVENT_CHANGED
		default:
			continue
		}
		s.drop(m.ID)
		s.marks[m.ID], s.last = m.Sum, max(s.last, m.ID)
		s.digest += digest(m.ID, m.Sum)
		if m.Running {
			s.running[m.ID] = true
		}
	}
	if all {
		asked = slices.Collect(maps.Keys(s.marks))
	}
	for _, id := range asked {
		if !there[id] {
			s.drop(id)
			events[id] = pb.TaskEvent_TASK_EVENT_DELETED
		}
	}
	return events
}

// drop forgets a task and takes its part out of the digest.
func (s *seen) drop(id store.TaskID) {
	if sum, known := s.marks[id]; known {
		s.digest -= digest(id, sum)
		delete(s.marks, id)
		delete(s.running, id)
	}
}

// digest is one task's part of the sum over all.
func digest(id store.TaskID, sum uint64) uint64 {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(id))
	binary.BigEndian.PutUint64(b[8:], sum)
	return bytesHash(b[:])
}

// waypoint is the state of the tasks from which later changes are found
// again: the last one, those that ran, and of all others a digest.
type waypoint struct {
	last    store.TaskID
	rest    uint64
	running []store.Mark
}

// maxRunning bounds a resume token: of more tasks that run, changes of the rest
// become LIST_ANEW.
const maxRunning = 64

// waypoint returns the present state as a place to resume from.
func (s *seen) waypoint() waypoint {
	p := waypoint{last: s.last, rest: s.digest}
	for _, id := range slices.Sorted(maps.Keys(s.running)) {
		if len(p.running) == maxRunning {
			break
		}
		p.running = append(p.running, store.Mark{ID: id, Running: true, Sum: s.marks[id]})
		p.rest -= digest(id, s.marks[id])
	}
	return p
}

// since notes the changes since a place; anew is true for changes that are not known
// task by task.
func (s *seen) since(p *waypoint, events map[store.TaskID]pb.TaskEvent) (anew bool) {
	rest := s.digest
	for id, sum := range s.marks {
		if id > p.last {
			events[id] = pb.TaskEvent_TASK_EVENT_ADDED
			rest -= digest(id, sum)
		}
	}
	for _, m := range p.running {
		sum, there := s.marks[m.ID]
		switch {
		case !there:
			events[m.ID] = pb.TaskEvent_TASK_EVENT_DELETED
			continue
		case sum != m.Sum:
			events[m.ID] = pb.TaskEvent_TASK_EVENT_CHANGED
		}
		rest -= digest(m.ID, sum)
	}
	return rest != p.rest || p.last > s.last && len(s.marks) > 0
}

// resumeVersion is the first byte of a resume token.
const resumeVersion = 1

// token writes a place for a client to keep. Like a page's token it is opaque, and
// bears a hash against being cut or made up, not against malice.
func (p *waypoint) token() string {
	b := make([]byte, 9, 9+16+16*len(p.running))
	b[0] = resumeVersion
	b = binary.BigEndian.AppendUint64(b, uint64(p.last))
	b = binary.BigEndian.AppendUint64(b, p.rest)
	for _, m := range p.running {
		b = binary.BigEndian.AppendUint64(b, uint64(m.ID))
		b = binary.BigEndian.AppendUint64(b, m.Sum)
	}
	binary.BigEndian.PutUint64(b[1:], bytesHash(b[9:]))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseResume reads a resume token; nil for none.
func parseResume(token string) (*waypoint, error) {
	if token == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err == nil && len(b) > 0 && b[0] != resumeVersion {
		return nil, invalid("resume_token",
			"made by another version of this service: watch without one, and list the tasks")
	}
	if err != nil || len(b) < 25 || len(b) > 25+16*maxRunning || (len(b)-25)%16 != 0 ||
		binary.BigEndian.Uint64(b[1:]) != bytesHash(b[9:]) {
		return nil, invalid("resume_token", "not a token of this service: pass resume_token unchanged")
	}
	p := &waypoint{last: store.TaskID(binary.BigEndian.Uint64(b[9:])), rest: binary.BigEndian.Uint64(b[17:])}
	for r := b[25:]; len(r) > 0; r = r[16:] {
		p.running = append(p.running, store.Mark{
			ID: store.TaskID(binary.BigEndian.Uint64(r)), Running: true, Sum: binary.BigEndian.Uint64(r[8:]),
		})
	}
	return p, nil
}

// bytesHash returns the FNV-1a hash of b.
func bytesHash(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}
