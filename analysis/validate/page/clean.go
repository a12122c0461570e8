package page

import (
	"slices"

	"wattmark/analysis/validate"
	"wattmark/measure"
)

// clean is a report whose names can be shown: what is not printable becomes text
// that is.
func clean(r *validate.Report) *validate.Report {
	c := *r
	for _, s := range []*string{&c.Name, &c.GPU, &c.Driver, &c.Meter, &c.Verdict, &c.Clock.How} {
		*s = measure.Printable(*s)
	}
	c.Methods, c.Kernels, c.Missing = slices.Clone(r.Methods), slices.Clone(r.Kernels), slices.Clone(r.Missing)
	for i := range c.Methods {
		m := &c.Methods[i]
		m.Name, m.Note, m.LagNote = measure.Printable(m.Name), measure.Printable(m.Note), measure.Printable(m.LagNote)
	}
	for i := range c.Kernels {
		c.Kernels[i].Name = measure.Printable(c.Kernels[i].Name)
	}
	for i := range c.Missing {
		c.Missing[i].Name = measure.Printable(c.Missing[i].Name)
	}
	c.Cautions = nil
	for _, x := range r.Cautions {
		c.Cautions = append(c.Cautions, measure.Printable(x))
	}
	return &c
}

// clean is a page whose names can be shown.
func (p Page) clean() Page {
	out := p
	out.Reports, out.Refused = nil, nil
	for _, r := range p.Reports {
		out.Reports = append(out.Reports, clean(r))
	}
	for _, r := range p.Refused {
		out.Refused = append(out.Refused, Refusal{measure.Printable(r.Name), measure.Printable(r.Reason)})
	}
	out.Summary.Lines = slices.Clone(p.Summary.Lines)
	for i := range out.Summary.Lines {
		l := &out.Summary.Lines[i]
		l.GPU, l.Driver, l.Method, l.WorstName = measure.Printable(l.GPU), measure.Printable(l.Driver), measure.Printable(l.Method), measure.Printable(l.WorstName)
	}
	out.Maker = measure.Printable(p.Maker)
	return out
}

// short cuts a name for a plot in its middle: both ends tell names apart.
func short(s string) string {
	const most = 30
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most/2]) + "…" + string(r[len(r)-most/2+1:])
}
