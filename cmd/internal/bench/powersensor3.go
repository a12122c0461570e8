package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/monitor/instrument/powersensor3"
)

// sensorTable is the stored configuration: eight sensors, current and voltage in turn.
type sensorTable = [powersensor3.Sensors]powersensor3.Sensor

// psConfigCmd returns powersensor3 config.
func psConfigCmd(a *cli.App) *cobra.Command {
	var port string
	var settings []string
	var yes bool
	c := cli.Command("config", "Show or change the configuration that a PowerSensor3 stores", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return psConfig(ctx, a, port, settings, yes) })
	fl := c.Flags()
	fl.StringVar(&port, "port", "", "the device: a serial port such as /dev/ttyACM0, or tcp:host:port")
	fl.StringArrayVar(&settings, "set", nil, "change pairN.name, sensorN.type, sensorN.vref, sensorN.sensitivity or "+
		"sensorN.in_use: KEY=VALUE; may be given again")
	fl.BoolVar(&yes, "yes", false, "write a change without asking")
	_ = c.MarkFlagRequired("port")
	return a.JSONFlag(c)
}

// psConfig prints the configuration, or changes it by settings of the form KEY=VALUE. The
// settings are parsed against an empty table first, so that a typing error is found before
// the device is opened. A write is read back and compared by the driver.
func psConfig(ctx context.Context, a *cli.App, port string, settings []string, yes bool) error {
	if a.JSON && len(settings) > 0 && !yes {
		return cli.Usagef("--json asks nothing: add --yes to write what --set changes")
	}
	dev, err := powersensor3.New(port, powersensor3.Defaults())
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	if err := applySettings(&sensorTable{}, settings); err != nil { // before a device is touched
		return cli.WithCode(cli.ExitUsage, err)
	}
	if err := dev.OpenToConfigure(ctx); err != nil {
		return err
	}
	defer dev.Close()
	was := dev.Sensors()
	// Apply the changes to a copy: the write needs the whole table.
	want := was
	if err := applySettings(&want, settings); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	if want == was {
		if len(settings) > 0 && !a.JSON {
			fmt.Fprintln(a.Out, "The device holds that already.")
		}
		return printSensors(a, was)
	}
	if !a.JSON {
		printChange(a, was, want)
	}
	if !yes && !agreed(a, "Write this to the device?") {
		return errors.New("nothing was written")
	}
	if err := dev.WriteConfig(ctx, want); err != nil {
		if errors.Is(err, powersensor3.ErrPartial) {
			fmt.Fprintln(a.Err, "The device holds now:")
			printSensorTable(a.Err, dev.Sensors())
		}
		return err
	}
	if a.JSON {
		return printSensors(a, want)
	}
	fmt.Fprintln(a.Out, "Written, read back, and the same.")
	return nil
}

// applySettings applies KEY=VALUE settings to t in order.
func applySettings(t *sensorTable, settings []string) error {
	for _, s := range settings {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("--set %s: want KEY=VALUE", s)
		}
		if err := powersensor3.Set(t, key, value); err != nil {
			return fmt.Errorf("--set %w", err)
		}
	}
	return nil
}

// agreed asks a question and reports whether the answer is y or yes; the end of the input
// means no.
func agreed(a *cli.App, question string) bool {
	fmt.Fprint(a.Out, question, " [y/N] ")
	line, _ := bufio.NewReader(a.In).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// printSensors prints the configuration as a table or as JSON.
func printSensors(a *cli.App, t sensorTable) error {
	type sensor struct {
		Sensor      int     `json:"sensor"`
		Pair        string  `json:"pair"`
		Type        string  `json:"type"`
		Vref        float32 `json:"vref_v"`
		Sensitivity float32 `json:"sensitivity"`
		InUse       bool    `json:"in_use"`
	}
	var list []sensor
	for i, s := range t {
		list = append(list, sensor{i, s.Pair, s.Type, s.Vref, s.Sensitivity, s.InUse})
	}
	return a.Print(map[string]any{"sensors": list}, func(w io.Writer) { printSensorTable(w, t) })
}

// printSensorTable prints the configuration as a table. Even sensors measure currents.
func printSensorTable(w io.Writer, sensors sensorTable) {
	t := out.NewTable(w)
	t.AppendHeader([]any{"sensor", "measures", "pair", "type", "vref", "sensitivity", "in use"})
	for i, s := range sensors {
		t.AppendRow(sensorRow(i, [...]string{"current", "voltage"}[i%2], s))
	}
	t.Render()
}

// sensorRow formats sensor i; word goes into the second column.
func sensorRow(i int, word string, s powersensor3.Sensor) []any {
	unit := [...]string{"V/A", "V/V"}[i%2]
	return []any{
		i, word, s.Pair, s.Type, fmt.Sprintf("%v V", s.Vref), fmt.Sprintf("%v %s", s.Sensitivity, unit),
		s.InUse,
	}
}

// printChange prints the sensors that differ, before and after.
func printChange(a *cli.App, was, want sensorTable) {
	t := out.NewTable(a.Out)
	t.AppendHeader([]any{"sensor", "", "pair", "type", "vref", "sensitivity", "in use"})
	for i := range was {
		if was[i] == want[i] {
			continue
		}
		t.AppendRow(sensorRow(i, "is", was[i]))
		t.AppendRow(sensorRow(i, "becomes", want[i]))
	}
	t.Render()
}
