package page

import (
	"fmt"
	"math"
	"testing"
)

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
