package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	hostnvml "wattmark/hostagent/nvml"
	"wattmark/monitor/discover"
	"wattmark/monitor/instrument/registry"
)

func (a *app) instrumentsCmd() *cobra.Command {
	var kinds bool
	var ask []string
	c := &cobra.Command{
		Use: "instruments", Short: "Find the meters of this machine, see what they read, check a bench", Args: cobra.NoArgs,
		Long: `List what a monitor could measure with here: serial ports, USB test instruments
and GPUs, what each may be, and what stands in the way of using it. Many devices share
a chip, and its USB number. Nothing is opened.

--ask opens what it names, and asks who is there: a serial meter by the greeting of
its kind, any other by *IDN?. Only the answers are listed then.`,
		Example: `  wattmark instruments
  wattmark instruments --ask tcp:192.168.1.20:5555
  wattmark instruments --ask /dev/ttyACM0
  wattmark instruments probe --instrument pmd --port /dev/ttyUSB0
  wattmark instruments check --bench bench.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kinds {
				return a.listKinds()
			}
			return a.listInstruments(cmd.Context(), ask)
		},
	}
	c.Flags().BoolVar(&kinds, "kinds", false, "list the kinds of instrument that can be driven, instead")
	c.Flags().StringSliceVar(&ask, "ask", nil, "ask who is at these addresses, and list only that: /dev/ttyACM0, tcp:HOST:PORT, usbtmc:/dev/usbtmc0")
	a.jsonFlag(c)
	c.AddCommand(a.probeCmd(), a.checkCmd())
	return c
}

// instrumentList is what the list prints as JSON.
type instrumentList struct {
	Ports []discover.Port `json:"ports"`
	GPUs  []listedGPU     `json:"gpus"`
	Asked []askedPort     `json:"asked,omitempty"`
}

// listedGPU is a GPU whose own sensor can be read.
type listedGPU struct {
	Index  int    `json:"index"`
	Name   string `json:"name"`
	UUID   string `json:"uuid"`
	Driver string `json:"driver"`
}

func (a *app) listInstruments(ctx context.Context, ask []string) error {
	ports, err := discover.Ports(os.DirFS("/"))
	if err != nil {
		return err
	}
	l := instrumentList{Ports: ports, GPUs: listGPUs()}
	for _, address := range ask {
		l.Asked = append(l.Asked, askIdentity(ctx, address, ports))
	}
	if a.json {
		return a.printJSON(l)
	}
	if len(l.Ports)+len(l.GPUs)+len(l.Asked) == 0 {
		fmt.Fprintln(a.out, `No serial port, USB test instrument or GPU here. Plug the meter in, or name a network
instrument with --ask tcp:HOST:PORT. Without any hardware: wattmark demo, or
wattmark emulate powersensor3 in another terminal.`)
		return nil
	}
	t := newTable(a.out)
	t.AppendHeader(table.Row{"address", "what it is", "try --instrument", ""})
	if len(ask) > 0 { // who asks for one is answered for that one
		l.Ports, l.GPUs = nil, nil
	}
	for _, p := range l.Ports {
		t.AppendRow(table.Row{p.Address, joinNonEmpty(" ", p.Product, p.USB), oneOf(p.Kinds), p.Trouble})
	}
	for _, g := range l.GPUs {
		t.AppendRow(table.Row{fmt.Sprintf("GPU %d", g.Index), g.Name, "nvml", "its own sensor: not the truth"})
	}
	for _, p := range l.Asked {
		t.AppendRow(table.Row{p.Address, firstOf(joinNonEmpty(" ", p.Maker, p.Model, p.Serial, p.Firmware), "no answer"), strings.Join(p.Kinds, ", "), ""})
	}
	t.Render()
	for _, p := range l.Asked {
		if p.Trouble != "" {
			fmt.Fprintf(a.out, "\n%s: %s\n", p.Address, p.Trouble)
		}
	}
	return nil
}

// oneOf names kinds of which a device is one, or none.
func oneOf(kinds []string) string {
	if len(kinds) < 2 {
		return strings.Join(kinds, "")
	}
	return "one of " + strings.Join(kinds, ", ") + " (--ask)"
}

// mostGPUs bounds the search for GPUs.
const mostGPUs = 64

func listGPUs() []listedGPU {
	var out []listedGPU
	for i := range mostGPUs {
		d, err := hostnvml.Open(fmt.Sprint(i))
		if err != nil {
			break
		}
		info := d.Info()
		out = append(out, listedGPU{Index: i, Name: info.Name, UUID: info.UUID, Driver: info.Driver})
		_ = d.Close()
	}
	return out
}

func (a *app) listKinds() error {
	type kind struct {
		Name    string `json:"name"`
		Summary string `json:"summary"`
		Address string `json:"address"`
	}
	var list []kind
	t := newTable(a.out)
	t.AppendHeader(table.Row{"kind", "what", "address"})
	for _, k := range registry.Kinds() {
		list = append(list, kind{k.Name, k.Summary, k.Address})
		t.AppendRow(table.Row{k.Name, k.Summary, k.Address})
	}
	if a.json {
		return a.printJSON(list)
	}
	t.Render()
	return nil
}

// meterFlags say which instrument to open, and for how long.
type meterFlags struct {
	benchFlags
	length time.Duration
}

func (f *meterFlags) add(c *cobra.Command, length time.Duration) {
	fl := c.Flags()
	fl.StringVar(&f.file, "bench", "", "bench file")
	fl.StringVar(&f.instrument, "instrument", "", "meter without a bench file (wattmark instruments --kinds lists them)")
	fl.StringVar(&f.port, "port", "", "where the meter is")
	fl.StringVar(&f.gpu, "gpu", "", "GPU of --instrument nvml by index, UUID or PCI bus id")
	fl.StringVar(&f.records, "calibration", "", "folder of the calibration records (default: calibration/ beside the bench file)")
	fl.BoolVar(&f.nominal, "nominal", false, "leave the calibration records out: the scale of the instrument and the bench file alone")
	fl.DurationVar(&f.length, "for", length, "how long to measure")
}

func (f *meterFlags) check() error {
	if (f.file == "") == (f.instrument == "") {
		return withCode(exitUsage, errors.New("name a bench file with --bench, or a meter with --instrument and --port"))
	}
	if f.nominal && f.records != "" {
		return withCode(exitUsage, errors.New("--nominal leaves the records out that --calibration names: give one of them"))
	}
	if f.length < 0 {
		return withCode(exitUsage, fmt.Errorf("--for %v: must be positive", f.length))
	}
	return nil
}
