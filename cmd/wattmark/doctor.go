package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	prose "github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// level is how bad a finding is.
type level string

// The levels, the worst last.
const (
	levelOK   level = "ok"
	levelWarn level = "warn"
	levelFail level = "fail"
)

// finding is what one check came to.
type finding struct {
	Check  string `json:"check"`
	Level  level  `json:"level"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

func ok(check, format string, a ...any) finding {
	return finding{Check: check, Level: levelOK, Found: fmt.Sprintf(format, a...)}
}

func warn(check, remedy, format string, a ...any) finding {
	return finding{Check: check, Level: levelWarn, Found: fmt.Sprintf(format, a...), Remedy: remedy}
}

func failed(check, remedy, format string, a ...any) finding {
	return finding{Check: check, Level: levelFail, Found: fmt.Sprintf(format, a...), Remedy: remedy}
}

// doctorFlags say what is looked at.
type doctorFlags struct {
	monitor, host, bench, spool, role, auth string
	// named are the addresses that the user asked for: nobody there is a fault.
	monitorNamed, hostNamed bool
}

// The roles of a machine.
const (
	roleMonitor = "monitor"
	roleHost    = "host"
)

func (f *doctorFlags) meter() bool { return f.role != roleHost }
func (f *doctorFlags) gpu() bool   { return f.role != roleMonitor }

func (a *app) doctorCmd() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use: "doctor", Short: "Check this machine and its peers, and say what to do", Args: cobra.NoArgs,
		Long: `Check what a measurement needs: that monitor and host answer or their ports are
free, that their versions fit, that the meter can be reached and its port may be
opened, the GPU driver, CUPTI and libwattmark for run --auto, other profilers,
MIG, the clock, the disks of spool and database, the database, limits.

Each line is ok, warn or fail; what is not ok comes with what to do. Nothing is
changed: the disks are tried with a file of 16 MiB that is removed, and a bench
file's instrument is opened only where no monitor has it.

--role monitor looks at the machine with the meter, --role host at the one with
the GPU; without it both are looked at, and what only one of them needs is no
more than a warning.

Exit codes: 0 nothing failed; 1 something did.`,
		Example: "  wattmark doctor\n  wattmark doctor --role host --monitor lab-monitor:7551\n  wattmark doctor --json | jq '.findings[] | select(.level != \"ok\")'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.role != "" && f.role != roleMonitor && f.role != roleHost {
				return withCode(exitUsage, fmt.Errorf("--role %q: want monitor or host", f.role))
			}
			f.auth = firstOf(f.auth, authDir())
			f.monitorNamed, f.hostNamed = cmd.Flags().Changed("monitor"), cmd.Flags().Changed("host")
			return a.doctor(cmd.Context(), &doctor{doctorFlags: f, db: a.db, probes: systemProbes()})
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.monitor, "monitor", defaultMonitor, "address of the monitor")
	fl.StringVar(&f.host, "host", defaultHost, "address of wattmark host")
	fl.StringVar(&f.bench, "bench", "", "bench file whose instrument is tried where no monitor has it")
	fl.StringVar(&f.spool, "spool", defaultSpool(), "directory of the monitor's spool")
	fl.StringVar(&f.auth, "auth", "", "folder of the CA and the tokens (default: that of wattmark auth, where there is one)")
	fl.StringVar(&f.role, "role", "", "what this machine is: monitor or host; both when empty")
	return a.jsonFlag(c)
}

// doctor looks at a machine through its probes.
type doctor struct {
	doctorFlags
	probes
	db string
}

// examine runs all checks, in an order in which a reader can follow.
func (d *doctor) examine(ctx context.Context) (all []finding) {
	watch := d.stepWatch()
	peers := d.peers(ctx)
	all = append(all, peers.findings...)
	if d.meter() {
		all = append(all, d.serialPorts()...)
		all = append(all, d.instrument(ctx, peers)...)
	}
	if d.gpu() {
		all = append(all, d.driver()...)
		all = append(all, d.recording()...)
	}
	if d.meter() {
		all = append(all, d.disk(ctx, "spool disk", d.spool, false)...)
	}
	if d.gpu() {
		all = append(all, d.disk(ctx, "database disk", d.db, true)...)
		all = append(all, d.database(ctx)...)
	}
	all = append(all, d.access(time.Now())...)
	all = append(all, d.limits()...)
	return append(all, d.clock(watch)...)
}

// doctorReport is what --json prints.
type doctorReport struct {
	Version  string    `json:"version"`
	Role     string    `json:"role,omitempty"`
	OK       int       `json:"ok"`
	Warned   int       `json:"warned"`
	Failed   int       `json:"failed"`
	Findings []finding `json:"findings"`
}

func (a *app) doctor(ctx context.Context, d *doctor) error {
	r := doctorReport{Version: version(), Role: d.role, Findings: d.examine(ctx)}
	for _, f := range r.Findings {
		switch f.Level {
		case levelOK:
			r.OK++
		case levelWarn:
			r.Warned++
		case levelFail:
			r.Failed++
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		a.renderDoctor(r)
	}
	if r.Failed > 0 {
		return fmt.Errorf("%d of %d checks failed", r.Failed, len(r.Findings))
	}
	return nil
}

// renderDoctor writes one line a finding, wrapped to the terminal, and what to do
// below it.
func (a *app) renderDoctor(r doctorReport) {
	name := 0
	for _, f := range r.Findings {
		name = max(name, len(f.Check))
	}
	width := 0
	look := map[level]string{levelOK: "ok  ", levelWarn: "warn", levelFail: "FAIL"}
	if isTerminal(a.out) {
		width = terminalWidth(a.out)
		c := colours()
		look[levelWarn], look[levelFail] = c.total("warn"), c.warn("FAIL")
	}
	for _, f := range r.Findings {
		fmt.Fprintln(a.out, indented(look[f.Level]+"  "+fit(f.Check, name)+"  ", f.Found, width))
		if f.Remedy != "" {
			fmt.Fprintln(a.out, indented(strings.Repeat(" ", name+8)+"→ ", f.Remedy, width))
		}
	}
	fmt.Fprintf(a.out, "\n%d ok, %d warnings, %d failed\n", r.OK, r.Warned, r.Failed)
}

// indented writes a text behind its head, its further lines below its first.
func indented(head, text string, width int) string {
	text = oneLine(text)
	indent := ansi.StringWidth(head)
	if room := width - indent; width > 0 && room >= leastPlot {
		text = strings.ReplaceAll(prose.WrapSoft(text, room), "\n", "\n"+strings.Repeat(" ", indent))
	}
	return head + text
}

// firstLineOf is an error in a line.
func firstLineOf(err error) string { return firstLine(err.Error()) }

func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text
}
