package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	sessioncmd "github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/top"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/amdsmi"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/discover"
	"github.com/wattmark/wattmark/store"
)

// healthy is a machine with nothing amiss, on which meter and GPU are.
func healthy() *doctor {
	card := gpu.Info{Name: "H200", UUID: "GPU-1", Driver: "580.1"}
	return &doctor{
		doctorFlags: doctorFlags{monitor: "lab:7551", host: "lab:7552", spool: "/spool"},
		db:          "/data/power.db",
		probes: probes{
			askBench: func(context.Context, string) (session.Bench, error) {
				return session.Bench{
					Name: "desk", Version: cli.Version(), Protocol: wire.Speaks,
					Instrument: store.Instrument{Model: "PMD", Serial: "7"},
					Setup: measure.Setup{
						Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100},
						Rails:    make([]measure.Rail, 3),
					},
				}, nil
			},
			askRails: func(context.Context, string) ([]session.RailValue, error) { return nil, errors.New("nothing sampled") },
			askHost:  func(context.Context, string) (string, error) { return cli.Version(), nil },
			bindable: func(string) error { return nil },
			ports: func() ([]discover.Port, error) {
				return []discover.Port{
					{Address: "/dev/ttyACM0", Kinds: []string{"powersensor3"}},
					{Address: "/dev/ttyS0"},
				}, nil
			},
			tryBench:     func(context.Context, sessioncmd.BenchFlags) (string, []string, error) { return "PMD 7 opens", nil, nil },
			serviceBench: func() error { return nil },
			cards:        func() ([]nvml.Card, error) { return []nvml.Card{{Info: card}}, nil },
			nvmlVersion:  func() string { return "13.580" },
			amdCards:     func() ([]amdsmi.Card, error) { return nil, amdsmi.ErrNoLibrary },
			amdVersion:   func() string { return "26.0.0" },
			gpus: func() ([]gpu.Info, error) {
				return []gpu.Info{{Name: "H200", Driver: "CUDA 13.0"}}, nil
			},
			loadable:  func(name string) bool { return name == "libcupti.so.12" },
			library:   func() string { return "/usr/lib/libwattmark.so" },
			processes: func() []string { return []string{"bash", "systemd"} },
			getenv:    func(string) string { return "" },
			glob:      func(string) ([]string, error) { return nil, nil },
			exists:    func(string) bool { return false },
			nearest:   func(dir string) string { return dir },
			tryDisk: func(context.Context, string) (diskState, error) {
				return diskState{Kind: "ext4", Free: 1e12, Fsync: time.Millisecond, Speed: 1e9}, nil
			},
			readDatabase: func(context.Context, string) (databaseState, error) {
				return databaseState{Schema: 9, Tasks: 4, Size: 1e6, Check: "ok"}, nil
			},
			readClock: func() (machine.ClockState, error) {
				return machine.ClockState{Synchronised: true, Offset: 30 * time.Microsecond, MaxError: time.Millisecond}, nil
			},
			stepWatch:  func() func() time.Duration { return func() time.Duration { return 0 } },
			readLimits: func() (limitState, error) { return limitState{Files: 4096, Locked: ^uint64(0)}, nil },
		},
	}
}

func TestDoctorFindsNothingAmiss(t *testing.T) {
	all := healthy().examine(t.Context())
	for _, f := range all {
		if f.Level != levelOK || f.Found == "" || f.Remedy != "" {
			t.Errorf("%+v", f)
		}
	}
	var checks []string
	for _, f := range all {
		checks = append(checks, f.Check)
	}
	for _, want := range []string{
		"monitor", "versions", "host", "ports", "instrument", "NVML", "CUDA", "CUPTI", "libwattmark", "profilers",
		"spool disk", "database disk", "database", "limits", "clock",
	} {
		if !slices.Contains(checks, want) {
			t.Errorf("%s is not looked at", want)
		}
	}
}

func TestDoctorFindsFaults(t *testing.T) {
	silent := func(d *doctor) {
		d.askBench = func(context.Context, string) (session.Bench, error) {
			return session.Bench{}, monitorclient.ErrUnreachable
		}
	}
	bench := func(change func(*session.Bench)) func(*doctor) {
		return func(d *doctor) {
			was := d.askBench
			d.askBench = func(ctx context.Context, a string) (session.Bench, error) {
				b, err := was(ctx, a)
				change(&b)
				return b, err
			}
		}
	}
	disk := func(change func(*diskState)) func(*doctor) {
		return func(d *doctor) {
			was := d.tryDisk
			d.tryDisk = func(ctx context.Context, dir string) (diskState, error) {
				s, err := was(ctx, dir)
				change(&s)
				return s, err
			}
		}
	}
	data := func(s databaseState, err error) func(*doctor) {
		return func(d *doctor) {
			d.readDatabase = func(context.Context, string) (databaseState, error) { return s, err }
		}
	}
	port := func(p discover.Port) func(*doctor) {
		return func(d *doctor) { d.ports = func() ([]discover.Port, error) { return []discover.Port{p}, nil } }
	}
	env := func(name, value string) func(*doctor) {
		return func(d *doctor) {
			d.getenv = func(n string) string {
				if n == name {
					return value
				}
				return ""
			}
		}
	}
	all := func(fs ...func(*doctor)) func(*doctor) {
		return func(d *doctor) {
			for _, f := range fs {
				f(d)
			}
		}
	}
	denied := discover.Port{
		Address: "/dev/ttyACM0", Kinds: []string{"powersensor3"},
		Trouble: "permission denied: join dialout",
	}
	for _, c := range []struct {
		name   string
		change func(*doctor)
		check  string
		level  level
		words  string // in Found or Remedy
	}{
		{"no monitor", silent, "monitor", levelWarn, "start it: wattmark monitor"},
		{
			"no monitor where it should be", all(silent, func(d *doctor) { d.role = roleMonitor }), "monitor",
			levelFail,
			"port is free",
		},
		{
			"no monitor where it was named", all(silent, func(d *doctor) { d.monitorNamed = true }), "monitor",
			levelFail,
			"lab:7551",
		},
		{
			"a stranger on the port", all(silent,
				func(d *doctor) { d.bindable = func(string) error { return errInUse } }),
			"monitor", levelFail, "ss -ltnp",
		},
		{
			"a silent machine", all(silent, func(d *doctor) { d.bindable = func(string) error { return errNotLocal } }),
			"monitor", levelFail, "firewall",
		},
		{
			"an address that is none", all(silent,
				func(d *doctor) { d.bindable = func(string) error { return errors.New("missing port") } }), "monitor",
			levelFail, "missing port",
		},
		{"another protocol", func(d *doctor) {
			d.askBench = func(context.Context, string) (session.Bench, error) {
				return session.Bench{}, fmt.Errorf("get bench: %w: monitor 9.0", monitorclient.ErrVersion)
			}
		}, "monitor", levelFail, "same major version"},
		{
			"an older monitor", bench(func(b *session.Bench) { b.Bridged = "the monitor is older" }), "versions",
			levelWarn, "update the older",
		},
		{"another build", bench(func(b *session.Bench) { b.Version = "0.0.7" }), "versions", levelOK, "monitor 0.0.7"},
		{
			"a monitor that stops", bench(func(b *session.Bench) { b.Draining = true }), "monitor", levelWarn,
			"being stopped",
		},
		{
			"an expired record", bench(func(b *session.Bench) { b.Notes = []string{"record x expired"} }),
			"calibration",
			levelWarn, "record x expired",
		},
		{
			"a damaged capture", bench(func(b *session.Bench) { b.SetAside = []string{"header.json: torn"} }), "spool",
			levelWarn, "header.json: torn",
		},
		{
			"a meter in trouble", bench(func(b *session.Bench) { b.Trouble = "no such port" }), "instrument", levelFail,
			"no such port",
		},
		{"nobody has tried the meter", silent, "instrument", levelWarn, "--instrument and --port, or --bench"},
		{
			"a bench file that opens", all(silent, func(d *doctor) { d.bench.File = "b.yaml" }), "instrument", levelOK,
			"PMD 7 opens",
		},
		{"a bench file that does not", all(silent, func(d *doctor) {
			d.bench.File = "b.yaml"
			d.tryBench = func(context.Context, sessioncmd.BenchFlags) (string, []string, error) {
				return "", nil, errors.New("silent device")
			}
		}), "instrument", levelFail, "silent device"},
		{
			"a bench file that the next start refuses", func(d *doctor) { d.serviceBench = func() error { return errors.New("b.yaml:3:1") } },
			"bench file", levelFail, "b.yaml:3:1",
		},
		{"an old host", func(d *doctor) {
			d.askHost = func(context.Context, string) (string, error) {
				return "", nil
			}
		}, "host", levelWarn, "does not tell its version"},
		{"a host before its restart", func(d *doctor) {
			d.askHost = func(context.Context, string) (string, error) {
				return "0.0.7", nil
			}
		}, "host", levelWarn, "restart"},
		{"no host", func(d *doctor) {
			d.askHost = func(context.Context, string) (string, error) { return "", errors.New("no") }
		}, "host", levelWarn, "works without it"},
		{
			"a meter's port that is closed", port(denied), "ports", levelFail,
			"join dialout; or install packaging/udev/60-wattmark.rules",
		},
		{
			"the same with the rule", all(port(denied),
				func(d *doctor) { d.exists = func(string) bool { return true } }),
			"ports", levelFail, "plug the meter in again",
		},
		{
			"a port of something else", port(discover.Port{Address: "/dev/ttyS0", Trouble: "permission denied: join"}),
			"ports", levelWarn, "/dev/ttyS0",
		},
		{"a port in use", port(discover.Port{
			Address: "/dev/ttyACM0", Kinds: []string{"pmd"},
			Trouble: "wattmark (pid 7) has it",
		}), "ports", levelOK, "pid 7"},
		{"no meter", port(discover.Port{Address: "/dev/ttyS0"}), "ports", levelOK, "1 port may be opened"},
		{
			"no driver", func(d *doctor) { d.cards = func() ([]nvml.Card, error) { return nil, nvml.ErrNoNVML } },
			"NVML",
			levelWarn, "install NVIDIA's driver",
		},
		{"no driver on a host", func(d *doctor) {
			d.role = roleHost
			d.cards = func() ([]nvml.Card, error) { return nil, nvml.ErrNoNVML }
		}, "NVML", levelFail, "install"},
		{
			"AMD's GPUs", amd(amdsmi.Card{Info: gpu.Info{Name: "MI300X", Driver: "6.10.5"}, Partitions: 1}), "AMD SMI", levelOK,
			"1 GPU, driver 6.10.5, AMD SMI 26.0.0: MI300X",
		},
		{"AMD's alone", amd(amdsmi.Card{Partitions: 1}), "CUDA", levelWarn, "markers and kernels need CUDA so far"},
		{"AMD's in parts", amd(amdsmi.Card{Partitions: 8}), "AMD SMI", levelWarn, "8 partitions, which share"},
		{"a release of ROCm to come", func(d *doctor) {
			d.amdCards = func() ([]amdsmi.Card, error) { return nil, fmt.Errorf("%w: 27.0.0", amdsmi.ErrVersion) }
		}, "AMD SMI", levelWarn, "27.0.0"},
		{"a driver and a library that differ", func(d *doctor) {
			d.cards = func() ([]nvml.Card, error) {
				return nil, fmt.Errorf("%w: Driver/library version mismatch (18)", nvml.ErrNVML)
			}
		}, "NVML", levelFail, "restart the machine"},
		{"MIG", func(d *doctor) {
			d.cards = func() ([]nvml.Card, error) { return []nvml.Card{{Cut: true}}, nil }
		}, "MIG", levelWarn, "-mig 0"},
		{
			"no libcuda", func(d *doctor) { d.gpus = func() ([]gpu.Info, error) { return nil, cuda.ErrNoDriver } },
			"CUDA",
			levelWarn, "libcuda.so.1",
		},
		{
			"GPUs that are hidden from CUDA",
			func(d *doctor) { d.gpus = func() ([]gpu.Info, error) { return nil, cuda.ErrNoDevice } }, "CUDA", levelFail,
			"CUDA_VISIBLE_DEVICES",
		},
		{
			"no CUPTI", func(d *doctor) { d.loadable = func(string) bool { return false } }, "CUPTI", levelWarn,
			"WATTMARK_CUPTI",
		},
		{
			"no library", func(d *doctor) { d.library = func() string { return "" } }, "libwattmark", levelWarn,
			"install the package libwattmark",
		},
		{"an injected profiler", env(cli.InjectionEnv, "/opt/nsys.so"), "profilers", levelWarn, "/opt/nsys.so"},
		{"our own injection", env(cli.InjectionEnv, "/usr/lib/libwattmark.so"), "profilers", levelOK, "none"},
		{
			"DCGM", func(d *doctor) { d.processes = func() []string { return []string{"nv-hostengine"} } }, "profilers",
			levelWarn, "dcgmi",
		},
		{"a full disk", disk(func(s *diskState) { s.Free = 1e6 }), "spool disk", levelFail, "monitor's keep drops"},
		{"a disk full of tasks", disk(func(s *diskState) { s.Free = 1e6 }), "database disk", levelFail, "wattmark delete"},
		{"little room", disk(func(s *diskState) { s.Free = 1e9 }), "database disk", levelWarn, "little room"},
		{"memory", disk(func(s *diskState) { s.Kind = "tmpfs" }), "spool disk", levelWarn, "restart"},
		{
			"a database on NFS", disk(func(s *diskState) { s.Kind = "nfs4" }), "database disk", levelFail,
			"write-ahead log",
		},
		{"a spool on NFS", disk(func(s *diskState) { s.Kind = "nfs4" }), "spool disk", levelWarn, "another machine"},
		{"a slow disk", disk(func(s *diskState) { s.Fsync = time.Second }), "spool disk", levelWarn, "slow"},
		{"a disk that is closed", func(d *doctor) {
			d.tryDisk = func(context.Context, string) (diskState, error) { return diskState{}, fs.ErrPermission }
		}, "spool disk", levelFail, "cannot be written"},
		{"no database", data(databaseState{}, fs.ErrNotExist), "database", levelOK, "the first measurement makes one"},
		{
			"something else", data(databaseState{}, store.ErrNotDatabase), "database", levelFail,
			"another file with --db",
		},
		{"a newer database", data(databaseState{}, store.ErrNewer), "database", levelFail, "update wattmark"},
		{
			"a damaged database", data(databaseState{Check: "row 7 missing"}, nil), "database", levelFail,
			"restore a copy",
		},
		{"a large log", data(databaseState{WAL: 1 << 30, Check: "ok"}, nil), "database", levelWarn, "folded in"},
		{"a database that others read", data(databaseState{}, fs.ErrPermission), "database", levelWarn, "this user may not read it"},
		{"a database on a host", func(d *doctor) {
			d.db, d.tryDisk = "host://lab", func(_ context.Context, dir string) (diskState, error) {
				return diskState{Free: 1e12, Speed: 1e9}, map[bool]error{true: errors.New("not its disk")}[dir != "/spool"]
			}
			d.readDatabase = func(context.Context, string) (databaseState, error) { return databaseState{Tasks: 13}, nil }
		}, "database", levelOK, "host://lab: 13 tasks"},
		{"a host without an answer", func(d *doctor) {
			d.db, d.readDatabase = "host://lab", func(context.Context, string) (databaseState, error) {
				return databaseState{}, errors.New("lab:7552: no answer")
			}
		}, "database", levelFail, "host://lab: lab:7552: no answer"},
		{"a service's spool", func(d *doctor) {
			d.services = []string{"/spool"}
			d.tryDisk = func(context.Context, string) (diskState, error) { return diskState{Free: 1e12}, fs.ErrPermission }
		}, "spool disk", levelOK, "1.0 TB free; its service writes there"},
		{"a service's full spool", func(d *doctor) {
			d.services = []string{"/spool"}
			d.tryDisk = func(context.Context, string) (diskState, error) { return diskState{Free: 1e6}, fs.ErrPermission }
		}, "spool disk", levelFail, "almost full"},
		{"addresses without a port", func(d *doctor) {
			d.monitor, d.host = "lab", "gpu-host"
			d.askHost = func(_ context.Context, address string) (string, error) { return "", errors.New(address) }
			d.bindable = func(address string) error { return map[bool]error{true: errNotLocal}[address == "gpu-host:7552"] }
		}, "host", levelFail, "gpu-host:7552 does not answer"},
		{"unfinished tasks", data(databaseState{Unfinished: 2}, nil), "database", levelWarn, "2 tasks"},
		{
			"a free clock", func(d *doctor) { d.readClock = func() (machine.ClockState, error) { return machine.ClockState{}, nil } },
			"clock", levelWarn, "chrony",
		},
		{"no clock", func(d *doctor) {
			d.readClock = func() (machine.ClockState, error) { return machine.ClockState{}, errors.New("adjtimex: no") }
		}, "clock", levelWarn, "adjtimex"},
		{"a clock that jumps", func(d *doctor) {
			d.stepWatch = func() func() time.Duration { return func() time.Duration { return -time.Second } }
		}, "clock", levelWarn, "CLOCK_REALTIME was moved by -1 s"},
		{"few files", func(d *doctor) {
			d.readLimits = func() (limitState, error) { return limitState{Files: 64, Locked: 1e9}, nil }
		}, "limits", levelWarn, "LimitNOFILE"},
		{"little locked memory", func(d *doctor) {
			d.readLimits = func() (limitState, error) { return limitState{Files: 4096, Locked: 65536}, nil }
		}, "limits", levelWarn, "LimitMEMLOCK"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := healthy()
			c.change(d)
			found := d.examine(t.Context())
			if !slices.ContainsFunc(found, func(f Finding) bool {
				return f.Check == c.check && f.Level == c.level && strings.Contains(f.Found+" "+f.Remedy, c.words)
			}) {
				t.Errorf("%s %s %q is not among\n%+v", c.check, c.level, c.words, found)
			}
			for _, f := range found {
				if (f.Level == levelOK) != (f.Remedy == "") {
					t.Errorf("what is not ok wants a remedy, and only that: %+v", f)
				}
			}
		})
	}
}

// Without a spool or a database on the command line, those of the machine's services are looked at.
func TestDoctorLooksAtTheServices(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"monitor.yaml": "spool: /var/lib/wattmark-monitor/spool\n", "host.yaml": "db: /var/lib/wattmark/power.db\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string][2]string{
		"":                      {"/var/lib/wattmark-monitor/spool", "/var/lib/wattmark/power.db"},
		"--spool s --db my.db":  {"s", "my.db"},
		"--db power.db":         {"/var/lib/wattmark-monitor/spool", "power.db"},
		"--spool s --db pg://x": {"s", "pg://x"},
	} {
		var f doctorFlags
		var db string
		fl := pflag.NewFlagSet("", pflag.ContinueOnError)
		fl.StringVar(&f.spool, "spool", "/default", "")
		fl.StringVar(&db, "db", cli.DefaultDB, "")
		if err := fl.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if f.useServices(dir, fl, &db); f.spool != want[0] || db != want[1] {
			t.Errorf("%s: %s and %s, want %s", args, f.spool, db, want)
		}
	}
}

// The bench file of the installed monitor is read where it is there, and its fault is one line.
func TestServiceBench(t *testing.T) {
	dir := t.TempDir()
	config, file := filepath.Join(dir, "monitor.yaml"), filepath.Join(dir, "bench.yaml")
	for _, c := range []struct{ config, bench, want string }{
		{"", "", ""},
		{"instrument: pmd\nport: /dev/a\n", "", ""},
		{"bench: " + file, "instruments:\n- {kind: pmd, port: /dev/a}\n", ""},
		{"bench: " + file, "instruments:\n- {kind: pmd}\nrails: [{}]\n", file + ":2:3: instruments[0]: port is missing"},
	} {
		if err := errors.Join(os.WriteFile(config, []byte(c.config), 0o600), os.WriteFile(file, []byte(c.bench), 0o600)); err != nil {
			t.Fatal(err)
		}
		text := ""
		if err := serviceBench(config); err != nil {
			text = bench.OneLine(err)
		}
		if !strings.HasPrefix(text, c.want) || (text == "") != (c.want == "") || strings.Contains(text, "\n") {
			t.Errorf("%q: got %q, want %q", c.config, text, c.want)
		}
	}
	if err := serviceBench(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}

// The role selects the checks.
func TestDoctorRoles(t *testing.T) {
	for role, absent := range map[string][]string{
		roleMonitor: {"NVML", "CUDA", "CUPTI", "database", "host"},
		roleHost:    {"ports", "instrument", "spool disk"},
	} {
		d := healthy()
		d.role = role
		for _, f := range d.examine(t.Context()) {
			if slices.Contains(absent, f.Check) {
				t.Errorf("%s: %+v", role, f)
			}
		}
	}
}

func TestDoctorTellsAPersonAndAScript(t *testing.T) {
	d := healthy()
	d.library = func() string { return "" }
	var result bytes.Buffer
	a := &cli.App{Streams: cli.Streams{Out: &result}}
	if err := examineAll(t.Context(), a, d); err != nil {
		t.Errorf("a warning is no failure: %v", err)
	}
	if text := result.String(); !strings.Contains(text, "warn  libwattmark") || !strings.Contains(text, "→ install the package libwattmark") ||
		!strings.Contains(text, "1 warnings, 0 failed") {
		t.Errorf("got\n%s", text)
	}
	result.Reset()
	d.readDatabase = func(context.Context, string) (databaseState, error) { return databaseState{}, store.ErrForeign }
	a.JSON = true
	if err := examineAll(t.Context(), a, d); cli.ExitCode(err) != cli.ExitFailed || err == nil {
		t.Errorf("got %v", err)
	}
	var r DoctorReport
	if err := json.Unmarshal(result.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Failed != 1 || r.Warned != 1 || r.OK+2 != len(r.Findings) || r.Version != cli.Version() {
		t.Errorf("%+v", r)
	}
	for _, width := range []int{40, 60, 80} {
		if text := indented("ok    monitor  ", strings.Repeat("words and words ", 20),
			width); out.Widest(text) > width {
			t.Errorf("width %d:\n%s", width, text)
		}
	}
}

// Control characters in a peer's answers are not sent to the terminal.
func TestPeersCannotWriteOnTheTerminal(t *testing.T) {
	const evil = "\x1b]0;title\x07\x1b[2Jgone"
	s := top.NewTopState("lab:1")
	s.TakeBench(session.Bench{
		Name: evil, Holder: evil, CaptureID: "c", Trouble: evil, Instrument: store.Instrument{Model: evil},
	}, []session.Capture{{ID: "c", Holder: evil, TaskName: evil, Reason: evil}})
	for _, text := range []string{
		top.TopView{Width: 200, Now: time.Unix(0, 0), Look: out.PlainLook()}.Picture(s),
		top.TopLine(s, time.Unix(0, 0)), indented("fail  ", evil, 80),
	} {
		if strings.ContainsAny(text, "\x1b\x07") {
			t.Errorf("got %q", text)
		}
	}
	s.TakeFailure(errors.New(evil))
	if text := (top.TopView{Width: 200, Look: out.PlainLook()}).Picture(s); strings.ContainsAny(text, "\x1b\x07") {
		t.Errorf("got %q", text)
	}
}

// amd puts a card of AMD's into the machine, in place of NVIDIA's driver.
func amd(c amdsmi.Card) func(*doctor) {
	return func(d *doctor) {
		d.amdCards = func() ([]amdsmi.Card, error) { return []amdsmi.Card{c}, nil }
		d.cards = func() ([]nvml.Card, error) { return nil, nvml.ErrNoNVML }
	}
}
