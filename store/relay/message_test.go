package relay

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/wattmark/wattmark/store"
)

func TestPiecesComeTogetherAgain(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, maxPiece, maxPiece + 1, 3*maxPiece - 1} {
		content := bytes.Repeat([]byte{1, 2, 3}, n/3+1)[:n]
		pieces, err := split(piece{head: head{Kind: restPiece, Key: [16]byte{7}}}, content)
		if err != nil {
			t.Fatal(err)
		}
		var back []piece
		for _, p := range pieces {
			got, err := parsePiece(p.append(nil))
			if err != nil {
				t.Fatal(err)
			}
			back = append(back, got)
		}
		if got, err := join(back); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes come back as %d, %v", n, len(got), err)
		}
		if len(back) > 1 {
			slices.Reverse(back)
			if _, err := join(back); !errors.Is(err, ErrMalformed) {
				t.Errorf("pieces in another order: %v", err)
			}
		}
	}
}

// A bit that has flipped anywhere is noticed.
func TestDamagedPieces(t *testing.T) {
	t.Parallel()
	p := piece{head: head{Kind: chunkPiece, Parts: 1, No: 5, Scans: 7}, body: []byte("samples")}
	whole := p.append(nil)
	for i := range whole {
		b := slices.Clone(whole)
		b[i] ^= 0x10
		if _, err := parsePiece(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

func FuzzParsePiece(f *testing.F) {
	p := piece{head: head{Kind: chunkPiece, Parts: 1, No: 5, Scans: 7}, body: []byte("samples")}
	f.Add(p.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePiece(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.append(nil), b) {
			t.Error("written again, it is another")
		}
		_, _ = chunkOf([]piece{p})
	})
}

func FuzzParseIndex(f *testing.F) {
	f.Add(appendIndex(nil, []*indexed{{0, 1, []uint64{9, 10}}, {1, 2, []uint64{8}}, {7, 3, []uint64{1 << 40}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, rest, err := parseIndex(b, 1000)
		if err != nil {
			return
		}
		again, left, err := parseIndex(append(appendIndex(nil, list), rest...), 1000)
		if err != nil || !bytes.Equal(left, rest) || len(again) != len(list) {
			t.Errorf("%d chunks come back as %d, %v", len(list), len(again), err)
		}
	})
}

func TestIndex(t *testing.T) {
	t.Parallel()
	want := []*indexed{{0, 1, []uint64{9, 10}}, {1, 2, []uint64{8}}, {7, 3, []uint64{1 << 40}}}
	packed, err := pack(want, []byte("rows"))
	if err != nil {
		t.Fatal(err)
	}
	got, rows, err := unpack(packed, 3)
	if err != nil || string(rows) != "rows" || len(got) != 3 {
		t.Fatalf("%v, %q, %v", got, rows, err)
	}
	for i := range want {
		if got[i].no != want[i].no || got[i].crc != want[i].crc || !slices.Equal(got[i].seqs, want[i].seqs) {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	if _, _, err := unpack(packed[:len(packed)-3], 3); !errors.Is(err, ErrMalformed) {
		t.Errorf("cut off: %v", err)
	}
}

func TestEndsAreChecked(t *testing.T) {
	t.Parallel()
	id := Identity{Monitor: "lab:7551", Capture: "c-1", User: "ada", Name: "gemm"}
	key := id.Key()
	for text, why := range map[string]string{
		`{`:            "unexpected end",
		`{"format":1}`: "update the older",
		`{"format":2,"key":"` + string(key) + `"}`: "names task",
		`{"format":2,"key":"` + string(key) + `","monitor":"lab:7551","capture":"c-1","user":"ada","name":"gemm"}`: "names no rest",
	} {
		if _, err := parseEnd([]byte(text), key); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", text, err, why)
		}
	}
}

// What is told apart here is told apart in every program: keys and partitions must not change.
func TestKeysStayAsTheyAre(t *testing.T) {
	t.Parallel()
	id := Identity{Monitor: "lab:7551", Capture: "c-1", LaunchedNS: 1, GPU: "GPU-1", User: "ada", Name: "gemm", Bench: "desk"}
	orphan := Identity{Capture: "c-1", LaunchedNS: 2, User: "ada", Name: "gemm", Bench: "desk"}
	k, from := id.Key(), id.Source()
	if s := subject(k.Partition(4), anyone, from, k, kindEnd); k != parseSubject(s).key || from != parseSubject(s).source {
		t.Errorf("%s of %s is not read back", k, from)
	}
	if k != "02d4ed869d8e7ff9b39b8d96997cfef0" || from != "02d4073f398a955610bfe9472e1cc73c" || k.Partition(4) != 0 {
		t.Errorf("%s of %s in partition %d", k, from, k.Partition(4))
	}
	if o := orphan.Key(); o == k || orphan.Source() != from || o.Partition(256) != k.Partition(256) || from.Partition(256) != k.Partition(256) {
		t.Errorf("what the monitor files is %s of %s", o, orphan.Source())
	}
	for _, s := range []string{"", "wattmark.00.end", "wattmark.00._.xyz.xyz.end", "other.00._." + string(k) + "." + string(k) + ".end", "wattmark.00._." + string(k) + ".end"} {
		if k := parseSubject(s).key; k != "" {
			t.Errorf("%q bears key %s", s, k)
		}
	}
}

// A small message cannot make a store unpack a large one, nor one that it does not state;
// what packs very well is published all the same.
func TestUnpackingIsBounded(t *testing.T) {
	t.Parallel()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := w.EncodeAll(make([]byte, 1<<28), nil) // 8 kB
	if _, _, err := unpack(bomb, 0); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%d bytes are unpacked to 256 MiB: %v", len(bomb), err)
	}
	second := append(w.EncodeAll([]byte("\nrows"), nil), bomb...)
	if _, rows, err := unpack(second, 0); !errors.Is(err, ErrMalformed) {
		t.Errorf("%d bytes come out of two frames: %v", len(rows), err)
	}
	for text, why := range map[string]string{
		"": "chunk 0", "[0,1,2]": "chunk 0", "[0,1]\n\n": "chunk 0", "[-1,1,2]\n\n": "chunk 0", "[0,4294967296,2]\n\n": "chunk 0",
		"[5,1,2]\n[0,1,2]\n\n": "chunk 1", "[5,1,2]\n[1,1,2]\n[1,1,2]\n\n": "more than 2 chunks",
	} {
		if _, _, err := parseIndex([]byte(text), 2); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", text, err, why)
		}
	}
	if _, _, err := unpack(w.EncodeAll(appendIndex(nil, []*indexed{{0, 1, []uint64{1}}, {1, 1, []uint64{2}}, {2, 1, []uint64{3}}}), nil), 2); !errors.Is(err, ErrMalformed) {
		t.Errorf("three chunks of two: %v", err)
	}
	honest, err := pack(nil, make([]byte, 1<<26))
	if err != nil {
		t.Fatal(err)
	}
	if _, rows, err := unpack(honest, 0); err != nil || len(rows) != 1<<26 {
		t.Errorf("%d rows come back: %v", len(rows), err)
	}
}

// A piece that is named again and again is read once.
func TestPiecesAreTheOnesThatShouldStandThere(t *testing.T) {
	t.Parallel()
	p := piece{head: head{Part: 0, Parts: 1}}
	if err := p.stands(0, 1); err != nil {
		t.Error(err)
	}
	for _, at := range [][2]int{{0, 2}, {1, 2}, {1, 1}} {
		if err := p.stands(at[0], at[1]); !errors.Is(err, ErrMalformed) {
			t.Errorf("the only part stands as %d of %d: %v", at[0], at[1], err)
		}
	}
}

// Spoil removes the chunks of a task from its stream.
func (b *Bus) Spoil(ctx context.Context, key Key) error {
	p := key.Partition(b.partitions)
	s, err := b.js.Stream(ctx, StreamName(p))
	if err != nil {
		return err
	}
	m, err := s.GetLastMsgForSubject(ctx, subject(p, "*", "*", key, kindEnd))
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(subject(p, anyone, parseSubject(m.Subject).source, sourceItself, kindChunk)))
}

// Bare is what is published of a task beside its samples.
func (p *Publisher) Bare(ctx context.Context, id store.TaskID) ([]byte, error) {
	return p.bare(ctx, id)
}

// Forge publishes a task without samples, of which all else is given.
func (p *Publisher) Forge(ctx context.Context, i Identity, database []byte) (Key, error) {
	s, err := p.sending(i)
	if err != nil {
		return "", err
	}
	return s.end.Key, s.run(ctx, func() error { return nil }, func() ([]byte, error) { return database, nil })
}
