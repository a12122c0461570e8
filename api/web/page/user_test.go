package page_test

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// energyAnswer is what ReadEnergy says.
type energyAnswer struct {
	Energy struct {
		EnergyJ float64 `json:"energy_j"`
		U       float64 `json:"energy_u_j"`
	} `json:"energy"`
}

// params are those of the address behind #.
func (b *tab) params() url.Values {
	b.Helper()
	_, query, _ := strings.Cut(is[string](b, `location.hash`), "?")
	v, err := url.ParseQuery(query)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// box is where the panels of the plot lie.
func (b *tab) box() (x, y, w float64) {
	b.Helper()
	b.do(chromedp.ScrollIntoView(chromedp.CSS(".plot")))
	r := is[[]float64](b, `(() => { const r = document.querySelector('.plot').getBoundingClientRect(); return [r.x, r.y, r.width] })()`)
	return r[0] + 58, r[1] + 100, r[2] - 68
}

// joules holds what is written between the cursors against the API's answer.
func (b *tab) joules(task int) {
	b.Helper()
	p := b.params()
	lo, hi := number(b.T, p.Get("a")), number(b.T, p.Get("b"))
	var want energyAnswer
	b.site.ask(b.T, fmt.Sprintf("/v1/tasks/%d/energy?from_s=%v&to_s=%v", task, min(lo, hi), max(lo, hi)), &want)
	if got := number(b.T, is[string](b, `document.querySelector('#between data').value`)); got != want.Energy.EnergyJ {
		b.Errorf("the page has %v J between %v and %v s, the API %v", got, lo, hi, want.Energy.EnergyJ)
	}
	// What is written is that, rounded as its uncertainty calls for.
	shown := is[string](b, `document.querySelector('#between data').textContent`)
	e, u, _ := strings.Cut(strings.TrimSuffix(shown, " J"), " ± ")
	_, decimals, _ := strings.Cut(u, ".")
	unit := math.Pow(10, -float64(len(decimals)))
	if math.Abs(number(b.T, e)-want.Energy.EnergyJ) > unit/2*1.0001 || math.Abs(number(b.T, u)-want.Energy.U) > unit/2*1.0001 {
		b.Errorf("written is %q for %v ± %v J", shown, want.Energy.EnergyJ, want.Energy.U)
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	if text == "" {
		return math.NaN()
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, "\u202f", ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// touches are two fingers that move apart, and one that moves aside.
func touches(t *testing.T, chrome context.Context) {
	b := open(t, chrome, filled(t), "#/task/1?from=0.3&to=0.7", 400)
	b.until(drawn + " && " + rests)
	if _, err := chromedp.Call(b.ctx, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	x, y, w := b.box()
	at := func(shares ...float64) (points []*input.TouchPoint) {
		for i, s := range shares {
			id := float64(i)
			points = append(points, &input.TouchPoint{X: x + s*w, Y: y, ID: &id})
		}
		return points
	}
	touch := func(kind input.DispatchTouchEventType, points []*input.TouchPoint) {
		t.Helper()
		if points == nil {
			points = []*input.TouchPoint{}
		}
		if _, err := chromedp.Call(b.ctx, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: points}); err != nil {
			t.Fatal(err)
		}
	}
	// Fingers at a quarter apart about the middle, then at a half: half of the span.
	touch(input.DispatchTouchEventTypeTouchStart, at(0.375, 0.625))
	touch(input.DispatchTouchEventTypeTouchMove, at(0.3, 0.7))
	touch(input.DispatchTouchEventTypeTouchMove, at(0.25, 0.75))
	touch(input.DispatchTouchEventTypeTouchEnd, nil)
	b.until(`!location.hash.includes('from=0.3&') && ` + rests)
	p := b.params()
	from, to := number(t, p.Get("from")), number(t, p.Get("to"))
	if math.Abs(to-from-0.2) > 0.01 || math.Abs(from+to-1) > 0.01 {
		t.Errorf("two fingers made 0.3 to 0.7 s %v to %v s", from, to)
	}
	// One finger from the middle to the left: later times.
	touch(input.DispatchTouchEventTypeTouchStart, at(0.5))
	touch(input.DispatchTouchEventTypeTouchMove, at(0.4))
	touch(input.DispatchTouchEventTypeTouchMove, at(0.25))
	touch(input.DispatchTouchEventTypeTouchEnd, nil)
	b.until(fmt.Sprintf(`!location.hash.includes('from=%s&') && %s`, p.Get("from"), rests))
	if moved := number(t, b.params().Get("from")) - from; math.Abs(moved-0.05) > 0.01 {
		t.Errorf("one finger over a quarter of 0.2 s moved by %v s", moved)
	}
}
