package sensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/certificate"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/study/correct"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/store"
)

const year = 365 * 24 * time.Hour

func certificateCmd(a *cli.App) *cobra.Command {
	c := &cobra.Command{Use: "certificate", Short: "Certify what a GPU's sensor does, and check such certificates"}
	schema := cli.Command("schema", "Print the JSON schema of a certificate's payload", cobra.NoArgs,
		func(context.Context, []string) error { _, err := cli.Raw(a.Out).Write(certificate.Schema); return err })
	c.AddCommand(certificateKeyCmd(a), certificateMakeCmd(a), certificateVerifyCmd(a), certificateShowCmd(a),
		certificateListCmd(a), schema)
	return c
}

// certificateKeyCmd builds certificate key: it writes FILE, for its owner alone, and FILE.pub.
func certificateKeyCmd(a *cli.App) *cobra.Command {
	var name string
	var valid time.Duration
	c := cli.Command("key FILE", "Make a key to sign certificates with", cobra.ExactArgs(1),
		func(_ context.Context, args []string) error {
			if name = strings.TrimSpace(name); name == "" || strings.ContainsAny(name, "\r\n") || valid <= 0 {
				return cli.Usagef("--issuer names who signs, in one line, and --valid is positive")
			}
			k, err := certificate.NewKey(name, time.Now().Add(valid))
			if err != nil {
				return err
			}
			text, err := k.PEM()
			if err == nil {
				err = auth.WriteNew(args[0], text, 0o600)
			}
			if err == nil {
				err = auth.WriteNew(args[0]+".pub", []byte(k.PublicLine()), 0o644)
			}
			if err != nil {
				return err
			}
			report := map[string]any{"key": args[0], "public": args[0] + ".pub", "id": k.ID(), "expires": k.Expires}
			return a.Print(report, func(w io.Writer) {
				fmt.Fprintf(w, "Key %s of %s, until %s: keep %s, publish %s.pub\n", k.ID(), measure.Printable(k.Name),
					k.Expires.Format(time.DateOnly), args[0], args[0])
			})
		})
	c.Flags().StringVar(&name, "issuer", "", "who signs by it, as in \"Power lab, Example University\"")
	c.Flags().DurationVar(&valid, "valid", 2*year, "how long it may sign, and what it signed counts")
	return a.JSONFlag(c)
}

// makeFlags are those of certificate make, beside those of sensor identify.
type makeFlags struct {
	sensorIdentifyFlags
	key, output, evidence string
	valid, stabilized     time.Duration
}

func certificateMakeCmd(a *cli.App) *cobra.Command {
	var f makeFlags
	c := cli.Command("make", "Identify a sensor and sign a certificate of it", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return certificateMake(a, ctx, &f) })
	fl := c.Flags()
	cli.Section(fl, "The readings and what ran", func() { f.sourceFlags(fl) })
	fl.StringVar(&f.key, "key", "", "private key to sign with, which wattmark certificate key makes")
	fl.StringVarP(&f.output, "output", "o", "", "file to write (default: the certificate on standard output)")
	fl.StringVar(&f.evidence, "evidence", "", "of a task: new folder for its readings and load, which the "+
		"certificate rests on")
	fl.DurationVar(&f.valid, "valid", year, "how long the certificate counts")
	fl.DurationVar(&f.stabilized, "stabilized", 0, "how long the GPU had worked before, if that is known")
	return c
}

// certificateMake identifies one field of the source and signs a certificate of it.
func certificateMake(a *cli.App, ctx context.Context, f *makeFlags) error {
	switch err := f.check(); {
	case err != nil:
		return err
	case f.key == "" || f.field == "" || f.valid <= 0:
		return cli.Usagef("name the --key to sign with and the --field of the sensor; --valid is positive")
	case (f.task != "") != (f.evidence != ""):
		return cli.Usagef("--task and --evidence go together: others must be able to identify the sensor again")
	}
	key, err := readKey(f.key)
	if err != nil {
		return err
	}
	var db *store.DB
	if f.task != "" {
		if db, err = a.OpenDB(ctx, f.task); err != nil {
			return err
		}
		defer db.Close()
	}
	s, err := f.open(a, ctx, db)
	if err == nil && f.task != "" {
		s, err = s.evidence(f.evidence, f.field)
	}
	if err != nil {
		return err
	}
	c, err := f.certify(ctx, s)
	if err != nil {
		return err
	}
	b, err := certificate.Seal(c, key)
	if err != nil {
		return err
	}
	if f.output == "" {
		_, err = cli.Raw(a.Out).Write(b)
		return err
	}
	if err := auth.WriteNew(f.output, b, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Signed by %s into %s\n", measure.Printable(key.Name), f.output)
	return nil
}

// certify identifies the field of f in s, which came from files, and describes it with the
// hashes of the files. Where a meter was read beside, the sensor's error against it is
// found too.
func (f *makeFlags) certify(ctx context.Context, s *sensorSource) (*certificate.Certificate, error) {
	r, err := s.identify(&f.sensorIdentifyFlags)
	if err != nil {
		return nil, err
	}
	p := r.Fields[0].Profile
	if p.UUID == "" || p.Driver == "" || p.GPU == "" {
		return nil, cli.Usagef("whose sensor is it? Name the GPU with --gpu and --gpu-name, and its --driver")
	}
	if s.folder == "" {
		return nil, cli.Usagef("both files lie in one folder and have headings, so that others can read them again")
	}
	now := time.Now().UTC().Truncate(time.Second)
	c := &certificate.Certificate{
		Made: now, Expires: now.Add(f.valid), Maker: "wattmark " + cli.Version(), Sensor: p, Notes: r.Fields[0].Notes,
		Source: certificate.Source{
			Kind: s.kind, From: measure.SecondsOf(f.from), To: measure.SecondsOf(f.to),
			UTCOffset: measure.SecondsOf(f.utcOffset), NoMeter: f.noMeter,
		},
	}
	x := &c.Conditions
	x.Method, x.Reference, x.Load = "nvml", "none", s.truth
	x.UClock = 2 * measure.SecondsOf(cmp.Or(f.uClock, 2*time.Millisecond))
	if x.Stabilization = measure.Number(math.NaN()); f.given("stabilized") {
		x.Stabilization = measure.Number(f.stabilized.Seconds())
	}
	if s.load != nil {
		x.Reference = "external_analyzer"
	}
	for _, name := range s.files {
		b, err := os.ReadFile(filepath.Join(s.folder, name))
		if err != nil {
			return nil, err
		}
		c.Files = append(c.Files, certificate.FileOf(name, b))
	}
	if err := c.Describe(s.Polls[f.field]); err != nil || s.measured == nil {
		return c, err
	}
	c.Source.Shift = s.measured.Clock.Offset
	judged, err := validate.Run(ctx, *s.measured, validate.Options{Seed: 1, Resamples: 1000})
	for _, m := range s.measured.Methods {
		if _, field, _ := smilog.CutTool(m.Name); field == f.field && err == nil {
			c.Against(judged, m.Name)
		}
	}
	return c, err
}

// evidence writes a field's readings and the load into a new folder and reads them back, so
// that the certificate rests on files.
func (s *sensorSource) evidence(dir, field string) (*sensorSource, error) {
	if len(s.Polls[field]) == 0 {
		return nil, cli.Usagef("--field %q: the readings have %s", field, strings.Join(s.Fields, ", "))
	}
	err := cli.WriteWhole(dir, func(part string) error {
		if err := os.Mkdir(part, 0o777); err != nil {
			return err
		}
		err := cli.WriteFile(filepath.Join(part, "readings.csv"), func(w io.Writer) error {
			fmt.Fprintf(w, "time_s,%s_w\n", field)
			for _, p := range s.Polls[field] {
				fmt.Fprintf(w, "%.9f,%.3f\n", float64(p.At), float64(p.Power))
			}
			return nil
		})
		load := s.writePhases
		if s.load != nil {
			load = s.load.Write
		}
		return errors.Join(err, cli.WriteFile(filepath.Join(part, "load.csv"), load))
	})
	if err != nil {
		return nil, err
	}
	read, err := SensorFiles(filepath.Join(dir, "readings.csv"), filepath.Join(dir, "load.csv"), "", "")
	if err == nil {
		read.gpu, read.uuid, read.driver, read.truth = s.gpu, s.uuid, s.driver, s.truth
	}
	return read, err
}

// readKey reads a private key, and the public one beside it.
func readKey(path string) (*certificate.Key, error) {
	public, err := os.ReadFile(path + ".pub")
	if err != nil {
		return nil, err
	}
	k, err := certificate.ParsePublic(string(public))
	if err == nil {
		var private []byte
		if private, err = os.ReadFile(path); err == nil {
			k, err = k.Private(private)
		}
	}
	return k, logfile.In(path, err)
}

// verifyFlags are those of certificate verify.
type verifyFlags struct {
	correct.CertificateFlags
	recordings, gpu, driver, field string
}

// VerifyReport is the result of certificate verify.
type VerifyReport struct {
	File   string `json:"file"`
	Issuer string `json:"issuer"`
	// Trusted: the key is the one that --certificate-key names.
	Trusted bool                     `json:"trusted_key"`
	Files   int                      `json:"files_unchanged"`
	Figures []certificate.Comparison `json:"recomputed"`
}

func certificateVerifyCmd(a *cli.App) *cobra.Command {
	var f verifyFlags
	c := cli.Command("verify FILE", "Check a certificate's signature and dates, and recompute its figures",
		cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
			f.Path = args[0]
			return certificateVerify(a, ctx, &f)
		})
	fl := c.Flags()
	f.KeyFlag(fl)
	f.covers(fl)
	fl.StringVar(&f.recordings, "recordings", "", "folder of the recordings: compare them, identify the sensor again")
	return a.JSONFlag(c)
}

// covers adds the flags that name a sensor.
func (f *verifyFlags) covers(fl *pflag.FlagSet) {
	fl.StringVar(&f.gpu, "gpu", "", "refuse a certificate of another GPU than this UUID, or its beginning")
	fl.StringVar(&f.driver, "driver", "", "refuse one of another driver version")
	fl.StringVar(&f.field, "field", "", "refuse one of another field of the sensor")
}

// certificateVerify refuses a certificate with the reason, else prints what was checked.
func certificateVerify(a *cli.App, ctx context.Context, f *verifyFlags) error {
	c, err := f.Read(a)
	if err == nil {
		err = c.Covers(f.gpu, f.driver, f.field)
	}
	if err != nil {
		return err
	}
	r := VerifyReport{File: f.Path, Issuer: c.Issuer.Name, Trusted: f.Key != "", Figures: []certificate.Comparison{}}
	if f.recordings != "" {
		err := c.Holds(func(name string) ([]byte, error) { return fs.ReadFile(os.DirFS(f.recordings), name) })
		if err != nil {
			return err
		}
		r.Files = len(c.Files)
		if r.Figures, err = recompute(ctx, c, f.recordings); err != nil {
			return err
		}
	}
	return a.Print(r, func(w io.Writer) {
		fmt.Fprintf(w, "%s holds: signed by %s, until %s\n", f.Path, measure.Printable(r.Issuer),
			c.Expires.Format(time.DateOnly))
		if f.recordings != "" {
			fmt.Fprintf(w, "  %s as certified; identified again:\n", measure.Plural(r.Files, "file"))
		}
		for _, x := range r.Figures {
			fmt.Fprintf(w, "  %-12s %.6g, certified %.6g ± %.2g\n", x.Name, x.Found, x.Certified, x.U)
		}
	})
}

// recompute identifies the sensor again from the certified files in dir, and refuses
// figures that lie outside of the certified uncertainties.
func recompute(ctx context.Context, c *certificate.Certificate, dir string) ([]certificate.Comparison, error) {
	x := &c.Source
	f := sensorIdentifyFlags{
		field: c.Sensor.Field, from: x.From.Duration(), to: x.To.Duration(), utcOffset: x.UTCOffset.Duration(),
		noMeter: x.NoMeter, uClock: (c.Conditions.UClock / 2).Duration(),
		given: func(flag string) bool { return flag == "utc-offset" },
	}
	if f.recording = dir; x.Kind == "csv" {
		f.recording = ""
		if len(c.Files) != 2 {
			return nil, fmt.Errorf("%w: %d files: want readings and load", certificate.ErrRefused, len(c.Files))
		}
		f.readings, f.events = filepath.Join(dir, c.Files[0].Name), filepath.Join(dir, c.Files[1].Name)
	}
	s, err := f.open(nil, ctx, nil)
	if err != nil {
		return nil, err
	}
	r, err := s.identify(&f)
	if err != nil {
		return nil, err
	}
	return c.Compare(&r.Fields[0].Profile)
}

func certificateShowCmd(a *cli.App) *cobra.Command {
	var f correct.CertificateFlags
	c := cli.Command("show FILE", "Show what a certificate says", cobra.ExactArgs(1),
		func(_ context.Context, args []string) error {
			f.Path = args[0]
			c, err := f.Read(a)
			if err != nil {
				return err
			}
			full := struct {
				*certificate.Certificate
				Files []certificate.File `json:"files"`
			}{c, c.Files}
			return a.Print(full, func(w io.Writer) { renderCertificate(w, c) })
		})
	f.KeyFlag(c.Flags())
	return a.JSONFlag(c)
}

// renderCertificate writes a certificate as text.
func renderCertificate(w io.Writer, c *certificate.Certificate) {
	renderProfile(w, &c.Sensor)
	x := &c.Conditions
	fmt.Fprintf(w, "  load     %s\n", x.Load)
	fmt.Fprintf(w, "  read     %d times in %v, %.4g /s; mean %v, peak %v, %v by the sensor\n", x.Readings, x.Duration,
		float64(x.SamplingRate), x.Power.Mean, x.Power.Peak, x.Energy)
	for _, e := range c.Errors {
		fmt.Fprintf(w, "  error    %+.2f %% (%+.2f to %+.2f) by the %s: %s\n", e.Percent, e.Low, e.High, e.Basis, e.Class)
	}
	out.Each(w, "  note     %s\n", lists.Map(c.Notes, measure.Printable))
	out.Each(w, "  apply    %s\n", lists.Map(c.Apply, measure.Printable))
	for _, f := range c.Files {
		fmt.Fprintf(w, "  file     %.16s… %s\n", f.Digest.SHA256, measure.Printable(f.Name))
	}
	fmt.Fprintf(w, "  signed   by %s, made %s, until %s\n", measure.Printable(c.Issuer.Name),
		c.Made.Format(time.DateOnly), c.Expires.Format(time.DateOnly))
}

// ListedCertificate is a certificate of a folder, or the reason why it does not count.
type ListedCertificate struct {
	File    string `json:"file"`
	GPU     string `json:"gpu,omitempty"`
	UUID    string `json:"gpu_uuid,omitempty"`
	Driver  string `json:"driver,omitempty"`
	Field   string `json:"field,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	Expires string `json:"expires,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// certificateListCmd builds certificate list: the files *.certificate.json of a folder and
// those below it.
func certificateListCmd(a *cli.App) *cobra.Command {
	var f verifyFlags
	c := cli.Command("list [FOLDER]", "List the certificates of a folder", cobra.MaximumNArgs(1),
		func(_ context.Context, args []string) error {
			list := []ListedCertificate{}
			err := filepath.WalkDir(append(args, ".")[0], func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".certificate.json") {
					return err
				}
				f.Path = path
				c, err := f.Open()
				switch {
				case err != nil:
					list = append(list, ListedCertificate{File: path, Refused: err.Error()})
				case c.Covers(f.gpu, f.driver, f.field) == nil:
					s := &c.Sensor
					list = append(list, ListedCertificate{
						path, s.GPU, s.UUID, s.Driver, s.Field, c.Issuer.Name, c.Expires.Format(time.DateOnly), "",
					})
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.Print(map[string]any{"certificates": list}, func(w io.Writer) {
				head := out.Row{"file", "GPU", "driver", "field", "issuer", "until"}
				out.Table(w, head, list, func(x ListedCertificate) out.Row {
					return out.Row{
						x.File, out.JoinNonEmpty(" ", x.GPU, x.UUID), x.Driver, x.Field, x.Issuer,
						cmp.Or(x.Expires, x.Refused),
					}
				})
			})
		})
	f.KeyFlag(c.Flags())
	f.covers(c.Flags())
	return a.JSONFlag(c)
}
