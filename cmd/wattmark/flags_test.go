package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/internal/lists"
)

// ideas are the flags whose usage differs by command, with the idea that each of these usages names.
var ideas = map[string]string{
	"use":           `calibrate on`,
	"method":        `counter, instant|sma, mtsm`,
	"all":           `also|all`,
	"auth":          `CA and the tokens|auth init`,
	"benchmark":     `half, compute or memory`,
	"blocks":        `(?i)blocks`,
	"calibration":   `calibration records`,
	"certificate":   `certificate`,
	"channel":       `channel`,
	"cluster":       `nodes`,
	"config":        `configuration file`,
	"keep":          `0 keeps`,
	"delay":         `its delay|value appears`,
	"dir":           `directory|folder`,
	"driver":        `driver version`,
	"dry-run":       `nothing|show the plan`,
	"duration":      `length of`,
	"events":        `what ran when|when the GPU worked|times in µs`,
	"every":         `distance of|how often`,
	"field":         `field`,
	"format":        `how to print|parquet`,
	"from":          `begin|from this|before this`,
	"gpu":           `GPU`,
	"host":          `wattmark host`,
	"http":          `over HTTP|/metrics`,
	"imperfect":     `gain, offset and clock errors`,
	"job":           `job`,
	"kernel":        `kernel|vectoradd`,
	"kernels":       `kernels`,
	"layout":        `one-thread`,
	"length":        `how long`,
	"level":         `probability|bands`,
	"limit":         `how many`,
	"listen":        `address`,
	"model":         `NAME`,
	"monitor":       `monitor`,
	"name":          `name|Name`,
	"no-meter":      `meter`,
	"no-plot":       `plot out|the plot in the terminal out`,
	"noise":         `watts`,
	"nominal":       `scale`,
	"once":          `and end`,
	"opt-level":     `optimisation level`,
	"output":        `file|folder|directory`,
	"older-than":    `came into the database longer ago`,
	"password-file": `file with the`,
	"period":        `renewal|period`,
	"port":          `device|where the meter is`,
	"preset":        `published|accelwattch`,
	"profile":       `sensor profile|profile of the sensor`,
	"pulse":         `alternate the`,
	"quick":         `the chunks`,
	"rail":          `rail`,
	"readings":      `readings|nvidia-smi`,
	"recording":     `recording|PMD_data`,
	"reference":     `measured with|comes from|certificate's number`,
	"resident":      `blocks that a multiprocessor holds`,
	"seconds":       `length of`,
	"seed":          `seed|of the order`,
	"settle":        `settle|before`,
	"shift":         `meter's start time`,
	"since":         `launched at or after`,
	"sms":           `multiprocessors`,
	"spool":         `spool`,
	"svg":           `draw`,
	"tag":           `key=value`,
	"task":          `task`,
	"tau":           `constant`,
	"times":         `how often|so many times|times that every`,
	"to":            `end|up to|after it`,
	"until":         `launched before`,
	"until-u":       `U of B|relative uncertainty`,
	"user":          `user`,
	"utc-offset":    `ahead of UTC`,
	"valid":         `how long`,
	"version":       `version`,
	"warm-up":       `load the GPU`,
	"window":        `window|mean of`,
	"work":          `work of one|what a task did`,
	"yes":           `do not ask|without asking|do it`,
	"zone":          `time zone`,
}

// twoTypes are the flags of one idea that take values of two types, with the reason.
var twoTypes = map[string]string{
	"resident": "predict calibrate finds it where it is fit",
	"task":     "where a task is named, not chosen, latest is one too",
	"valid":    "of a calibration record the time is checked with the record",
}

// typeOf returns the type of a flag's value: a list has that of its elements, and all numbers have one.
func typeOf(f *pflag.Flag) string {
	kind := strings.TrimSuffix(strings.TrimSuffix(f.Value.Type(), "Slice"), "Array")
	switch kind = regexp.MustCompile(`\d+$`).ReplaceAllString(kind, ""); kind {
	case "int", "uint", "float", "count", "percent":
		return "number"
	case "strings", "list of addresses":
		return "string"
	}
	return kind
}

// A section of a command's help has 20 flags at most, and as many no other command has.
func TestFlagsOfACommand(t *testing.T) {
	const most = 20
	users, own := map[string]int{}, map[string][]string{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.HasParent() {
			c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
				users[f.Name]++
				own[c.CommandPath()] = append(own[c.CommandPath()], f.Name)
			})
			for section := range strings.SplitSeq(c.UsageString(), "\n\n") {
				title, flags, _ := strings.Cut(strings.TrimSpace(section), "\n")
				if n := len(regexp.MustCompile(`(?m)^ +(-., )?--`).FindAllString(flags, -1)); n > most {
					t.Errorf("%s --help: %d flags below %q", c.CommandPath(), n, title)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root(&cli.App{}))
	for path, names := range own {
		if names = slices.DeleteFunc(names, func(name string) bool { return users[name] > 1 }); len(names) > most {
			t.Errorf("%s alone has %d flags: %v", path, len(names), names)
		}
	}
}

// What is said of a wrong number of arguments fits a terminal, whose lines with a bar are not wrapped.
func TestWrongArgumentsFit(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, args := range [][]string{nil, make([]string, 99)} {
			if c.Args == nil || c.Args(c, args) == nil {
				continue
			}
			if text := "wattmark: " + cli.FirstLineOf(c.Args(c, args)); len(text) > 80 && strings.Contains(text, " | ") {
				t.Errorf("%d columns: %s", len(text), text)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root(&cli.App{}))
}

// A flag is one idea in all commands: its usage is the same text, or names the same idea, and its values have one
// type.
func TestOneFlagIsOneIdea(t *testing.T) {
	type use struct{ usage, kind string }
	uses, commands := map[string][]use{}, map[string][]string{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || c.Hidden {
				return
			}
			u := use{f.Usage, typeOf(f)}
			if !slices.Contains(uses[f.Name], u) {
				uses[f.Name] = append(uses[f.Name], u)
				commands[f.Name] = append(commands[f.Name], c.CommandPath())
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root(&cli.App{}))
	for name, list := range uses {
		if len(list) == 1 {
			if ideas[name] != "" || twoTypes[name] != "" {
				t.Errorf("--%s has one usage: it needs no idea", name)
			}
			continue
		}
		idea := regexp.MustCompile(ideas[name])
		kinds := map[string]bool{}
		for i, u := range list {
			if kinds[u.kind] = true; ideas[name] == "" || !idea.MatchString(u.usage) {
				t.Errorf("--%s of %s: %q is not the idea %q", name, commands[name][i], u.usage, idea)
			}
		}
		if (len(kinds) > 1) != (twoTypes[name] != "") {
			t.Errorf("--%s takes %v; stated: %q", name, lists.Map(list, func(u use) string { return u.kind }), twoTypes[name])
		}
	}
	for name := range ideas {
		if uses[name] == nil {
			t.Errorf("no command has --%s", name)
		}
	}
}
