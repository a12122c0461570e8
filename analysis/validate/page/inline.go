package page

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"wattmark/analysis/validate"
)

// figure is a plot within a page.
type figure struct {
	Caption string
	SVG     template.HTML
}

// figures draws the two plots of a report for a page.
func figures(r *validate.Report) ([]figure, error) {
	power, energy, err := plots(r)
	if err != nil {
		return nil, err
	}
	var out []figure
	for _, x := range []struct {
		p       *plot.Plot
		width   vg.Length
		caption string
	}{
		{power, powerWidth, "The meter's power (mean and range of its samples) and what each method read meanwhile."},
		{energy, energyWidth, "The energy that each method says, with its interval, beside the meter's with its uncertainty."},
	} {
		x.p.BackgroundColor = color.Transparent
		label := x.p.Title.Text
		x.p.Title.Text = ""
		svg, err := inline(x.p, x.width, label)
		if err != nil {
			return nil, err
		}
		out = append(out, figure{x.caption, svg})
	}
	return out, nil
}

var (
	prolog = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
	hex    = regexp.MustCompile(`#[0-9A-Fa-f]{6}`)
)

// inline draws a plot as an element of a page, in the page's colours. What the
// drawing library writes is escaped by it, names included.
func inline(p *plot.Plot, width vg.Length, label string) (template.HTML, error) {
	c := vgsvg.New(width, rowHeight)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if err := emit(&b, c); err != nil {
		return "", err
	}
	body := prolog.ReplaceAllString(b.String(), "")
	body = hex.ReplaceAllStringFunc(body, func(h string) string {
		if v, ok := variables[strings.ToUpper(h)]; ok {
			return "var(" + v + ")"
		}
		return h
	})
	head := fmt.Sprintf(`<svg role="img" aria-label="%s" viewBox="0 0 %.6g %.6g" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">`,
		template.HTMLEscapeString(label), width.Points(), rowHeight.Points())
	return template.HTML(head + body), nil // #nosec G203 -- drawn by the library from numbers; the label is escaped
}

// variables are the page's colours by those that plots are drawn in.
var variables = func() map[string]string {
	out := map[string]string{}
	set := func(c color.NRGBA, name string) { out[fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B)] = name }
	set(ink, "--fg")
	set(gridC, "--grid")
	set(truthC, "--truth")
	set(band, "--band")
	set(halo, "--bg")
	for m, c := range byMethod {
		set(c, "--m-"+m)
	}
	for i, c := range others {
		set(c, fmt.Sprintf("--o-%d", i))
	}
	return out
}()
