package main

import (
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// line is one curve of a panel.
type line struct {
	name string
	of   func(sample) float64
}

var colours = []color.Color{color.RGBA{31, 119, 180, 255}, color.RGBA{214, 39, 40, 255}, color.RGBA{44, 160, 44, 255}}

// save writes panels below each other.
func save(path string, panels []*plot.Plot) (err error) {
	const width, height = 18 * vg.Centimeter, 22 * vg.Centimeter
	c := vgsvg.New(width, height)
	rows := make([][]*plot.Plot, len(panels))
	for i, p := range panels {
		rows[i] = []*plot.Plot{p}
	}
	t := draw.Tiles{Rows: len(rows), Cols: 1, PadY: 4 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadBottom: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter}
	for i, canvases := range plot.Align(rows, t, draw.New(c)) {
		panels[i].Draw(canvases[0])
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = c.WriteTo(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// picture draws what a soak saw: four panels over one time.
func picture(path string, samples []sample, captures []capture) error {
	const mega = 1e6
	memory, err := panel("memory, MB", samples,
		line{"monitor", func(s sample) float64 { return float64(s.Monitor.RSS) / mega }},
		line{"host", func(s sample) float64 { return float64(s.Host.RSS) / mega }},
		line{"monitor, without pages of files", func(s sample) float64 { return float64(s.Monitor.Own) / mega }})
	if err != nil {
		return err
	}
	counts, err := panel("descriptors and goroutines", samples,
		line{"monitor, descriptors", func(s sample) float64 { return float64(s.Monitor.Descriptors) }},
		line{"host, descriptors", func(s sample) float64 { return float64(s.Host.Descriptors) }},
		line{"monitor, goroutines", func(s sample) float64 { return float64(s.Monitor.Goroutines) }})
	if err != nil {
		return err
	}
	disk, err := panel("disk, MB", samples,
		line{"spool", func(s sample) float64 { return float64(s.Spool) / mega }},
		line{"log of the database", func(s sample) float64 { return float64(s.WAL) / mega }},
		line{"database", func(s sample) float64 { return float64(s.Database) / mega }})
	if err != nil {
		return err
	}
	energy, err := errorPanel(captures)
	if err != nil {
		return err
	}
	return save(path, []*plot.Plot{memory, counts, disk, energy})
}

// panel draws figures over minutes.
func panel(title string, samples []sample, lines ...line) (*plot.Plot, error) {
	p := newPanel(title)
	for i, l := range lines {
		var xy plotter.XYs
		for _, s := range samples {
			if y := l.of(s); y > 0 || title == "disk, MB" {
				xy = append(xy, plotter.XY{X: s.At.Minutes(), Y: y})
			}
		}
		if len(xy) == 0 {
			continue
		}
		curve, err := plotter.NewLine(xy)
		if err != nil {
			return nil, err
		}
		curve.Color = colours[i]
		p.Add(curve)
		p.Legend.Add(l.name, curve)
	}
	p.Y.Min = 0
	// Where no curve runs: what is steady is at the top, and the disk's middle is free.
	if p.Legend.Top = false; title == "disk, MB" {
		p.Legend.XOffs, p.Legend.YOffs = 4*vg.Centimeter, vg.Centimeter
	}
	return p, nil
}

func newPanel(title string) *plot.Plot {
	p := plot.New()
	p.Y.Label.Text, p.X.Label.Text = title, "minutes"
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	return p
}

// errorPanel draws each energy's error in units of its uncertainty: within ±1 is
// right.
func errorPanel(captures []capture) (*plot.Plot, error) {
	p := newPanel("error of the energy, in U")
	var xy plotter.XYs
	for _, c := range captures {
		if c.UJ > 0 && c.TruthJ > 0 {
			xy = append(xy, plotter.XY{X: (c.At + c.Wall).Minutes(), Y: (c.EnergyJ - c.TruthJ) / c.UJ})
		}
	}
	p.Y.Min, p.Y.Max = -1.1, 1.1
	if len(xy) == 0 {
		return p, nil
	}
	dots, err := plotter.NewScatter(xy)
	if err != nil {
		return nil, err
	}
	dots.Color, dots.Radius = colours[0], 1.5
	p.Add(dots)
	return p, nil
}
