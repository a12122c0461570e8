package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
)

// peers are the services that were asked.
type peers struct {
	findings []finding
	bench    *monitorclient.Bench // nil where no monitor answers
}

// peers looks for monitor and host, and holds their versions against this one's.
func (d *doctor) peers(ctx context.Context) (p peers) {
	b, err := d.askBench(ctx, d.monitor)
	switch {
	case errors.Is(err, monitorclient.ErrVersion):
		p.findings = append(p.findings, failed("monitor", "install the same major version on both machines", "%v", err))
	case err == nil:
		p.bench = &b
		p.findings = append(p.findings, d.monitorFindings(b)...)
	default:
		p.findings = append(p.findings, d.silent("monitor", d.monitor, d.monitorNamed, d.role == roleMonitor, err, "start it: wattmark monitor --bench bench.yaml (or systemctl start wattmark-monitor)"))
	}
	if !d.gpu() && !d.hostNamed {
		return p // it is on the other machine, and this one never asks it
	}
	version, err := d.askHost(ctx, d.host)
	switch {
	case err == nil:
		p.findings = append(p.findings, d.hostFinding(version))
	default:
		p.findings = append(p.findings, d.silent("host", d.host, d.hostNamed, d.role == roleHost, err, "start it: wattmark host (or systemctl start wattmark-host); wattmark run works without it"))
	}
	return p
}

// monitorFindings are about a monitor that answers.
func (d *doctor) monitorFindings(b monitorclient.Bench) (out []finding) {
	who := "free"
	if b.Holder != "" {
		who = "held by " + b.Holder
	}
	out = append(out, ok("monitor", "answers at %s: bench %s, %s", d.monitor, b.Name, who))
	if b.Draining {
		out = append(out, warn("monitor", "wait until it was started anew", "it is being stopped and takes no new captures"))
	}
	for _, s := range b.SetAside {
		out = append(out, warn("spool", "look at it on the monitor's machine: mend it from a copy, or move it away, and start the monitor anew", "left as it is: %s", s))
	}
	switch {
	case b.Bridged != "":
		out = append(out, warn("versions", "update the older of the two; measurements work, and each task has a note", "%s", b.Bridged))
	case b.Version != version():
		out = append(out, ok("versions", "monitor %s, this program %s; both speak protocol %v", measure.Printable(b.Version), version(), b.Protocol))
	default:
		out = append(out, ok("versions", "monitor and this program are %s, protocol %v", version(), b.Protocol))
	}
	return append(out, calibrationNotes(b.Notes)...)
}

// calibrationNotes are what an operator should know of the records.
func calibrationNotes(notes []string) (out []finding) {
	for _, n := range notes {
		out = append(out, warn("calibration", "wattmark calibrate show; docs/calibration.md", "%s", n))
	}
	return out
}

func (d *doctor) hostFinding(theirs string) finding {
	switch theirs {
	case "":
		return warn("host", "update wattmark host and start it anew", "answers at %s, and does not tell its version: it is older than this program (%s)", d.host, version())
	case version():
		return ok("host", "answers at %s, version %s", d.host, theirs)
	}
	return warn("host", "start it anew after an update: systemctl restart wattmark-host", "answers at %s with version %s, this program is %s", d.host, measure.Printable(theirs), version())
}

// silent judges an address at which no service of ours answers.
func (d *doctor) silent(name, address string, named, wanted bool, err error, remedy string) finding {
	if f, ok := distrusted(name, address, err); ok {
		return f
	}
	switch err := d.bindable(address); {
	case err == nil && (named || wanted):
		return failed(name, remedy, "nothing listens at %s; the port is free", address)
	case err == nil:
		return warn(name, remedy, "nothing listens at %s; the port is free", address)
	case errors.Is(err, errInUse):
		return failed(name, "find out who has it (ss -ltnp), stop it, or choose another --listen", "another program listens at %s", address)
	case errors.Is(err, errNotLocal):
		return failed(name, "start the service there, and look at the network and firewall between the two", "%s does not answer", address)
	default:
		return failed(name, "look at the address", "%s: %s", address, firstLineOf(err))
	}
}

// instrument asks the monitor for its meter, or tries a bench file's.
func (d *doctor) instrument(ctx context.Context, p peers) []finding {
	if b := p.bench; b != nil {
		if b.Trouble != "" {
			return []finding{failed("instrument", "look at its cable and power, and at wattmark instruments", "the monitor cannot use it: %s", firstLine(b.Trouble))}
		}
		text := fmt.Sprintf("%s, %v, %s, %s", instrumentText(b.Instrument), rateText(float64(b.Setup.Timebase.SampleRate())), plural(len(b.Setup.Rails), "rail"), recordsText(&b.Setup))
		if b.Holder != "" {
			return []finding{ok("instrument", "%s; no trouble in the capture that runs", text)}
		}
		if b.Version == version() { // an earlier one tells what it remembers
			text = "answers: " + text
		}
		return []finding{ok("instrument", "%s", text)}
	}
	if d.bench == "" {
		return []finding{warn("instrument", "start the monitor, or name a bench file with --bench", "not tried: no monitor answers")}
	}
	found, notes, err := d.tryBench(ctx, d.bench)
	if err != nil {
		return []finding{failed("instrument", "look at its cable, its power and the bench file; wattmark instruments finds meters", "%s", firstLineOf(err))}
	}
	return append(calibrationNotes(notes), ok("instrument", "%s", found))
}

// serialPorts looks whether this user may open the meters' ports.
func (d *doctor) serialPorts() (out []finding) {
	ports, err := d.ports()
	if err != nil {
		return []finding{warn("ports", "look at /dev", "they cannot be listed: %v", err)}
	}
	meters, free := 0, 0
	for _, p := range ports {
		what := p.Address
		if len(p.Kinds) > 0 {
			what += " (" + strings.Join(p.Kinds, " or ") + ")"
			meters++
		}
		hint, denied := strings.CutPrefix(p.Trouble, "permission denied: ")
		switch {
		case denied:
			f := failed("ports", hint+d.udev(), "%s may not be opened by this user", what)
			if len(p.Kinds) == 0 { // a port of something else, maybe
				f.Level = levelWarn
			}
			out = append(out, f)
		case p.Trouble != "":
			out = append(out, ok("ports", "%s: %s", what, p.Trouble))
		default:
			free++
			if len(p.Kinds) > 0 {
				out = append(out, ok("ports", "%s may be opened", what))
			}
		}
	}
	if meters == 0 {
		out = append(out, ok("ports", "no meter that is known by its USB number is plugged in; %s may be opened", plural(free, "port")))
	}
	return out
}

// udev says whether the rule that gives meters to a group is installed.
func (d *doctor) udev() string {
	for _, dir := range []string{"/etc/udev/rules.d/", "/usr/lib/udev/rules.d/", "/lib/udev/rules.d/"} {
		if d.exists(dir + udevRule) {
			return "; the udev rule is installed: plug the meter in again"
		}
	}
	return "; or install packaging/udev/" + udevRule + ", which comes with the Debian package"
}

// udevRule is the file that gives serial meters to the group dialout.
const udevRule = "60-wattmark.rules"

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
