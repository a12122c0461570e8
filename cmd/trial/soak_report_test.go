package trial

import (
	"context"
	"encoding/csv"
	"fmt"
	"image/color"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// usage is a process's resources at a moment; zeros where it was not running.
type usage struct {
	PID         int
	RSS         int64 // bytes
	Own         int64 // bytes of RSS without pages of files, which the system takes back at will
	Descriptors int
	Goroutines  int // 0 where it does not answer
}

// sample is a look at everything.
type sample struct {
	At                   time.Duration // since the soak began
	Meter, Monitor, Host usage
	Spool, WAL, Database int64 // bytes
}

// watch takes samples until the returned function is called, which returns them.
func (l *lab) watch(ctx context.Context) func() []sample {
	ctx, stop := context.WithCancel(ctx)
	seen := make(chan []sample, 1)
	go func() {
		var all []sample
		tick := time.NewTicker(l.o.sample)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				all = append(all, l.look(ctx))
			case <-ctx.Done():
				seen <- all
				return
			}
		}
	}()
	return func() []sample {
		stop()
		return <-seen
	}
}

func (l *lab) look(ctx context.Context) sample {
	s := sample{At: time.Since(l.begun), Meter: lookAt(l.meter), Monitor: lookAt(l.monitor), Host: lookAt(l.host)}
	s.Monitor.Goroutines = l.goroutines(ctx, "monitor", l.monitorHTTP)
	s.Host.Goroutines = l.goroutines(ctx, "host", l.hostHTTP)
	s.Spool = folderSize(l.path("spool"))
	s.Database, s.WAL = fileSize(l.path("power.db")), fileSize(l.path("power.db-wal"))
	return s
}

// lookAt reads a process's figures from /proc.
func lookAt(p *program) (u usage) {
	q := p.now.Load()
	if q == nil {
		return u
	}
	u.PID = q.Cmd.Process.Pid
	b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(u.PID), "statm"))
	if f := strings.Fields(string(b)); len(f) > 2 {
		resident, _ := strconv.ParseInt(f[1], 10, 64) // the kernel writes numbers
		shared, _ := strconv.ParseInt(f[2], 10, 64)
		page := int64(os.Getpagesize())
		u.RSS, u.Own = resident*page, (resident-shared)*page
	}
	open, _ := Descriptors(u.PID)
	u.Descriptors = len(open)
	return u
}

// goroutines asks a program for the number of its goroutines; 0 where it does not answer. The stacks at the first of
// each number are kept beside the results, so that a verdict against them names them.
func (l *lab) goroutines(ctx context.Context, name, address string) (n int) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A scrape, as Prometheus would: it keeps up the watch of the benches' power, and starts goroutines of its own
	// while it lasts.
	_, _ = Get(ctx, http.DefaultClient, "http://"+address+"/metrics")
	stacks, _ := Get(ctx, http.DefaultClient, "http://"+address+"/debug/pprof/goroutine?debug=1")
	if _, err := fmt.Sscanf(stacks, "goroutine profile: total %d", &n); err != nil {
		return 0
	}
	file := filepath.Join(l.o.out, fmt.Sprintf("goroutines-%s-%d.txt", name, n))
	if _, err := os.Stat(file); err != nil {
		_ = os.WriteFile(file, []byte(stacks), 0o644)
	}
	return n
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func folderSize(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was released in this moment
		}
		if info, err := d.Info(); err == nil && !d.IsDir() {
			total += info.Size()
		}
		return nil
	})
	return total
}

// writeAll writes both tables and the picture.
func writeAll(dir string, samples []sample, captures []soakCapture) error {
	rows := [][]string{{
		"t_s", "monitor_pid", "monitor_rss_bytes", "monitor_own_bytes", "monitor_descriptors", "monitor_goroutines",
		"host_pid", "host_rss_bytes", "host_own_bytes",
		"host_descriptors", "host_goroutines", "meter_rss_bytes", "spool_bytes", "wal_bytes", "database_bytes",
	}}
	for _, s := range samples {
		row := []string{fmt.Sprintf("%.1f", s.At.Seconds())}
		for _, n := range []int64{
			int64(s.Monitor.PID), s.Monitor.RSS, s.Monitor.Own, int64(s.Monitor.Descriptors), int64(s.Monitor.Goroutines),
			int64(s.Host.PID), s.Host.RSS, s.Host.Own,
			int64(s.Host.Descriptors), int64(s.Host.Goroutines), s.Meter.RSS, s.Spool, s.WAL, s.Database,
		} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		rows = append(rows, row)
	}
	if err := writeCSV(filepath.Join(dir, "samples.csv"), rows); err != nil {
		return err
	}
	rows = [][]string{{
		"t_s", "work_s", "fault", "task", "state", "scans", "lost", "energy_j", "u_j", "truth_j",
		"wall_s", "reason",
	}}
	for _, c := range captures {
		rows = append(rows, []string{
			fmt.Sprintf("%.1f", c.At.Seconds()), fmt.Sprintf("%.0f", c.Length.Seconds()), string(c.Fault),
			strconv.FormatInt(c.Task, 10), c.State, strconv.FormatInt(c.Stored, 10),
			strconv.FormatInt(c.Lost, 10), fmt.Sprintf("%.4f", c.EnergyJ), fmt.Sprintf("%.4f", c.UJ),
			fmt.Sprintf("%.4f", c.TruthJ),
			fmt.Sprintf("%.1f", c.Wall.Seconds()), c.Reason + c.Failure,
		})
	}
	if err := writeCSV(filepath.Join(dir, "captures.csv"), rows); err != nil {
		return err
	}
	return picture(filepath.Join(dir, "soak.svg"), samples, captures)
}

func writeCSV(path string, rows [][]string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	err = w.WriteAll(rows)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// plotLine is one curve of a panel.
type plotLine struct {
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
	t := draw.Tiles{
		Rows: len(rows), Cols: 1, PadY: 4 * vg.Millimeter, PadTop: 2 * vg.Millimeter,
		PadBottom: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter,
	}
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

// picture draws samples and captures: four panels over one time.
func picture(path string, samples []sample, captures []soakCapture) error {
	const mega = 1e6
	memory, err := panel("memory, MB", samples,
		plotLine{"monitor", func(s sample) float64 { return float64(s.Monitor.RSS) / mega }},
		plotLine{"host", func(s sample) float64 { return float64(s.Host.RSS) / mega }},
		plotLine{"monitor, without pages of files", func(s sample) float64 { return float64(s.Monitor.Own) / mega }})
	if err != nil {
		return err
	}
	counts, err := panel("descriptors and goroutines", samples,
		plotLine{"monitor, descriptors", func(s sample) float64 { return float64(s.Monitor.Descriptors) }},
		plotLine{"host, descriptors", func(s sample) float64 { return float64(s.Host.Descriptors) }},
		plotLine{"monitor, goroutines", func(s sample) float64 { return float64(s.Monitor.Goroutines) }})
	if err != nil {
		return err
	}
	disk, err := panel("disk, MB", samples,
		plotLine{"spool", func(s sample) float64 { return float64(s.Spool) / mega }},
		plotLine{"log of the database", func(s sample) float64 { return float64(s.WAL) / mega }},
		plotLine{"database", func(s sample) float64 { return float64(s.Database) / mega }})
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
func panel(title string, samples []sample, lines ...plotLine) (*plot.Plot, error) {
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
	// Where no curve runs: steady curves are at the top, and the disk's middle is free.
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
func errorPanel(captures []soakCapture) (*plot.Plot, error) {
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
