package scpi

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
)

// parseBlock splits a definite block off the begin of b: its data, and the
// bytes behind it. ok is false, without an error, where b ends before the block does.
// The data alias b.
func parseBlock(b []byte) (data, rest []byte, ok bool, err error) {
	var h header
	for i, c := range b {
		done, err := h.feed(c)
		if err != nil {
			return nil, nil, false, err
		}
		if !done {
			continue
		}
		b = b[i+1:]
		if len(b) < h.length {
			return nil, nil, false, nil
		}
		return b[:h.length], b[h.length:], true, nil
	}
	return nil, nil, false, nil
}

func TestParseBlock(t *testing.T) {
	long := strings.Repeat("y", 1000)
	for _, c := range []struct {
		in, data, rest string
		ok             bool
		err            error
	}{
		{"#15hello\n", "hello", "\n", true, nil},
		{"#800000005hel\nojunk\n\n", "hel\no", "junk\n\n", true, nil},
		{"#9000001000" + long, long, "", true, nil},
		{"#10\n", "", "\n", true, nil},
		{"#9000000000\n", "", "\n", true, nil},
		{"\r\n\n#11a", "a", "", true, nil},
		{"DESC,#12ab\n", "ab", "\n", true, nil},
		{"#15hel", "", "", false, nil},
		{"#9000", "", "", false, nil},
		{"", "", "", false, nil},
		{"#0anything\n", "", "", false, ErrIndefinite},
		{"#x", "", "", false, ErrReply},
		{"#2a", "", "", false, ErrReply},
		{"1.25\n#11a", "", "", false, ErrReply},
		{strings.Repeat("z", 70) + "#11a", "", "", false, ErrReply},
	} {
		data, rest, ok, err := parseBlock([]byte(c.in))
		if string(data) != c.data || string(rest) != c.rest || ok != c.ok || !errors.Is(err, c.err) {
			t.Errorf("%.20q: %.20q, %q, %v, %v", c.in, data, rest, ok, err)
		}
	}
}

func TestParseReplies(t *testing.T) {
	for s, want := range map[string]DeviceError{
		`0,"No error"`: {0, "No error"}, `+0,"No error"`: {0, "No error"},
		` -113,"Undefined ""x"" header"`: {-113, `Undefined "x" header`},
		"0":                              {0, ""}, "-222, Data out of range\r": {-222, "Data out of range"},
	} {
		if got, err := ParseDeviceError(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for s, want := range map[string]float64{
		"+1.5E+03": 1500, "-4": -4, " 2.5e-3\r": 2.5e-3, "9.9E37": math.Inf(1), "-9.9E+37": math.Inf(-1), ".5": 0.5,
	} {
		if got, err := ParseNumber(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	if v, err := ParseNumber("9.91E+37"); err != nil || !math.IsNaN(v) {
		t.Errorf("no data gives %v, %v", v, err)
	}
	for _, s := range []string{"", "x", "0x10", "1,2", "NaN", "Inf", "1_0", "1e999"} {
		if v, err := ParseNumber(s); !errors.Is(err, ErrReply) {
			t.Errorf("%q: %v, %v", s, v, err)
		}
	}
	if id, err := ParseIdentity("RIGOL TECHNOLOGIES,DS1054Z,DS1ZA1,00.04.04,x\n"); err != nil ||
		id != (Identity{"RIGOL TECHNOLOGIES", "DS1054Z", "DS1ZA1", "00.04.04,x"}) {
		t.Errorf("%+v, %v", id, err)
	}
	for s, want := range map[string]bool{"ON": true, "1": true, "off": false, "+0": false} {
		if got, err := ParseBool(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

func TestParsePreamble(t *testing.T) {
	p, err := ParsePreamble("0,2,3000000,1,2.000000e-06,-3.0e+00,0,4.0e-03,-12,127\r")
	if err != nil || p.Points != 3_000_000 || p.XIncrement != 2e-6 || p.YIncrement != 4e-3 || p.YOrigin != -12 ||
		p.YReference != 127 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, s := range []string{
		"+0", "0,0,0,0,1,0,0,0,0,0", "0,0,0,0,0,0,0,1,0,0", "0,0,1.5,0,1,0,0,1,0,0", "0,0,-1,0,1,0,0,1,0,0",
		"0,0,1,0,1,0,0,9.91E37,0,0", "0,0,1,0,1,0,0,1,0", "0,0,1,0,-1,0,0,1,0,0",
	} {
		if p, err := ParsePreamble(s); !errors.Is(err, ErrReply) {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	}
}

func FuzzParseBlock(f *testing.F) {
	for _, s := range []string{
		"#15hello\n", "#10", "#0x", "#9000000003abc", "\n\n#211 hello world", "x,#11a", "#",
		"#9999999999",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		data, rest, ok, err := parseBlock(b)
		if !ok && (data != nil || rest != nil) || ok && err != nil {
			t.Fatalf("%q, %q, %v, %v", data, rest, ok, err)
		}
		if ok && (!bytes.HasSuffix(b, append(bytes.Clone(data), rest...)) || !bytes.Contains(b, []byte("#"))) {
			t.Fatalf("%q is not the end of %q", data, b)
		}
	})
}

func FuzzParseText(f *testing.F) {
	for _, s := range []string{`+0,"No error"`, "A,B,C,D", "0,2,3,1,1e-6,0,0,1e-3,0,127", "9.91E37", "ON", ","} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := ParsePreamble(s); err == nil && (!(p.XIncrement > 0) || p.Points < 0 || math.IsNaN(p.YIncrement)) {
			t.Errorf("%q gives %+v", s, p)
		}
		if id, err := ParseIdentity(s); err == nil && (id.Maker == "" || id.Model == "") {
			t.Errorf("%q gives %+v", s, id)
		}
		_, _ = ParseDeviceError(s)
		_, _ = ParseBool(s)
	})
}

// What an instrument says of itself comes into errors and the bench's state only where
// it can be shown.
func TestWhatCannotBeShown(t *testing.T) {
	for _, s := range []string{"MAKER,MO\xffDEL,1,2", "MAKER,MO\x1b[31mDEL,1,2", "MAKER,MO\u202eDEL,1,2", "MAKER," +
		strings.Repeat("M", 100_000) + ",1,2"} {
		if id, err := ParseIdentity(s); !errors.Is(err, ErrReply) || len(err.Error()) > 500 ||
			!plain(strings.ToValidUTF8(err.Error()[:60], "")) {
			t.Errorf("%.40q: %.40q, %.200v", s, id.Model, err)
		}
		if e, err := ParseDeviceError("-100," + s); err != nil || len(e.Error()) > 500 || !plain(e.Error()[:20]) {
			t.Errorf("%.40q: %.200v, %v", s, e, err)
		}
	}
	if id, err := ParseIdentity("Siglent, Größe µ ,1,2\n"); err != nil || id.Model != "Größe µ" {
		t.Errorf("%q, %v", id, err)
	}
}
