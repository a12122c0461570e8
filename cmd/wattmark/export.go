package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/store"
)

func (a *app) exportCmd() *cobra.Command {
	var format, output string
	var all bool
	var result uint
	c := &cobra.Command{
		Use: "export TASK", Short: "Write a task's samples as CSV or as a recording", Args: oneTask,
		Long: `Write a task's samples.

csv: device time, total power, and current, voltage and power of each rail. Units
and the calibration stand in comment lines that begin with #. Only the window is
written, unless --all is given.

recording: a folder with the raw counts as the meter delivered them, which
"wattmark monitor --instrument replay --port FOLDER" plays again, and what the
host knew (host.json).`,
		Example: "  wattmark export 42 --format csv -o gemm.csv\n  wattmark export 42 --format recording -o gemm.recording",
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "csv" && format != "recording" {
				return withCode(exitUsage, fmt.Errorf("format %q: want csv or recording", format))
			}
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			t, err := a.taskResult(cmd.Context(), db, args[0], result)
			if err != nil {
				return err
			}
			if format == "recording" {
				return exportRecording(cmd.Context(), output, db, t)
			}
			if output == "" || output == "-" {
				return exportCSV(cmd.Context(), a.out, db, t, all)
			}
			return writeFile(output, func(w io.Writer) error { return exportCSV(cmd.Context(), w, db, t, all) })
		},
	}
	resultFlag(c, &result)
	c.Flags().StringVar(&format, "format", "csv", "csv or recording")
	c.Flags().StringVarP(&output, "output", "o", "-", "file or folder to write; - for standard output")
	c.Flags().BoolVar(&all, "all", false, "also the samples outside of the window, markers among them")
	return c
}

// writeFile writes a new file as a whole or not at all.
func writeFile(path string, write func(io.Writer) error) error {
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%s exists: remove it first or name another file", path)
	}
	tmp := path + ".part"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// exportCSV writes the task's samples. Numbers are written so that they read
// back to the same float.
func exportCSV(ctx context.Context, w io.Writer, db *store.DB, t *store.Task, all bool) error {
	out := bufio.NewWriterSize(w, 1<<16)
	var line []byte
	tb := t.Setup.Timebase
	stream, err := measure.NewPowerStream(&t.Setup, func(p *measure.Powers) error {
		for i := range p.Scans() {
			at := tb.Seconds(p.Tick(i))
			if !all && t.Result != nil && (at < t.Result.From || at > t.Result.To) {
				continue
			}
			line = csvLine(line[:0], p.FirstScan+uint64(i), at, p.Rails, i)
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	csvHeader(out, t)
	for b, err := range blocks(ctx, db, t) {
		if err != nil {
			return err
		}
		if err := stream.Add(b); err != nil {
			return err
		}
	}
	if err := stream.Close(); err != nil {
		return err
	}
	return out.Flush()
}

func csvHeader(out *bufio.Writer, t *store.Task) {
	fmt.Fprintf(out, "# wattmark task %d, %s, by %s, launched %s, calibration %s\n", t.ID, t.Name, t.User, t.Launched.UTC().Format(time.RFC3339Nano), t.CalibrationID)
	for _, r := range newRecordReports(&t.Setup) {
		fmt.Fprintf(out, "# %s\n", r.text)
	}
	for _, c := range t.Setup.Channels {
		fmt.Fprintf(out, "# channel %s: %s = %g + %g x count, u(gain) %g relative, u(offset) %g\n", c.Name, c.Unit, c.Offset, c.Gain, c.UGain, c.UOffset)
		if c.Skew != 0 {
			fmt.Fprintf(out, "# channel %s: read %g s behind t_s; a rail's values are brought to the instant of its first channel\n", c.Name, float64(c.Skew))
		}
	}
	for _, m := range t.Setup.Missing {
		fmt.Fprintf(out, "# not measured: rail %s\n", m)
	}
	fmt.Fprint(out, "scan,t_s,power_w")
	for _, r := range t.Setup.Rails {
		if r.Wiring != measure.WiringPower {
			fmt.Fprintf(out, ",%s_current_a,%s_voltage_v", r.Name, r.Name)
		}
		fmt.Fprintf(out, ",%s_power_w", r.Name)
	}
	fmt.Fprintln(out)
}

func csvLine(line []byte, scan uint64, at measure.Seconds, cols []measure.Columns, i int) []byte {
	float := func(v float64) { line = strconv.AppendFloat(append(line, ','), v, 'g', -1, 64) }
	line = strconv.AppendUint(line, scan, 10)
	float(float64(at))
	total := 0.0
	for r := range cols {
		total += float64(cols[r].P[i])
	}
	float(total)
	for r := range cols {
		if len(cols[r].I) > 0 {
			float(float64(cols[r].I[i]))
			float(float64(cols[r].V[i]))
		}
		float(float64(cols[r].P[i]))
	}
	return append(line, '\n')
}
