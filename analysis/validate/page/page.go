// Package page presents validations: as one self-contained page of HTML with its
// plots inlined, for light and dark, and as a figure in SVG. A page loads nothing
// and runs nothing.
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"wattmark/analysis/validate"
	"wattmark/measure"
)

// Page is what a page shows.
type Page struct {
	Reports []*validate.Report
	Summary validate.Summary
	Refused []Refusal
	Made    time.Time
	Maker   string // program and version
}

// Refusal is a subject that could not be judged.
type Refusal struct{ Name, Reason string }

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"energy": energyText[measure.Joule, measure.Joule], "percent": percent, "interval": interval, "watts": watts, "span": span, "count": count,
	"definition": definition, "missing": missing,
	"swatches": swatches, "notes": Notes, "lag": lagText,
	"joules": joules, "clock": clockText, "colour": colourClass, "byKernel": func(r *validate.Report) []validate.KernelLine { return r.ByKernel(len(r.Kernels)) }, "percentPlain": percentPlain,
}).Parse(source))

// section is one subject as the template sees it.
type section struct {
	*validate.Report
	ID      int
	Heading string
	Figures []figure
}

// Write writes the page.
func (p Page) Write(w io.Writer) error {
	p = p.clean()
	data := struct {
		Page
		Sections []section
		Several  bool
		Methods  []string
		Level    string
	}{Page: p, Several: len(p.Reports) > 1}
	if len(p.Reports) == 0 {
		return fmt.Errorf("write the page: nothing was validated")
	}
	seen := map[string]bool{}
	for i, r := range p.Reports {
		f, err := figures(r)
		if err != nil {
			return fmt.Errorf("write the page: %s: %w", r.Name, err)
		}
		data.Sections = append(data.Sections, section{Report: r, ID: i + 1, Heading: heading(r), Figures: f})
		for j := range r.Methods {
			if n := r.Methods[j].Name; !seen[n] {
				seen[n] = true
				data.Methods = append(data.Methods, n)
			}
		}
	}
	data.Level = fmt.Sprintf("%.4g %%", 100*p.Reports[0].Level)
	return page.Execute(w, data)
}
