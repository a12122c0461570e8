package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"wattmark/monitor/instrument/powersensor3"
)

// sensorTable is what a PowerSensor3 stores of its eight sensors.
type sensorTable = [powersensor3.Sensors]powersensor3.Sensor

func (a *app) powersensor3Cmd() *cobra.Command {
	c := &cobra.Command{Use: "powersensor3", Short: "Look after a PowerSensor3"}
	c.AddCommand(a.psConfigCmd())
	return c
}

func (a *app) psConfigCmd() *cobra.Command {
	var port string
	var settings []string
	var yes bool
	c := &cobra.Command{
		Use: "config", Short: "Show or change the configuration that a PowerSensor3 stores", Args: cobra.NoArgs,
		Long: `Show the configuration that a PowerSensor3 stores of its eight sensors, or
change it with --set. Sensors 0, 2, 4, 6 measure the currents of pairs 0 to 3,
sensors 1, 3, 5, 7 their voltages: value = (V − vref)/sensitivity.

A change is shown and asked for, written, read back and compared. Where that
fails, what the device holds now is read again and shown.`,
		Example: `  wattmark powersensor3 config --port /dev/ttyACM0
  wattmark powersensor3 config --port /dev/ttyACM0 --set pair0.name=pcie_12v --set sensor0.sensitivity=0.12
  wattmark powersensor3 config --port /dev/ttyACM0 --set sensor6.in_use=false --set sensor7.in_use=false --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.psConfig(cmd.Context(), port, settings, yes) },
	}
	fl := c.Flags()
	fl.StringVar(&port, "port", "", "the device: a serial port such as /dev/ttyACM0, or tcp:host:port")
	fl.StringArrayVar(&settings, "set", nil, "change pairN.name, sensorN.type, sensorN.vref, sensorN.sensitivity or sensorN.in_use: KEY=VALUE; may be given again")
	fl.BoolVar(&yes, "yes", false, "write a change without asking")
	_ = c.MarkFlagRequired("port")
	return a.jsonFlag(c)
}

func (a *app) psConfig(ctx context.Context, port string, settings []string, yes bool) error {
	if a.json && len(settings) > 0 && !yes {
		return withCode(exitUsage, errors.New("--json asks nothing: add --yes to write what --set changes"))
	}
	dev, err := powersensor3.New(port, powersensor3.Defaults())
	if err != nil {
		return withCode(exitUsage, err)
	}
	if err := applySettings(&sensorTable{}, settings); err != nil { // before a device is touched
		return withCode(exitUsage, err)
	}
	if err := dev.OpenToConfigure(ctx); err != nil {
		return err
	}
	defer dev.Close()
	was := dev.Sensors()
	want := was
	if err := applySettings(&want, settings); err != nil {
		return withCode(exitUsage, err)
	}
	if want == was {
		if len(settings) > 0 && !a.json {
			fmt.Fprintln(a.out, "The device holds that already.")
		}
		return a.printSensors(was)
	}
	if !a.json {
		a.printChange(was, want)
	}
	if !yes && !a.agreed("Write this to the device?") {
		return errors.New("nothing was written")
	}
	if err := dev.WriteConfig(ctx, want); err != nil {
		return a.psFailed(err, dev.Sensors())
	}
	if a.json {
		return a.printSensors(want)
	}
	fmt.Fprintln(a.out, "Written, read back, and the same.")
	return nil
}

// psFailed says what the device holds after a write that failed.
func (a *app) psFailed(err error, held sensorTable) error {
	if errors.Is(err, powersensor3.ErrPartial) {
		fmt.Fprintln(a.err, "The device holds now:")
		printSensorTable(a.err, held)
	}
	return err
}

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

// agreed asks a question that only y or yes affirms.
func (a *app) agreed(question string) bool {
	fmt.Fprint(a.out, question, " [y/N] ")
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// printSensors shows what the device stores.
func (a *app) printSensors(t sensorTable) error {
	if !a.json {
		printSensorTable(a.out, t)
		return nil
	}
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
	return a.printJSON(map[string]any{"sensors": list})
}

func printSensorTable(w io.Writer, sensors sensorTable) {
	t := newTable(w)
	t.AppendHeader([]any{"sensor", "measures", "pair", "type", "vref", "sensitivity", "in use"})
	for i, s := range sensors {
		t.AppendRow(sensorRow(i, [...]string{"current", "voltage"}[i%2], s))
	}
	t.Render()
}

func sensorRow(i int, word string, s powersensor3.Sensor) []any {
	unit := [...]string{"V/A", "V/V"}[i%2]
	return []any{i, word, s.Pair, s.Type, fmt.Sprintf("%v V", s.Vref), fmt.Sprintf("%v %s", s.Sensitivity, unit), s.InUse}
}

// printChange shows the sensors that are to change.
func (a *app) printChange(was, want sensorTable) {
	t := newTable(a.out)
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
