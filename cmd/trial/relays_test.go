package trial

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
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// The trial of relays plays faults against the way from a host's database to a store: the real
// database, the real relay, a real node of a cluster and a real store, in one process.
// Tasks come into the database in parts, from files and other databases, and are cut off
// in between, while the relay publishes; and a stranger publishes messages that can never be stored.

// RelayOptions are a campaign's settings.
type RelayOptions struct {
	Options
	// Program is wattmark, whose import of files is tried; none when empty.
	Program string
	Broken  RelayBuild
	// Patience bounds each wait: by default far more than is ever needed, also on a busy
	// machine.
	Patience time.Duration
}

// RelayBuild is a fault of the product itself, to see that the campaign finds it.
type RelayBuild uint8

// The builds.
const (
	// Whole is the product as it is.
	WholeRelay RelayBuild = iota
	// PublishHalf is an import whose task is there for all before it is whole.
	PublishHalf
	// KeepTrying is a store that sets nothing aside of which it does not know why it
	// cannot be stored.
	KeepTrying
)

// relayKind is the way in which tasks come in and are cut off; or the poison that is published.
type relayKind struct {
	name   string
	deed   deed
	end    end
	poison poison
}

type end uint8

const (
	ends end = iota // by itself
	cancelled
	killed
)

// relayKinds are all of them; those of files come last, as they need the program.
var relayKinds = []relayKind{
	{name: "database imported beside a relay", deed: importing},
	{name: "database's import cancelled", deed: importing, end: cancelled},
	{name: "database's import killed", deed: importing, end: killed},
	{name: "tasks copied beside a relay", deed: copying},
	{name: "copy of tasks cancelled", deed: copying, end: cancelled},
	{name: "copy of tasks killed", deed: copying, end: killed},
	{name: "published: a table that nobody knows", poison: strangeTable},
	{name: "published: rows that contradict themselves", poison: badRows},
	{name: "published: no database", poison: noDatabase},
	{name: "published: samples that are not there", poison: noSamples},
	{name: "published: an end of nothing", poison: badEnd},
	{name: "file imported beside a relay", deed: fileIn},
	{name: "file's import killed", deed: fileIn, end: killed},
}

// RelaySchedule is the course of one place.
type RelaySchedule struct {
	Seed uint64
	relayKind
	// At is the sync of the host's database, from the beginning of the deed on, at which
	// the relay looks for tasks, and then the deed is cut off.
	At int
	// Again: it is done once more, as a user does.
	Again bool
}

func (s RelaySchedule) String() string {
	return fmt.Sprintf("relays, seed %d: %s at sync %d, done again: %v", s.Seed, s.name, s.At, s.Again)
}

// relayFaults are the kinds that can be tried; files are imported where there is a program.
func relayFaults(files bool) []relayKind {
	if files {
		return relayKinds
	}
	return slices.DeleteFunc(slices.Clone(relayKinds), func(k relayKind) bool { return k.deed == fileIn })
}

// DrawRelays makes the schedule of a seed; files are imported where there is a program.
func DrawRelays(seed uint64, files bool) RelaySchedule {
	all := relayFaults(files)
	rng := rand.New(rand.NewPCG(seed, 0x4e1a))
	return RelaySchedule{Seed: seed, relayKind: all[seed%uint64(len(all))], At: 1 + rng.IntN(8), Again: rng.IntN(2) == 0}
}

// The outcomes.
var relayOutcomes = []string{"whole", "absent"}

// RelayTable is faults × outcomes as Markdown.
func RelayTable(r *Report) string {
	var all []string
	for _, k := range relayKinds {
		all = append(all, k.name)
	}
	return r.Table(all, relayOutcomes)
}

// RunRelays plays schedules, 6 at a time unless Options have another number.
func RunRelays(ctx context.Context, o RelayOptions) (Report, error) {
	if o.Workers <= 0 {
		o.Workers = 6
	}
	if o.Dir == "" {
		o.Dir = Scratch()
	}
	return Run(ctx, o.Options, func(ctx context.Context, seed uint64) (Result, error) {
		return PlayRelays(ctx, o, DrawRelays(seed, o.Program != ""))
	})
}

// PlayRelays plays one schedule in a folder of its own.
func PlayRelays(ctx context.Context, o RelayOptions, s RelaySchedule) (r Result, err error) {
	r.Schedule, r.Struck = s.String(), []string{s.name}
	r.Again = fmt.Sprintf("go test ./cmd/trial -run Relays -v -schedules 1 -seed %d", s.Seed)
	dir, err := os.MkdirTemp(o.Dir, fmt.Sprintf("relays%d-", s.Seed))
	if err != nil {
		return r, err
	}
	p, err := newRelayPlace(ctx, o, s, dir)
	if err == nil {
		r.Outcome, err = p.play()
		err = errors.Join(err, p.close())
		r.Violations = p.violations
	}
	return r, errors.Join(err, os.RemoveAll(dir))
}

// Tasks come to a store whole or not at all: each fault once.
func TestRelays(t *testing.T) {
	coverage.Long(t)
	if testing.Short() {
		t.Skip("store/relay looks for races")
	}
	o := RelayOptions{Program: Path(*wattmark)}
	faults := len(relayFaults(o.Program != ""))
	o.Options = settings.Options(t, faults, faults)
	r, err := RunRelays(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v\n%s", &r, RelayTable(&r))
	for _, v := range r.Violated {
		t.Error(v)
	}
}

// A product that breaks its word is caught, within a few schedules in which it keeps it as
// it is.
func TestBrokenStoresAreCaught(t *testing.T) {
	coverage.Long(t)
	if testing.Short() {
		t.Skip("it is caught without -short")
	}
	for _, c := range []struct {
		name   string
		broken RelayBuild
		seed   uint64 // of a schedule in which it has the chance
	}{
		{"published half", PublishHalf, 22},
		{"tried for ever", KeepTrying, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := map[RelayBuild]relayKind{PublishHalf: relayKinds[0], KeepTrying: relayKinds[7]}[c.broken]
			if got := DrawRelays(c.seed, false).relayKind; got != want {
				t.Fatalf("seed %d is of %q", c.seed, got.name)
			}
			for try := range uint64(10) {
				s := DrawRelays(c.seed+11*try, false)
				o := RelayOptions{Options: Options{Dir: Scratch()}, Broken: c.broken, Patience: 10 * time.Second}
				r, err := PlayRelays(t.Context(), o, s)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Violations) == 0 {
					continue
				}
				t.Logf("caught by schedule %d: %v", try+1, r)
				o.Broken, o.Patience = WholeRelay, 0
				if r, err = PlayRelays(t.Context(), o, s); err != nil || len(r.Violations) > 0 {
					t.Errorf("the product as it is breaks its word in the same schedule: %v, %v", r, err)
				}
				return
			}
			t.Error("not caught by 10 schedules")
		})
	}
}

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
func (p *relayPlace) poisoned() (outcome string, err error) {
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
func (p *relayPlace) good(n int) error {
	if err := fill(p.ctx, p.host, "ada", fmt.Sprint("gemm-", n), uint64(n), nil); err != nil {
		return err
	}
	return p.look(p.o.Patience)
}

// dose publishes one task that cannot be stored, as anybody may who may measure.
func (p *relayPlace) dose(js jetstream.JetStream, n int) (relay.Key, error) {
	rows, i, err := p.bare(n)
	if err != nil {
		return "", err
	}
	key, content := i.Key(), append([]byte("\n"), rows...) // an index of no chunks
	switch p.s.poison {
	case noDatabase:
		content = []byte("\nnone")
	case noSamples: // one chunk, whose only piece is message 1, and of another task
		content = append([]byte("[0,67305985,1]\n\n"), rows...)
	}
	w, err := zstd.NewWriter(nil)
	if err != nil {
		return "", err
	}
	packed := w.EncodeAll(content, nil)
	sum := sha256.Sum256(packed)
	end := relay.End{Format: 2, Key: key, Identity: i, SHA256: hex.EncodeToString(sum[:])}
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
	out.rows, err = Database(func(to *store.DB) (err error) {
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
func (p *relayPlace) bare(n int) (rows []byte, i relay.Identity, err error) {
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
