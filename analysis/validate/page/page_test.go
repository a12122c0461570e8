package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/measure"
)

// nasty is what names may hold.
const nasty = `<script>alert("x")</script>"'&{{.}}<img src=x onerror=alert(1)>` + "\x1b[31m"

// subject is 3 s of pulses with two sensors, some of them with odd names.
func subject(name string, period float64) validate.Subject {
	power := func(t float64) float64 {
		if t >= 0 && t < 3 && math.Mod(t, period) < period/2 {
			return 400
		}
		return 100
	}
	truth := func(yield func(validate.Sample, error) bool) {
		for i := range 8001 {
			at := -0.5 + float64(i)/2000
			if !yield(validate.Sample{At: measure.Seconds(at), Power: measure.Watt(power(at))}, nil) {
				return
			}
		}
	}
	var slow, good []validate.Reading
	for i := range 400 {
		at := -0.5 + float64(i)/100
		slow = append(slow, validate.Reading{At: measure.Seconds(at), Power: measure.Watt(power(math.Floor(at*10)/10 - 0.01))})
		good = append(good, validate.Reading{At: measure.Seconds(at), Power: measure.Watt(power(at) * 1.01)})
	}
	none := measure.Joule(math.NaN())
	return validate.Subject{
		Name: name, GPU: "card " + name, Driver: "580", Meter: "model meter", Truth: iter.Seq2[validate.Sample, error](truth), Systematic: 0.004,
		Work: validate.Span{From: 0, To: 3}, Missing: []string{"slot_3v3"}, Cautions: []string{"a caution of " + name},
		Clock: validate.Clock{Offset: 0.01, OffsetU: 1e-4, DriftPPM: 3, DriftUPPM: 1, How: "markers"},
		Methods: []validate.Method{
			{Name: "instant", Readings: slow, Energy: none},
			{Name: "nvidia-smi " + name, Readings: good, Energy: none},
			{Name: "papi", Energy: 700, Readings: []validate.Reading{{At: 3.001, Power: 233}}},
			{Name: "mtsm", Energy: none, Note: "the GPU gave no reading"},
		},
		Kernels: []validate.Kernel{{Name: name, Span: validate.Span{From: 0, To: 0.05}}, {Name: "gemm<float>", Span: validate.Span{From: 0.1, To: 0.15}}},
	}
}

// sample is a page of several subjects.
func sample(t *testing.T, names ...string) Page {
	t.Helper()
	p := Page{Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Maker: "wattmark test"}
	for i, n := range names {
		r, err := validate.Run(t.Context(), subject(n, 0.1*float64(i+1)), validate.Options{Resamples: 200, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		p.Reports = append(p.Reports, r)
	}
	p.Summary = validate.Summarise(p.Reports, validate.Options{})
	return p
}

func written(t *testing.T, p Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// One subject: all that a reader wants stands there, and nothing is fetched.
func TestPage(t *testing.T) {
	out := written(t, sample(t, "task 7"))
	for _, want := range []string{
		`id="verdict"`, "do not use it for kernels that alternate", "card task 7, driver 580", "model meter", "a caution of task 7",
		"slot_3v3: at most 10.8 W", "markers; 10 ms were added", "power / W", "time since the work began / s", "energy / J", "gemm&lt;float&gt;",
		"the GPU gave no reading", "200 times, seed 7", "95 % interval", "prefers-color-scheme: dark", "default-src &#39;none&#39;",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if n := strings.Count(out, "<svg "); n != 2 {
		t.Errorf("%d plots, want 2", n)
	}
	if strings.Contains(out, `id="summary"`) {
		t.Error("one subject has a summary")
	}
	for _, no := range []string{"NaN", "ZgotmplZ", "Inf ", "%!", "<no value>", "#000000", "#FFFFFF"} {
		if strings.Contains(out, no) {
			t.Errorf("%q stands in the page", no)
		}
	}
	// Nothing leaves the page but its own anchors and the names of XML.
	for _, m := range regexp.MustCompile(`(?i)(?:src|href|url|action)\s*[=(]\s*["']?([^"')> ]*)`).FindAllStringSubmatch(out, -1) {
		if !strings.HasPrefix(m[1], "#") && m[1] != "data:," {
			t.Errorf("the page refers to %q", m[1])
		}
	}
}

// Names of any content come out as text.
func TestPageEscapes(t *testing.T) {
	p := sample(t, nasty, "other")
	p.Refused = []Refusal{{nasty, nasty}}
	out := written(t, p)
	for _, no := range []string{"<script", "<img", "\x1b"} {
		if strings.Contains(out, no) {
			i := strings.Index(out, no)
			t.Errorf("%q got through: …%q…", no, out[max(0, i-80):min(len(out), i+40)])
		}
	}
	if !strings.Contains(out, "&lt;script&gt;") || !strings.Contains(out, `id="summary"`) || !strings.Contains(out, `id="refused"`) {
		t.Error("the name, the summary or the refusal is missing")
	}
}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := WriteSVG(&b, sample(t, nasty, "b").Reports); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	elements := map[string]int{}
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	if elements["svg"] != 1 || elements["script"]+elements["img"] > 0 || elements["text"] < 20 {
		t.Errorf("%v", elements)
	}
	for _, want := range []string{"power / W", "energy / J", "time since the work began / s", "meter: model meter"} {
		if strings.Count(b.String(), want) != 2 {
			t.Errorf("%q stands there %d times, want twice", want, strings.Count(b.String(), want))
		}
	}
	if strings.Contains(b.String(), "NaN") {
		t.Error("NaN in the figure")
	}
	if err := WriteSVG(&b, nil); err == nil {
		t.Error("nothing was drawn without an error")
	}
	if err := (Page{}).Write(&b); err == nil {
		t.Error("nothing was written without an error")
	}
}

// Readings beside the picture lead lines to its edges, and do not widen it.
func TestReadingsBesideThePicture(t *testing.T) {
	r := sample(t, "a").Reports[0]
	origin := float64(r.Work.From)
	beside := validate.Reading{At: r.Trace.To + 10, Power: 1}
	r.Methods[0].Points = append(r.Methods[0].Points, beside)
	p, err := Power(r).Plot()
	if err != nil {
		t.Fatal(err)
	}
	if p.X.Min != float64(r.Trace.From)-origin || p.X.Max != float64(r.Trace.To)-origin {
		t.Errorf("%v to %v s are drawn of %v to %v", p.X.Min, p.X.Max, r.Trace.From, r.Trace.To)
	}
}

func TestTexts(t *testing.T) {
	for _, c := range [][2]string{
		{energyText(246.9554, 8.136), "247.0 ± 8.1 J"},
		{energyText(3.2, 0.0), "3.2 J"},
		{energyText(math.NaN(), 1.0), none},
		{percent(-53.638), "−53.64 %"},
		{percent(measure.Number(math.Inf(1))), none},
		{interval(validate.Interval{Lo: -3, Hi: 4}), "−3.00 … +4.00 %"},
		{interval(validate.Interval{Lo: measure.Number(math.NaN()), Hi: 4}), none},
		{watts(-1.25), "−1.2 W"},
		{strings.Join(Clock(validate.Clock{}), ""), "as given"},
		{lagText(validate.MethodReport{Lag: 0.0123, LagU: 0.0021}), "12.3 ± 2.1 ms"},
		{lagText(validate.MethodReport{Lag: measure.Seconds(math.NaN())}), none},
		{missing(validate.MissingRail{Name: "x", Most: measure.Watt(math.NaN()), Reason: "nothing bounds it"}), "x: nothing bounds it"},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
}

// contrast is WCAG's ratio of two colours as a browser writes them.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(t *testing.T, c string) float64 {
	t.Helper()
	var v [3]int
	if _, err := fmt.Sscanf(c, "rgb(%d, %d, %d)", &v[0], &v[1], &v[2]); err != nil {
		t.Fatalf("%q: %v", c, err)
	}
	var out float64
	for i, w := range []float64{0.2126, 0.7152, 0.0722} {
		x := float64(v[i]) / 255
		if x <= 0.04045 {
			x /= 12.92
		} else {
			x = math.Pow((x+0.055)/1.055, 2.4)
		}
		out += w * x
	}
	return out
}

func TestContrast(t *testing.T) {
	if c := contrast(t, "rgb(0, 0, 0)", "rgb(255, 255, 255)"); math.Abs(c-21) > 1e-9 {
		t.Errorf("black on white is %v", c)
	}
}
