package page

import (
	"bytes"
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"wattmark/analysis/validate"
)

// WriteSVG draws subjects below one another: power over time, and the energies.
func WriteSVG(w io.Writer, reports []*validate.Report) error {
	if len(reports) == 0 {
		return fmt.Errorf("draw: nothing was validated")
	}
	title := 7 * vg.Millimeter
	height := (rowHeight + title) * vg.Length(len(reports))
	c := vgsvg.New(powerWidth+energyWidth, height)
	dc := draw.New(c)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	for i, r := range reports {
		r = clean(r)
		left, right, err := plots(r)
		if err != nil {
			return fmt.Errorf("draw %s: %w", r.Name, err)
		}
		bottom := height - vg.Length(i+1)*(rowHeight+title)
		at := func(x, width vg.Length) draw.Canvas {
			return draw.Canvas{Canvas: c, Rectangle: vg.Rectangle{
				Min: vg.Point{X: x, Y: bottom + 2*vg.Millimeter}, Max: vg.Point{X: x + width - 4*vg.Millimeter, Y: bottom + rowHeight},
			}}
		}
		left.Draw(at(2*vg.Millimeter, powerWidth))
		right.Draw(at(powerWidth, energyWidth))
		head := left.Title.TextStyle
		head.Font.Size = 12
		head.XAlign, head.YAlign = draw.XLeft, draw.YBottom
		dc.FillText(head, vg.Point{X: 4 * vg.Millimeter, Y: bottom + rowHeight + 1*vg.Millimeter}, heading(r))
	}
	return emit(w, c)
}

func heading(r *validate.Report) string {
	out := r.Name
	if r.GPU != "" {
		out += " on " + r.GPU
	}
	if r.Driver != "" {
		out += ", driver " + r.Driver
	}
	return out
}

func plots(r *validate.Report) (power, energy *plot.Plot, err error) {
	if power, err = powerPlot(r); err != nil {
		return nil, nil, err
	}
	energy, err = energyPlot(r)
	return power, energy, err
}

// emit writes a canvas with fonts that most machines have.
func emit(w io.Writer, c io.WriterTo) error {
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}
