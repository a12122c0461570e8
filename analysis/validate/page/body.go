package page

import (
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

//go:embed page.css
var style string

// aboutFigures explains the tables; LEVEL, RESAMPLES and SEED are filled in.
//
//go:embed figures.html
var aboutFigures string

// policy forbids a page to load or to run anything.
const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

// section is one subject.
type section struct {
	*validate.Report
	id      int
	heading string
	figures []drawing
}

// Write writes the page as HTML. It fails if nothing was validated or a plot cannot be drawn.
func (p Page) Write(w io.Writer) error {
	if len(p.Reports) == 0 {
		return fmt.Errorf("write the page: nothing was validated")
	}
	var sections []section
	var methods []string
	for i, r := range p.Reports {
		f, err := drawings(r)
		if err != nil {
			return fmt.Errorf("write the page: %s: %w", r.Name, err)
		}
		sections = append(sections, section{r, i + 1, heading(r), f})
		for j := range r.Methods {
			methods = lists.AddNew(methods, r.Methods[j].Name)
		}
	}
	first := p.Reports[0]
	level := fmt.Sprintf("%.4g %%", 100*first.Level)
	about := strings.NewReplacer("LEVEL", level, "RESAMPLES", strconv.Itoa(first.Resamples),
		"SEED", strconv.FormatUint(first.Seed, 10))
	several := len(sections) > 1
	body := h.Main(
		p.header(sections),
		g.If(several, p.together(sections, level)),
		g.If(len(p.Refused) > 0, caution("refused", "Not judged", g.Map(p.Refused, func(r Refusal) g.Node {
			return h.Li(text(r.Name + ": " + r.Reason))
		}))),
		g.Map(sections, func(s section) g.Node { return s.node(several, level) }),
		h.Section(
			h.ID("definitions"), h.H2(text("How to read this")),
			h.Details(
				g.Attr("open"), h.Summary(text("Methods")),
				h.Dl(h.Class("facts"), g.Map(methods, func(m string) g.Node { return fact(m, text(definition(m))) })),
			),
			g.Raw(about.Replace(aboutFigures)),
		),
	)
	return h.Doctype(h.HTML(h.Lang("en"), p.head(several), h.Body(body))).Render(w)
}

// head returns the head with the style and the colours of the methods.
func (p Page) head(several bool) g.Node {
	title := "Validation: " + p.Reports[0].Name
	if several {
		title += " and others"
	}
	colours := "" // of the methods: their variables are --m-NAME and --o-NUMBER
	for _, v := range slices.Sorted(maps.Values(variables)) {
		if n := strings.TrimPrefix(v, "--"); strings.HasPrefix(n, "m-") || strings.HasPrefix(n, "o-") {
			colours += fmt.Sprintf(".sw-%s { background: var(--%s); } ", n, n)
		}
	}
	return h.Head(
		h.Meta(h.Charset("utf-8")),
		h.Meta(g.Attr("http-equiv", "Content-Security-Policy"), h.Content(policy)),
		h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
		h.Meta(h.Name("color-scheme"), h.Content("light dark")),
		h.Link(h.Rel("icon"), h.Href("data:,")),
		h.TitleEl(text(title)), h.StyleEl(g.Raw(style+colours)),
	)
}

// header returns the title, and the verdict of a single subject.
func (p Page) header(list []section) g.Node {
	n := len(list)
	return h.Header(
		h.H1(text("What software says of the GPU's power, against the meter")),
		small("%s, judged %s by %s.", measure.Plural(n, "measurement"), p.Made.Format("2006-01-02 15:04 MST"), p.Maker),
		g.If(n == 1, h.P(h.Class("verdict"), h.ID("verdict"), text(list[0].Verdict+"."))),
	)
}

// together returns the table of the methods over all measurements.
func (p Page) together(list []section, level string) g.Node {
	const label = "All together"
	head := h.Tr(heads("method"), h.Th(h.Class("text"), text("GPU, driver")),
		heads("measurements", "mean error", level+" interval", "MAPE", "RMSE", "RMSE", "within", "worst"),
		h.Th(h.Class("text"), text("of")))
	rows := g.Map(p.Summary.Lines, func(l validate.SummaryLine) g.Node {
		gpu := "all"
		if l.GPU != "" {
			gpu = strings.TrimSuffix(l.GPU+", "+l.Driver, ", ")
		}
		return h.Tr(
			cells(l.Method), h.Td(h.Class("text"), text(gpu)),
			cells(strconv.Itoa(l.N), percent(l.MeanErrorPct), interval(l.Interval), percentPlain(l.MAPEPct),
				percentPlain(l.RMSEPct), joules(l.RMSE), fmt.Sprintf("%d of %d", l.Agreeing, l.Judged), percent(l.WorstPct)),
			h.Td(h.Class("text"), text(l.WorstName)),
		)
	})
	return h.Section(
		h.ID("summary"), h.H2(text(label)),
		h.Ul(h.Class("plain"), g.Map(list, func(s section) g.Node {
			return h.Li(h.A(h.Href(fmt.Sprintf("#s%d", s.id)), text(s.Name)), text(": "+s.Verdict+"."))
		})),
		table(label, "", head, rows),
		small("Over the measurements: MAPE is the mean of the errors' sizes, RMSE the root of their mean square, in per cent "+
			"and in joules; within counts those whose energy agrees with the meter's over their own work. The interval of "+
			"the mean error is by resampling of the measurements, and wants three."),
	)
}

// node returns the section of one subject.
func (s section) node(several bool, level string) g.Node {
	return h.Section(
		h.ID(fmt.Sprintf("s%d", s.id)), h.Class("subject"), h.H2(text(s.heading)),
		g.If(several, h.P(h.Class("verdict"), text(s.Verdict+"."))),
		s.facts(),
		g.If(len(s.Cautions) > 0, caution("", "Caution", items(s.Cautions))),
		h.Div(h.Class("figures"), g.Map(s.figures, func(d drawing) g.Node {
			return h.Figure(g.Raw(d.svg), h.FigCaption(text(d.caption)))
		})),
		s.byMethod(level), s.byKernel(),
	)
}

// facts returns the work, the meter, its clock and the rails that it does not measure.
func (s section) facts() g.Node {
	work := span(s.Work.Length())
	if !s.Origin.IsZero() {
		work += s.Origin.UTC().Format(" from 2006-01-02 15:04:05.000 UTC")
	}
	meter := ""
	if s.Meter != "" {
		meter = s.Meter + ": "
	}
	// The mean and the peak are of the meter within the work.
	rest := fmt.Sprintf(" (k = 2), %s on the average, at most %s, %s", watts(s.Mean), watts(s.Peak),
		measure.Plural(s.Samples, "sample"))
	if s.Lost > 0 {
		rest += fmt.Sprintf(", %s of them lost", span(s.Lost))
	}
	missed := []g.Node{text("every rail that is stated is measured")}
	if len(s.Missing) > 0 {
		missed = nil
		for _, m := range s.Missing {
			missed = append(missed, text(missing(m)), h.Br())
		}
	}
	var clock []g.Node
	for _, l := range Clock(s.Clock) {
		clock = append(clock, text(l), h.Br())
	}
	return h.Dl(
		h.Class("facts"), fact("work", text(work)),
		fact("meter", text(meter), h.Strong(text(energyText(s.Truth.Energy, s.Truth.U))), text(rest)),
		fact("its clock", clock...), fact("not measured", missed...),
	)
}

// byMethod returns the table of the methods with the notes on them.
func (s section) byMethod(level string) g.Node {
	head := h.Tr(heads("method", "energy", "error", "± U", level+" interval", "bias", "RMSE", "MAPE", "lag (k = 2)", "readings",
		"update"))
	rows := g.Map(s.Methods, func(m validate.MethodReport) g.Node {
		class := "bad"
		if m.Agreement == validate.Agrees {
			class = "good"
		}
		return h.Tr(
			h.Td(h.Span(h.Class("sw "+colourClass(s.Report, m.Name))), text(m.Name)),
			cells(joules(m.Energy), percent(m.ErrorPct)), h.Td(h.Class(class), text(m.Agreement.Word())),
			cells(interval(m.Interval), watts(m.Bias), watts(m.RMSE), percentPlain(m.MAPEPct), lagText(m),
				strconv.Itoa(m.Readings), span(m.Update)),
		)
	})
	notes := Notes(s.Methods)
	return g.Group{
		h.H3(text("By method")), table(s.heading+": by method", "methods", head, rows),
		g.If(len(notes) > 0, h.Ul(h.Class("plain dim small"), items(notes))),
	}
}

// byKernel returns the table of the kernels, empty if none is known.
func (s section) byKernel() g.Node {
	lines := s.ByKernel(len(s.Kernels))
	if len(lines) == 0 {
		return nil
	}
	head := h.Tr(heads("kernel", "launches", "time", "meter (k = 2)"),
		g.Map(s.Methods, func(m validate.MethodReport) g.Node { return heads(m.Name) }))
	rows := g.Map(lines, func(l validate.KernelLine) g.Node {
		// Of the sum the time by shares: kernels that overlap would count twice.
		launches, busy := strconv.Itoa(l.Launches), l.Busy
		if l.Kind == validate.AllKernels {
			busy = l.Share
		}
		if l.Kind == validate.WithoutKernel {
			launches = ""
		}
		return h.Tr(
			g.If(l.Kind == validate.AllKernels, h.Class("sum")), h.Td(h.Class("name"), text(l.Name)),
			cells(launches, span(busy), energyText(l.Truth.Energy, l.Truth.U)),
			g.Map(l.Methods, func(m validate.KernelMethod) g.Node {
				return h.Td(h.Title(interval(m.Interval)), text(percent(m.ErrorPct)))
			}),
		)
	})
	return g.Group{
		h.H3(text("By kernel")), table(s.heading+": by kernel", "kernels", head, rows),
		small("Where several kernels run at once each has an equal share of the power, by the meter and by every method; with " +
			"the time in which none ran the lines come to the energy of the work. Errors are of what each method's readings " +
			"make of the same shares, without regard to its lag; the interval is shown where the pointer rests. Kernels " +
			"shorter than the sensor's update are told by what it happened to show."),
	}
}

// table returns a table of rows that scrolls sideways; class may be empty.
func table(label, class string, head, rows g.Node) g.Node {
	return h.Div(
		h.Class("scroll"), h.TabIndex("0"), h.Role("region"), h.Aria("label", label),
		h.Table(g.If(class != "", h.Class(class)), h.THead(head), h.TBody(rows)),
	)
}

// heads returns heading cells of a table.
func heads(texts ...string) g.Node {
	return g.Map(texts, func(t string) g.Node { return h.Th(text(t)) })
}

// cells returns cells of a table.
func cells(texts ...string) g.Node {
	return g.Map(texts, func(t string) g.Node { return h.Td(text(t)) })
}

// items returns the items of a list.
func items(texts []string) g.Node {
	return g.Map(texts, func(t string) g.Node { return h.Li(text(t)) })
}

// fact returns an entry of a list of facts.
func fact(name string, nodes ...g.Node) g.Node { return g.Group{h.Dt(text(name)), h.Dd(nodes...)} }

// small returns a paragraph in small print.
func small(format string, args ...any) g.Node {
	return h.P(h.Class("dim small"), text(fmt.Sprintf(format, args...)))
}

// text returns a text node with unprintable characters replaced: names of tasks, cards
// and kernels come from strangers.
func text(s string) g.Node { return g.Text(measure.Printable(s)) }

// caution returns a list in a box with a title; id may be empty.
func caution(id, title string, list g.Node) g.Node {
	return h.Div(h.Class("caution"), g.If(id != "", h.ID(id)), h.Strong(text(title)), h.Ul(list))
}
