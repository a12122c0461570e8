package relays

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wattmark/wattmark/cmd/trial/internal/harness"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// poison is a kind of message that no store can ever take.
type poison uint8

const (
	strangeTable poison = 1 + iota
	badRows
	noDatabase
	noSamples
	badEnd
)

// spoils are statements that spoil the rows of a task, by kind.
var spoils = map[poison][]string{
	strangeTable: {
		`CREATE TABLE alien(task_id INTEGER)`, `ALTER TABLE task ADD COLUMN alien TEXT DEFAULT 'x'`,
		`PRAGMA user_version=100000`,
	},
	badRows: {
		`ALTER TABLE marker ADD COLUMN alien TEXT; UPDATE task SET reason=1`, `DROP TABLE event`,
		`PRAGMA application_id=1`,
	},
}

// doses are more than a store may have under way.
const doses = 18

// poisoned lets somebody publish doses of it among good tasks of others, which arrive; each
// dose is set aside with its reason.
func (p *place) poisoned() (outcome string, err error) {
	nc, err := nats.Connect(p.url)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return "", err
	}
	keys := map[relay.Key]bool{}
	for n := range doses {
		if n%8 == 4 {
			if err := p.good(n); err != nil {
				return "", err
			}
		}
		key, err := p.dose(js, n)
		if err != nil {
			return "", err
		}
		keys[key] = true
	}
	if err := p.good(doses); err != nil {
		return "", err
	}
	want, err := p.host.Tasks(p.ctx, store.Query{})
	if err != nil {
		return "", err
	}
	if outcome, err = p.check(want); err != nil {
		return "", err
	}
	if err := p.until("all poison to be set aside", func() error {
		list, err := p.bus.Asides(p.ctx)
		for _, a := range list {
			if a.Why == "" {
				return fmt.Errorf("%s was set aside without a reason", a.Key)
			}
			delete(keys, a.Key)
		}
		if err == nil && len(keys) > 0 {
			err = fmt.Errorf("%d of %d were not", len(keys), doses)
		}
		return err
	}); err != nil {
		p.fail("%v", err)
	}
	return outcome, nil
}

// good publishes a task of somebody else's.
func (p *place) good(n int) error {
	if err := fill(p.ctx, p.host, "ada", fmt.Sprint("gemm-", n), uint64(n), nil); err != nil {
		return err
	}
	return p.look(p.o.Patience)
}

// dose publishes one task that cannot be stored, as anybody may who may measure.
func (p *place) dose(js jetstream.JetStream, n int) (relay.Key, error) {
	rows, i, err := p.bare(n)
	if err != nil {
		return "", err
	}
	key, content := i.Key(), append([]byte{0}, rows...) // an index of no chunks
	switch p.s.poison {
	case noDatabase:
		content = []byte{0, 'n', 'o', 'n', 'e'}
	case noSamples: // one chunk, whose only piece is message 1, and of another task
		content = append([]byte{1, 0, 1, 2, 3, 4, 1, 2}, rows...)
	}
	w, err := zstd.NewWriter(nil)
	if err != nil {
		return "", err
	}
	packed := w.EncodeAll(content, nil)
	sum := sha256.Sum256(packed)
	end := relay.End{Format: 1, Key: key, Identity: i, SHA256: hex.EncodeToString(sum[:])}
	if p.s.poison == noSamples {
		end.Chunks, end.Scans = 1, 1
	}
	at, err := js.Publish(p.ctx, fmt.Sprintf("wattmark.00._.%s.%s.rest", i.Source(), key), piece(key, packed))
	if err != nil {
		return "", err
	}
	if end.Rest = []uint64{at.Sequence}; p.s.poison == badEnd {
		end.Rest = []uint64{at.Sequence + 1000*uint64(n)}
	}
	b, err := json.Marshal(end)
	if p.s.poison == badEnd && n%2 == 0 {
		b = b[:len(b)/2]
	}
	if err == nil {
		_, err = js.Publish(p.ctx, fmt.Sprintf("wattmark.00._.%s.%s.end", i.Source(), key), b)
	}
	return key, err
}

// eves is all of a task of eve's but its samples, as the relay publishes it, and what it is
// known by; made once.
var eves = sync.OnceValues(func() (out struct {
	rows []byte
	relay.Identity
}, err error,
) {
	var from *store.DB
	out.rows, err = harness.Database(func(to *store.DB) (err error) {
		dir := filepath.Dir(to.Path())
		if from, err = openEmpty(context.Background(), filepath.Join(dir, "eve.db")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, from.Close()) }()
		if err := fill(context.Background(), from, "eve", "poison", 1, nil); err != nil {
			return err
		}
		t, err := from.Task(context.Background(), 1)
		out.Identity = relay.IdentityOf(&t)
		if err == nil {
			_, err = to.Import(context.Background(), from, store.ImportOptions{KeepIDs: true, NoSamples: true})
		}
		return err
	})
	return out, err
})

// bare is the rows of another task of eve's, spoilt.
func (p *place) bare(n int) (rows []byte, i relay.Identity, err error) {
	of, err := eves()
	if err != nil {
		return nil, i, err
	}
	i = of.Identity
	i.Name, i.Capture = fmt.Sprint("poison-", n), fmt.Sprint("eve", n)
	path := filepath.Join(p.dir, "dose.db")
	if err := os.WriteFile(path, of.rows, 0o600); err != nil {
		return nil, i, err
	}
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, i, err
	}
	_, err = raw.ExecContext(p.ctx, `UPDATE task SET name=?, capture_id=?`, i.Name, i.Capture)
	if statements := spoils[p.s.poison]; err == nil && statements != nil {
		_, err = raw.ExecContext(p.ctx, statements[n%len(statements)])
	}
	if err = errors.Join(err, raw.Close()); err == nil {
		rows, err = os.ReadFile(path)
	}
	return rows, i, err
}

// piece is a message of a task's rest that is sound in itself (docs/scale.md).
func piece(key relay.Key, body []byte) []byte {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	id, _ := hex.DecodeString(string(key)) // it was made as such
	b := append(binary.LittleEndian.AppendUint32(nil, 0x31504D57), id...)
	b = append(b, 2, 0, 0, 0, 1, 0, 0, 0) // of the rest; part 0 of 1
	b = append(b, make([]byte, 8+8+8+4+4)...)
	return append(binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, body)),
		body...)
}
