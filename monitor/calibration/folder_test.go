package calibration

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
)

func some() calib.Record {
	t := 23.5
	return calib.Record{
		Done: calib.Gain, At: time.Date(2026, 11, 20, 9, 30, 0, 123, time.FixedZone("", 3600)), By: "ada",
		Instrument: calib.Instrument{Kind: "pmd", Serial: "7"}, ValidUntil: time.Date(2027, 11, 20, 0, 0, 0, 0, time.UTC),
		Remark: "clamp at the plug: \"left\", #1", Conditions: calib.Conditions{TemperatureC: &t, Reference: "5520A: 17"},
		Channels: []calib.Channel{{
			Name: "eps1.current", Unit: measure.UnitAmpere, Scale: &calib.Scale{Gain: 0.0490001, Offset: -1e-17, UGain: 1e-3, UOffset: 0.003, Noise: 0.05},
			Nominal: &calib.Scale{Gain: 0.0488, UGain: 0.01, UOffset: 0.0976, Noise: 0.05},
			Points:  []calib.Point{{Value: 5, U: 0.005, Reading: 4.9791, UReading: 1e-4, MeanCount: 102.03, StdCount: 1.01, Samples: 47800}},
		}},
	}
}

func TestARecordReadsBack(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "calibration"))
	if h, err := f.Load(); err != nil || len(h) != 0 {
		t.Fatalf("a folder that is not there: %v, %v", h, err)
	}
	r := some()
	path, err := f.Add(&r)
	if err != nil {
		t.Fatal(err)
	}
	if want := "20261120T083000Z-gain-" + r.ID + ".yaml"; filepath.Base(path) != want {
		t.Errorf("named %s, want %s", path, want)
	}
	h, err := f.Load()
	if err != nil || len(h) != 1 {
		t.Fatal(h, err)
	}
	if d := cmp.Diff(r, h[0]); d != "" {
		text, _ := os.ReadFile(path)
		t.Errorf("%s\n%s", d, text)
	}
	if again, err := f.Add(&r); err != nil || again != path {
		t.Errorf("adding it again: %s, %v", again, err)
	}
	left, _ := os.ReadDir(string(f))
	if len(left) != 1 {
		t.Errorf("%d files are left", len(left))
	}
	// What a writer that was killed leaves behind is no record.
	if err := os.WriteFile(filepath.Join(string(f), ".new-123"), []byte("format: watt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := f.Load(); err != nil || len(h) != 1 {
		t.Errorf("beside a torn file: %v, %v", h, err)
	}
}

func TestAnEditedRecordIsRefused(t *testing.T) {
	f := Folder(t.TempDir())
	r := some()
	path, err := f.Add(&r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"a number":       {"0.0490001", "0.0490002", "was edited"},
		"an unknown key": {"by: ada", "by: ada\nbuy: 1", ":"},
		"another form":   {"format: wattmark-calibration", "format: x", "move files"},
		"a newer form":   {"version: 1", "version: 2", "version 2"},
		"cut off":        {"points:", "point", "x.yaml"},
	} {
		if _, err := Parse("x.yaml", []byte(strings.Replace(string(text), c.from, c.to, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(string(f), "letter.yaml"), []byte("dear all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), "letter.yaml") {
		t.Errorf("a file that is no record: %v", err)
	}
}

// Records of random numbers read back to the last bit, or are refused.
func TestRandomRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	f := Folder(t.TempDir())
	for range 200 {
		r := some()
		s := r.Channels[0].Scale
		for _, v := range []*float64{&s.Gain, &s.Offset, &s.UGain, &s.UOffset, &s.Noise} {
			*v = rng.NormFloat64() * float64(rng.IntN(3)) * []float64{1e-300, 1e-9, 1, 1e9, 1e300}[rng.IntN(5)]
		}
		_, err := f.Add(&r)
		bad := s.Gain == 0 || s.UGain < 0 || s.UOffset < 0 || s.Noise < 0
		if (err != nil) != bad || err != nil && !errors.Is(err, calib.ErrRecord) {
			t.Fatalf("%+v: %v", *s, err)
		}
	}
	if _, err := f.Load(); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	r := some()
	if err := r.Seal(); err != nil {
		f.Fatal(err)
	}
	text, err := Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("format: wattmark-calibration\nversion: 1\ndone: note\nremark: x\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		again, err := Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse("again", again); err != nil || back.ID != r.ID {
			t.Errorf("%v\n%s", err, again)
		}
	})
}

func TestCertificates(t *testing.T) {
	good := "\ufeff# lab 7\nchannel, true,reading,u\na,1,1.01,1e-3\nb,2,2.01,1e-3\na, 5, 5.02,2e-3\n"
	c, err := ParseCertificate("c.csv", []byte(strings.TrimPrefix(good, "\ufeff")))
	if err != nil || len(c.Of("a")) != 2 || c.Of("a")[1].Reading != 5.02 || !cmp.Equal(c.Channels(), []string{"a", "b"}) {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = ParseCertificate("c.yaml", []byte("reference: K7\ntemperature_c: 21\npoints:\n- {value: 1, reading: 1.01, u: 0.001}\n"))
	if err != nil || len(c.Of("")) != 1 || c.Reference != "K7" {
		t.Errorf("%+v, %v", c, err)
	}
	for text, wants := range map[string][]string{
		"":                            {"no header"},
		"true,reading\n":              {"no column u"},
		"true,reading,u,u\n1,1,1,1\n": {`column "u"`},
		"true,reading,u\n":            {"0 points"},
		"true,reading,u\n1,1,0.1\n2,x,0.1\n3,3,0\n":         {"c.csv:3: reading is \"x\""},
		"true,reading,u\n1,1,0.1\n2,2,0\n3,NaN,1\n4,4,-1\n": {"c.csv:3: u is 0", "c.csv:4: reading is NaN", "c.csv:5: u is -1"},
		"true,reading,u\n1,1\n":                             {"c.csv:2:"},
		"true,reading,u\n" + strings.Repeat("x,y,z\n", 100): {"c.csv:2:", "perhaps more"},
	} {
		_, err := ParseCertificate("c.csv", []byte(text))
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
	}
	if _, err := ParseCertificate("c.yaml", []byte("points:\n- {value: 1, reading: 1}\n")); err == nil || !strings.Contains(err.Error(), "points[0]: u is missing") {
		t.Error(err)
	}
}

func FuzzCertificate(f *testing.F) {
	f.Add("c.csv", []byte("true,reading,u\n1,1,0.1\n"))
	f.Add("c.yaml", []byte("points:\n- {value: 1, reading: 1, u: 1}\n"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		c, err := ParseCertificate(name, data)
		if err != nil {
			return
		}
		for _, ch := range c.Channels() {
			if len(c.Of(ch)) == 0 {
				t.Error("a channel without points")
			}
		}
	})
}
