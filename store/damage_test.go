package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Damage within a task's samples is named when they are read, and everything else of
// the file stays readable: the chunks before, other tasks, lists.
func TestDamageLeavesTheRestReadable(t *testing.T) {
	noRaces(t)
	d := open(t)
	whole(t, d, 1)
	whole(t, d, 2)
	want := [2][][]byte{payloads(t, d, 1, 0), payloads(t, d, 2, 0)}
	victim := must(chunkData(d, t, 1, 1))(t)
	path := filepath.Join(t.TempDir(), "damaged.db")
	ok(t, d.Backup(t.Context(), path, nil))
	file := must(os.ReadFile(path))(t)
	if !bytes.Contains(file, victim[:64]) {
		t.Fatal("the chunk's bytes are not in the file")
	}
	// Pages that were split keep a copy in what is free of them.
	file = bytes.ReplaceAll(file, victim[:64], make([]byte, 64))
	ok(t, os.WriteFile(path, file, 0o644))
	b := must(OpenReadOnly(t.Context(), path))(t)
	defer b.Close()
	n := 0
	var damage error
	for c, err := range b.Chunks(t.Context(), 1, 0) {
		if damage = err; err == nil && c.No == uint64(n) {
			n++
		}
	}
	if !errors.Is(damage, ErrCorrupt) || !strings.Contains(damage.Error(), "task 1") || !strings.Contains(damage.Error(), "chunk 1") || n != 1 {
		t.Errorf("%d chunks, then %v", n, damage)
	}
	if !slices.EqualFunc(payloads(t, b, 2, 0), want[1], bytes.Equal) {
		t.Error("the other task reads otherwise")
	}
	if got := payloads(t, b, 1, 2); !slices.EqualFunc(got, want[0][2:], bytes.Equal) {
		t.Error("the chunks behind the damage read otherwise")
	}
	if page := must(b.List(t.Context(), ListQuery{}))(t); len(page.Tasks) != 2 {
		t.Errorf("%d tasks are listed", len(page.Tasks))
	}
	if f := check(t, b); len(f) == 0 || f[0].Kind != BadChunk || f[0].Task != 1 || f[0].Chunk != 1 {
		t.Errorf("the check found %+v", f)
	}
}

// chunkData is the data of a chunk's first column.
func chunkData(d *DB, t *testing.T, id TaskID, no uint64) (b []byte, err error) {
	return b, d.reader.QueryRowContext(t.Context(), `SELECT data FROM chunk_column WHERE task_id=? AND chunk_no=? ORDER BY col LIMIT 1`, int64(id), int64(no)).Scan(&b)
}
