package certificate

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/measure"
)

var day = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func newKey(t testing.TB, name string) *Key {
	t.Helper()
	k, err := NewKey(name, day.AddDate(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// example is a certificate of a boxcar sensor that sees all the time.
func example(t testing.TB) *Certificate {
	t.Helper()
	c := &Certificate{
		Made: day, Expires: day.AddDate(0, 6, 0), Maker: "wattmark test", Notes: []string{},
		Sensor: sensor.Profile{
			Field: "instant", GPU: "NVIDIA H200", UUID: "GPU-1234-5678", Driver: "580.159.04 (CUDA 13.0)",
			Model: sensor.Boxcar, Period: 0.1, UPeriod: 1e-4, Window: 0.1, UWindow: 1e-3, Lag: 0.101, ULag: 2e-3,
			Calibrated: true, Gain: 0.96, UGain: 2e-3, Offset: -3, UOffset: 0.5, Noise: 0.3, Seen: 1,
		},
		Source: Source{Kind: "csv"},
		Files:  []File{FileOf("readings.csv", []byte("readings")), FileOf("load.csv", []byte("load"))},
	}
	c.Conditions.Method, c.Conditions.Reference, c.Conditions.Load = "nvml", "external_analyzer", "a meter's trace"
	c.Conditions.Stabilization = measure.Number(math.NaN())
	if err := c.Describe([]sensor.Poll{{At: 0, Power: 100}, {At: 1, Power: 300}, {At: 2, Power: 200}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func sealed(t testing.TB, c *Certificate, k *Key) []byte {
	t.Helper()
	b, err := Seal(c, k)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpensWhatWasSealed(t *testing.T) {
	k, c := newKey(t, "Test lab"), example(t)
	got, err := Open(sealed(t, c, k), k, day.AddDate(0, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got, cmp.Comparer(func(a, b measure.Number) bool { return a == b || a != a && b != b })); diff != "" {
		t.Error(diff)
	}
	if p := got.Conditions.Power; p.Mean != 225 || p.Peak != 300 || got.Conditions.SamplingRate != 1 || got.Conditions.Energy != 450 {
		t.Errorf("%+v", got.Conditions)
	}
}

func TestRefusesWithTheReason(t *testing.T) {
	k := newKey(t, "Test lab")
	b := sealed(t, example(t), k)
	stale := *k
	stale.Expires = day.AddDate(0, 0, 10) // as a newer public key states
	change := func(old, by string) []byte {
		var e envelope
		if err := json.Unmarshal(b, &e); err != nil {
			t.Fatal(err)
		}
		if e.Payload = bytes.Replace(e.Payload, []byte(old), []byte(by), 1); !bytes.Contains(e.Payload, []byte(by)) {
			t.Fatalf("no %s in it", old)
		}
		out, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct {
		name, want string
		b          []byte
		key        *Key
		now        time.Time
	}{
		{"a figure changed", "changed after it was signed", change(`"gain":0.96`, `"gain":0.97`), k, day},
		{"no key named", "changed after it was signed", change(`"gain":0.96`, `"gain":0.97`), nil, day},
		{"another signer", `of "Test lab", not by`, b, newKey(t, "Other lab"), day},
		{"the key expired", "the key of Test lab expired on 2027-11-26", b, k, day.AddDate(2, 0, 0)},
		{"the key expired by its newest line", "expired on 2026-12-06", b, &stale, day.AddDate(0, 1, 0)},
		{"the certificate expired", "it expired on 2027-05-26", b, k, day.AddDate(0, 7, 0)},
		{"of a later version", "version 2", change(`"certificate_version":1`, `"certificate_version":2`), k, day},
		{"cut", "no DSSE envelope", b[:len(b)/2], k, day},
		{"two values", "more than one value", append(slices.Clone(b), b...), k, day},
		{"no envelope", "no DSSE envelope", []byte(`{"gain": 1}`), k, day},
	} {
		if _, err := Open(c.b, c.key, c.now); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := Seal(example(t), &Key{Name: "Test lab", Public: k.Public, Expires: k.Expires}); err == nil {
		t.Error("sealed without a private key")
	}
	late := example(t)
	late.Made = day.AddDate(2, 0, 0)
	if _, err := Seal(late, k); !errors.Is(err, ErrRefused) {
		t.Errorf("sealed by an expired key: %v", err)
	}
}

// Every byte of the payload and of the signature counts.
func TestEveryByteCounts(t *testing.T) {
	k := newKey(t, "Test lab")
	var e envelope
	if err := json.Unmarshal(sealed(t, example(t), k), &e); err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{e.Payload, e.Signatures[0].Sig} {
		for i := range part {
			part[i] ^= 1
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Open(b, k, day); !errors.Is(err, ErrRefused) {
				t.Fatalf("byte %d: %v", i, err)
			}
			part[i] ^= 1
		}
	}
}

func TestCovers(t *testing.T) {
	c := example(t)
	for _, x := range []struct{ uuid, driver, field, want string }{
		{"", "", "", ""},
		{"GPU-1234", "580.159.04", "instant", ""},
		{"GPU-9", "", "", `of GPU "GPU-1234-5678", not of "GPU-9"`},
		{"", "580.82.07", "", `of driver "580.159.04", not of "580.82.07"`},
		{"", "", "average", "of the field instant, not of average"},
	} {
		err := c.Covers(x.uuid, x.driver, x.field)
		if (err == nil) != (x.want == "") || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

func TestHolds(t *testing.T) {
	c := example(t)
	files := map[string]string{"readings.csv": "readings", "load.csv": "load"}
	read := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("no such file")
	}
	if err := c.Holds(read); err != nil {
		t.Error(err)
	}
	files["load.csv"] = "lord"
	if err := c.Holds(read); err == nil || !strings.Contains(err.Error(), "load.csv is not the file that was certified") {
		t.Error(err)
	}
	delete(files, "load.csv")
	if err := c.Holds(read); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

func TestCompare(t *testing.T) {
	c := example(t)
	p := c.Sensor
	p.Gain += 1.9e-3
	if list, err := c.Compare(&p); err != nil || len(list) != 7 {
		t.Errorf("%v, %v", list, err)
	}
	p.Gain += 0.2e-3
	if _, err := c.Compare(&p); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "gain is 0.9621") {
		t.Error(err)
	}
	p = c.Sensor
	p.Model = sensor.FirstOrder
	if _, err := c.Compare(&p); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

// A window of a tenth of the period is blind to work that alternates with it; one of the
// whole period is not.
func TestErrorsByTheModel(t *testing.T) {
	whole := example(t)
	part := example(t)
	part.Sensor.Window, part.Sensor.Seen, part.Errors = 0.01, 0.1, nil
	if err := part.model(); err != nil {
		t.Fatal(err)
	}
	if w, p := whole.Errors[1], part.Errors[1]; w.Period != 0.1 || w.High > 1 || p.High < 50 || p.Low != -p.High {
		t.Errorf("%+v, %+v", w, p)
	}
	weak := example(t)
	weak.Sensor.Weak, weak.Errors = true, nil
	if err := weak.model(); err != nil || len(weak.Errors) != 0 {
		t.Errorf("%v %v", weak.Errors, err)
	}
}

func TestErrorsByAMeter(t *testing.T) {
	r := &validate.Report{Name: "run", Duration: 8, Swing: 0.5, Alternation: 0.9, Methods: []validate.MethodReport{
		{Name: "instant", ErrorPct: -5.8, Interval: validate.Interval{Lo: -8, Hi: -3}}, {Name: "average", ErrorPct: 1},
	}}
	c := example(t)
	c.Errors = nil
	c.Against(r, "instant")
	r.Alternation = 0.2
	c.Against(r, "instant")
	r.Swing = 0.01
	c.Against(r, "instant")
	var got []string
	for _, e := range c.Errors {
		got = append(got, fmt.Sprintf("%s %s %v %v %v", e.Basis, e.Class, e.Percent, e.Low, e.High))
	}
	want := []string{
		"meter energy of 8 s of work that alternates within the sensor's updates: run -5.8 -8 -3",
		"meter energy of 8 s of work that changes more slowly than the sensor's updates: run -5.8 -8 -3",
		"meter energy of 8 s of work that is steady: run -5.8 -8 -3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestKeys(t *testing.T) {
	k := newKey(t, "Power lab, Example University")
	text, err := k.PEM()
	if err != nil {
		t.Fatal(err)
	}
	public, err := ParsePublic(k.PublicLine())
	if err != nil || public.ID() != k.ID() || public.Name != k.Name || !public.Expires.Equal(k.Expires) {
		t.Fatalf("%+v, %v", public, err)
	}
	private, err := public.Private(text)
	if err != nil || !ed25519.Verify(k.Public, []byte("x"), ed25519.Sign(private.private, []byte("x"))) {
		t.Error(err)
	}
	other := newKey(t, "Other")
	if _, err := other.Private(text); !errors.Is(err, ErrKey) {
		t.Errorf("a private key of another public one: %v", err)
	}
	for _, line := range []string{"", "wattmark-key AAAA 2027-01-01T00:00:00Z x", "ssh-ed25519 AAAA", strings.Replace(k.PublicLine(), "20", "x", 1)} {
		if _, err := ParsePublic(line); !errors.Is(err, ErrKey) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestSchema holds a certificate against the schema: each object has what is required and
// nothing that the schema does not name, but for the profile.
func TestSchema(t *testing.T) {
	type node struct {
		Type       any             `json:"type"`
		Required   []string        `json:"required"`
		Properties map[string]node `json:"properties"`
		Items      *node           `json:"items"`
	}
	var schema node
	if err := json.Unmarshal(Schema, &schema); err != nil {
		t.Fatal(err)
	}
	var e envelope
	var payload any
	if err := errors.Join(json.Unmarshal(sealed(t, example(t), newKey(t, "x")), &e), json.Unmarshal(e.Payload, &payload)); err != nil {
		t.Fatal(err)
	}
	var check func(path string, s node, v any)
	check = func(path string, s node, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range s.Required {
				if _, ok := v[name]; !ok {
					t.Errorf("%s: no %s", path, name)
				}
			}
			for name, x := range v {
				p, ok := s.Properties[name]
				if !ok && path != ".predicate.sensor" {
					t.Errorf("%s.%s is not in the schema", path, name)
				}
				check(path+"."+name, p, x)
			}
		case []any:
			for _, x := range v {
				check(path+"[]", *s.Items, x)
			}
		case nil:
			if list, ok := s.Type.([]any); !ok || !slices.Contains(list, any("null")) {
				t.Errorf("%s is null", path)
			}
		}
	}
	check("", schema, payload)
}

func FuzzOpen(f *testing.F) {
	k := newKey(f, "Test lab")
	b := sealed(f, example(f), k)
	f.Add(b)
	f.Add([]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"keyid":"","sig":""}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := Open(in, k, day)
		if (err == nil) != (c != nil) || err != nil && !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	})
}

func FuzzParsePublic(f *testing.F) {
	f.Add(newKey(f, "Test lab").PublicLine())
	f.Fuzz(func(t *testing.T, line string) {
		k, err := ParsePublic(line)
		if (err == nil) != (k != nil) || err == nil && len(k.Public) != ed25519.PublicKeySize {
			t.Fatal(k, err)
		}
	})
}
