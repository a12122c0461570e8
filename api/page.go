package api

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"time"

	"wattmark/store"
)

// Page sizes of ListTasks.
const (
	defaultPage = 100
	maxPage     = 1000
)

const tokenSize = 16

// pageToken makes the token for the page after task last. It is opaque to
// callers: the identity, and a hash that binds it to the question, so that a
// token that was cut, made up or taken from another question is refused
// instead of answered wrongly. It is no secret and protects nothing.
func pageToken(last store.TaskID, q store.Query) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, tokenSize), uint64(last))
	b = binary.BigEndian.AppendUint64(b, questionHash(last, q))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePageToken returns the task after which the page begins; 0 for no token.
func parsePageToken(token string, q store.Query) (store.TaskID, error) {
	if token == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != tokenSize {
		return 0, invalid("page_token", "not a token of this service: pass next_page_token unchanged")
	}
	last := store.TaskID(binary.BigEndian.Uint64(b))
	if last <= 0 || binary.BigEndian.Uint64(b[8:]) != questionHash(last, q) {
		return 0, invalid("page_token", "belongs to another question: keep user, name, job, since and until from page to page")
	}
	return last, nil
}

func questionHash(last store.TaskID, q store.Query) uint64 {
	h := fnv.New64a()
	var n [8]byte
	for _, v := range []uint64{1, uint64(last), uint64(len(q.User)), uint64(len(q.Name)), uint64(len(q.Job)), instant(q.Since), instant(q.Until)} {
		binary.BigEndian.PutUint64(n[:], v)
		_, _ = h.Write(n[:])
	}
	_, _ = h.Write([]byte(q.User))
	_, _ = h.Write([]byte(q.Name))
	_, _ = h.Write([]byte(q.Job))
	return h.Sum64()
}

// instant is a time as a number; all that counts is that equal times are equal.
func instant(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.Unix())*1e9 + uint64(t.Nanosecond())
}
