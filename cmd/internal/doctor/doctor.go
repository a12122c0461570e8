// Package doctor checks a machine for faults that keep a measurement from working,
// and names the remedy of each. Probes read the machine; each check computes its
// findings from their answers alone, so that tests replace the probes.
package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	prose "github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/auth/pki"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/service"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/gpu/amdsmi"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/cupti"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// level is the severity of a finding.
type level string

// The levels, in ascending severity.
const (
	levelOK   level = "ok"
	levelWarn level = "warn"
	levelFail level = "fail"
)

// Finding is the result of one check. Found describes the state, Remedy the step
// to take; it is empty for levelOK.
type Finding struct {
	Check  string `json:"check"`
	Level  level  `json:"level"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	monitor, host, spool, role, auth string
	bench                            session.BenchFlags // its instrument is tried where no monitor has it
	// monitorNamed and hostNamed: the user gave the address, so no answer is a fault.
	monitorNamed, hostNamed bool
	services                []string // folders of this machine's services, which this user may not be able to write to
}

// useServices takes the spool and the database of this machine's services, by their files in a folder, where the user
// names no other ones.
func (f *doctorFlags) useServices(folder string, fl *pflag.FlagSet, db *string) {
	if v := config.Value(filepath.Join(folder, roleMonitor+".yaml"), "spool"); v != "" && !fl.Changed("spool") {
		f.spool, f.services = v, append(f.services, v)
	}
	if v := config.Value(filepath.Join(folder, roleHost+".yaml"), "db"); v != "" && *db == cli.DefaultDB && !fl.Changed("db") {
		*db, f.services = store.Conceal(v), append(f.services, filepath.Dir(v))
	}
}

// The roles of a machine.
const (
	roleMonitor = "monitor"
	roleHost    = "host"
)

func (f *doctorFlags) meter() bool { return f.role != roleHost }

func (f *doctorFlags) gpu() bool { return f.role != roleMonitor }

// doctorCmd returns doctor, which changes nothing on the machine and fails where a check fails.
func doctorCmd(a *cli.App) *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use: "doctor", Short: "Check this machine and its peers, and say what to do", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.role != "" && f.role != roleMonitor && f.role != roleHost {
				return cli.Usagef("--machine %q: want monitor or host", f.role)
			}
			if f.bench != (session.BenchFlags{}) {
				if err := f.bench.Check(); err != nil {
					return err
				}
			}
			f.useServices(daemon.ConfigDir, cmd.Flags(), &a.DB)
			f.auth = cmp.Or(f.auth, service.AuthDir())
			f.monitorNamed, f.hostNamed = cmd.Flags().Changed("monitor"), cmd.Flags().Changed("host")
			return examineAll(cmd.Context(), a, &doctor{doctorFlags: f, db: a.DB, probes: systemProbes()})
		},
	}
	fl := c.Flags()
	cli.MonitorFlag(fl, &f.monitor, "address of the monitor")
	fl.StringVar(&f.host, "host", cli.DefaultHost, "address of wattmark host")
	cli.Configured(fl, "host")
	cli.Section(fl, "The meter, which is tried where no monitor has it", func() { f.bench.AddTo(fl) })
	fl.StringVar(&f.spool, "spool", service.DefaultSpool(), "directory of the monitor's spool")
	fl.StringVar(&f.auth, "auth", "",
		"folder of the CA and the tokens (default: that of wattmark auth, where there is one)")
	fl.StringVar(&f.role, "machine", "", "what this machine is: monitor or host; both when empty")
	return a.JSONFlag(c)
}

// doctor examines a machine through its probes, and collects the findings.
type doctor struct {
	doctorFlags
	probes
	db    string
	found []Finding
}

// ok adds a finding without fault.
func (d *doctor) ok(check, format string, a ...any) {
	d.found = append(d.found, Finding{Check: check, Level: levelOK, Found: fmt.Sprintf(format, a...)})
}

// warn adds a finding that does not prevent measurements.
func (d *doctor) warn(check, remedy, format string, a ...any) {
	d.found = append(d.found, Finding{check, levelWarn, fmt.Sprintf(format, a...), remedy})
}

// failed adds a finding that prevents measurements.
func (d *doctor) failed(check, remedy, format string, a ...any) {
	d.found = append(d.found, Finding{check, levelFail, fmt.Sprintf(format, a...), remedy})
}

// examine runs all checks, services first and the clock last: its step is measured
// over the whole examination.
func (d *doctor) examine(ctx context.Context) []Finding {
	watch := d.stepWatch()
	d.found, d.monitor, d.host = nil, wire.WithPort(d.monitor, wire.MonitorPort), wire.WithPort(d.host, wire.HostPort)
	bench := d.peers(ctx)
	if d.meter() {
		d.serialPorts()
		d.instrument(ctx, bench)
	}
	if d.gpu() {
		d.driver()
		d.recording()
		d.machine()
	}
	if d.meter() {
		d.disk(ctx, "spool disk", d.spool, false)
	}
	if d.gpu() {
		if !store.OnServer(d.db) {
			d.disk(ctx, "database disk", filepath.Dir(d.db), true)
		}
		d.database(ctx)
	}
	d.access(time.Now())
	d.limits()
	d.clock(watch)
	return d.found
}

// DoctorReport is the JSON of doctor.
type DoctorReport struct {
	Version  string    `json:"version"`
	Role     string    `json:"role,omitempty"`
	OK       int       `json:"ok"`
	Warned   int       `json:"warned"`
	Failed   int       `json:"failed"`
	Findings []Finding `json:"findings"`
}

// examineAll examines, prints the findings, and returns an error if a check
// failed.
func examineAll(ctx context.Context, a *cli.App, d *doctor) error {
	r := DoctorReport{Version: cli.Version(), Role: d.role, Findings: d.examine(ctx)}
	of := map[level]int{}
	for _, f := range r.Findings {
		of[f.Level]++
	}
	r.OK, r.Warned, r.Failed = of[levelOK], of[levelWarn], of[levelFail]
	// An interrupted examination has findings that mean nothing.
	if err := ctx.Err(); err != nil {
		return err
	}
	err := a.Print(r, func(w io.Writer) { renderDoctor(w, r) })
	if err == nil && r.Failed > 0 {
		err = fmt.Errorf("%d of %d checks failed", r.Failed, len(r.Findings))
	}
	return err
}

// renderDoctor writes one line per finding, wrapped to the terminal, with the
// remedy below.
func renderDoctor(w io.Writer, r DoctorReport) {
	name, width := 0, out.Room(w)
	for _, f := range r.Findings {
		name = max(name, len(f.Check))
	}
	look := map[level]string{levelOK: "ok  ", levelWarn: "warn", levelFail: "FAIL"}
	if out.Coloured(w) {
		c := out.Colours()
		look[levelWarn], look[levelFail] = c.Total("warn"), c.Warn("FAIL")
	}
	for _, f := range r.Findings {
		fmt.Fprintln(w, indented(look[f.Level]+"  "+cli.Fit(f.Check, name)+"  ", f.Found, width))
		if f.Remedy != "" {
			fmt.Fprintln(w, indented(strings.Repeat(" ", name+8)+"→ ", f.Remedy, width))
		}
	}
	fmt.Fprintf(w, "\n%d ok, %d warnings, %d failed\n", r.OK, r.Warned, r.Failed)
}

// indented writes text after head and aligns its further lines below the first.
// Width 0, or too narrow for text, means no wrapping.
func indented(head, text string, width int) string {
	text = cli.OneLine(text)
	indent := ansi.StringWidth(head)
	if room := width - indent; width > 0 && room >= out.LeastPlot {
		text = strings.ReplaceAll(prose.WrapSoft(text, room), "\n", "\n"+strings.Repeat(" ", indent))
	}
	return head + text
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	return cli.In(cli.Machines, help, doctorCmd(a))
}

// driver checks NVML, MIG and CUDA. A missing driver is a failure only on a
// machine whose role is host.
func (d *doctor) driver() {
	missing := d.warn
	if d.role == roleHost {
		missing = d.failed
	}
	cards, err := d.cards()
	if d.amd() && errors.Is(err, nvml.ErrNoNVML) {
		missing("CUDA", "run measures programs without markers; AMD's own sensor can be the meter: --instrument amdsmi",
			"markers and kernels need CUDA so far, and no driver of NVIDIA's is here")
		return
	}
	switch {
	case errors.Is(err, nvml.ErrNoNVML):
		missing("NVML", "install NVIDIA's driver; the machine with the meter needs none", "%s", cli.FirstLineOf(err))
	case err != nil:
		d.failed("NVML", "look at nvidia-smi; after an update of the driver, restart the machine", "%s",
			cli.FirstLineOf(err))
	case len(cards) == 0:
		missing("NVML", "look at nvidia-smi and lspci", "the driver sees no GPU")
	}
	for i, c := range cards {
		if c.Cut {
			d.warn("MIG", "its energy is the whole card's: switch MIG off (nvidia-smi -i <GPU> -mig 0), or keep the other "+
				"slices idle", "%s (%s) is cut into MIG devices: a meter cannot tell whose power it reads", c.Name, c.UUID)
		}
		if i == 0 {
			d.ok("NVML", "%s, driver %s, NVML %s: %s", measure.Plural(len(cards), "GPU"), c.Driver,
				cmp.Or(d.nvmlVersion(), "of an unknown version"), c.Name)
		}
	}
	gpus, err := d.gpus()
	switch {
	case errors.Is(err, cuda.ErrNoDriver):
		missing("CUDA", "install NVIDIA's driver, which brings libcuda.so.1", "%s", cli.FirstLineOf(err))
	case err != nil && len(cards) > 0:
		d.failed("CUDA", "look at CUDA_VISIBLE_DEVICES and at the driver's log (dmesg)", "%s", cli.FirstLineOf(err))
	case err != nil:
		missing("CUDA", "look at nvidia-smi and CUDA_VISIBLE_DEVICES", "%s", cli.FirstLineOf(err))
	case len(gpus) < len(cards):
		d.ok("CUDA", "%s; sees %d of %d GPUs (CUDA_VISIBLE_DEVICES=%s)", gpus[0].Driver, len(gpus), len(cards),
			d.getenv("CUDA_VISIBLE_DEVICES"))
	default:
		d.ok("CUDA", "%s, %s", gpus[0].Driver, measure.Plural(len(gpus), "GPU"))
	}
}

// amd lists AMD's GPUs, and reports whether there are any.
func (d *doctor) amd() bool {
	cards, err := d.amdCards()
	switch {
	case errors.Is(err, amdsmi.ErrNoLibrary): // as on most machines
	case err != nil:
		d.warn("AMD SMI", "look at amd-smi list; other releases of ROCm may work", "%s", cli.FirstLineOf(err))
	case len(cards) > 0:
		d.ok("AMD SMI", "%s, driver %s, AMD SMI %s: %s", measure.Plural(len(cards), "GPU"), cards[0].Driver,
			d.amdVersion(), cards[0].Name)
	}
	for _, c := range cards {
		if c.Partitions > 1 {
			d.warn("AMD SMI", "its energy is the whole card's: measure with the other partitions idle",
				"%s (%s) is cut into %d partitions, which share one power sensor", c.Name, c.PCIBusID, c.Partitions)
		}
	}
	return len(cards) > 0
}

// machine lists the host's own sensors, whose energies stand beside the card's.
func (d *doctor) machine() {
	list, err := machine.Find("")
	names := strings.Join(lists.Map(list, func(s *machine.Sensor) string { return s.Name }), ", ")
	switch {
	case err != nil:
		d.warn("machine", "tasks lack the host's energy, and are else the same", "%s",
			out.JoinNonEmpty("; ", names, strings.ReplaceAll(err.Error(), "\n", "; ")))
	case len(list) == 0:
		d.ok("machine", "it has no energy counter (powercap, hwmon)")
	default:
		d.ok("machine", "%s", names)
	}
}

// recording checks CUPTI and libwattmark, which run --auto needs, and other
// profilers, which exclude it.
func (d *doctor) recording() {
	tried := cupti.Candidates(d.getenv, d.glob)
	if i := slices.IndexFunc(tried, d.loadable); i >= 0 {
		d.ok("CUPTI", "%s", tried[i])
	} else {
		d.warn("CUPTI", "install the CUDA toolkit or the wheel nvidia-cuda-cupti, or name the file with "+cupti.EnvLibrary+
			"; only run --auto needs it", "not found in %s", measure.Plural(len(tried), "place"))
	}
	if lib := d.library(); lib != "" {
		d.ok("libwattmark", "%s", lib)
	} else {
		d.warn("libwattmark", "install the package libwattmark beside wattmark's; or make lib, and put libwattmark.so beside "+
			"wattmark or into ../lib; run --auto and programs in C need it", "not beside this program")
	}
	var others []string
	for _, v := range []string{cli.InjectionEnv, "NVTX_INJECTION64_PATH", "CUDA_INJECTION32_PATH"} {
		if x := d.getenv(v); x != "" && !strings.Contains(x, "libwattmark") {
			others = append(others, fmt.Sprintf("%s=%s", v, x))
		}
	}
	known := map[string]string{
		"nsys": "Nsight Systems runs (nsys)", "ncu": "Nsight Compute runs (ncu)",
		"nv-hostengine": "DCGM runs (nv-hostengine)",
		"dcgm-exporter": "DCGM's exporter runs (dcgm-exporter)", "nvprof": "nvprof runs",
	}
	for _, p := range d.processes() {
		if who, ok := known[p]; ok {
			others = append(others, who)
		}
	}
	if len(others) == 0 {
		d.ok("profilers", "none seen")
		return
	}
	d.warn("profilers", "end them while run --auto measures: profilers exclude each other, and load the GPU; dcgmi "+
		"profile --pause for DCGM", "%s", strings.Join(others, "; "))
}

// access checks CA, server certificate, key and tokens in the folder of
// credentials, if there is one.
func (d *doctor) access(now time.Time) {
	if d.auth == "" || !d.exists(d.auth) {
		return
	}
	d.certificate(filepath.Join(d.auth, pki.CACert), now)
	d.certificate(filepath.Join(d.auth, pki.ServerCert), now)
	if key := filepath.Join(d.auth, pki.ServerKey); d.exists(key) {
		if _, err := auth.ReadSecret(key); err != nil && !errors.Is(err, fs.ErrPermission) {
			d.failed("access", "let its owner alone read it", "%v", err)
		}
	}
	l, err := auth.ReadList(filepath.Join(d.auth, pki.Tokens))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, fs.ErrPermission):
		d.ok("access", "the tokens in %s are not this user's to read", d.auth)
	case err != nil:
		d.failed("access", "services let nobody in until this was mended", "%v", err)
	default:
		d.tokens(l, now)
	}
}

// certificate checks a certificate's expiry at now; a file that is absent
// or not readable for this user is skipped.
func (d *doctor) certificate(path string, now time.Time) {
	b, err := auth.ReadPublic(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return
	}
	var c *x509.Certificate
	if err == nil {
		if block, _ := pem.Decode(b); block != nil {
			c, err = x509.ParseCertificate(block.Bytes)
		} else {
			err = errors.New(path + " is no certificate")
		}
	}
	if err != nil {
		d.failed("access", "wattmark auth cert makes one", "%v", err)
		return
	}
	const remedy = "wattmark auth cert --server makes a new one, which needs no restart"
	switch ends := c.NotAfter.Format(time.DateOnly); {
	case !now.Before(c.NotAfter):
		d.failed("access", remedy, "%s expired at %s", path, ends)
	case c.NotAfter.Sub(now) < daemon.Expiring:
		d.warn("access", remedy, "%s expires at %s", path, ends)
	default:
		d.ok("access", "%s holds until %s", path, ends)
	}
}

func (d *doctor) tokens(l *auth.List, now time.Time) {
	valid, soon := 0, 0
	for _, t := range l.Tokens {
		switch {
		case !t.Revoked.IsZero() || !now.Before(t.Expires):
		case t.Expires.Sub(now) < daemon.Expiring/4:
			soon++
			d.warn("access", "wattmark auth token makes a new one", "the token %s of %s expires at %s", t.ID, t.Name,
				t.Expires.Format(time.DateOnly))
		default:
			valid++
		}
	}
	d.ok("access", "%s, and %s that expire soon", measure.Plural(valid, "valid token"), measure.Plural(soon, "token"))
}
