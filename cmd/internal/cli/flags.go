package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/config"
)

// configured is the annotation of flags that the client configuration may set.
const configured = "wattmark_configured"

// Configured marks flags that take their value from the client configuration where the
// command line has none.
func Configured(fl *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = fl.SetAnnotation(name, configured, nil) // fails for a flag that does not exist
	}
}

// section is the annotation of flags that the help lists under a heading of their own.
const section = "wattmark_section"

// Section lists the flags that add adds to fl under a heading of the help. In a command with
// sections the flags stand in the order in which they were added.
func Section(fl *pflag.FlagSet, title string, add func()) {
	fl.SortFlags = false
	before := map[string]bool{}
	fl.VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
	add()
	fl.VisitAll(func(f *pflag.Flag) {
		if !before[f.Name] {
			_ = fl.SetAnnotation(f.Name, section, []string{title}) // the flag is there
		}
	})
}

// flagSection is a part of a command's help: flags under their heading.
type flagSection struct {
	Title string
	Flags *pflag.FlagSet
}

// flagSections returns the flags of a command by section, those without one first.
func flagSections(c *cobra.Command) []flagSection {
	all := c.LocalFlags()
	list := []flagSection{{"Flags", new(pflag.FlagSet)}}
	all.VisitAll(func(f *pflag.Flag) {
		title := strings.Join(f.Annotations[section], "")
		i := slices.IndexFunc(list, func(s flagSection) bool { return s.Title == cmp.Or(title, "Flags") })
		if i < 0 {
			i, list = len(list), append(list, flagSection{title, new(pflag.FlagSet)})
		}
		list[i].Flags.SortFlags = all.SortFlags
		list[i].Flags.AddFlag(f)
	})
	return list
}

// writeUsage writes the synopsis, examples, subcommands and flags of c, as cobra does, with flags by section and
// wrapped at the terminal's width. It is no usage template of cobra's, since a template that is executed links each
// exported method of each type, 12 MB of the program.
func writeUsage(c *cobra.Command) error {
	var b strings.Builder
	paragraph := func(title, text string) {
		fmt.Fprintf(&b, "\n\n%s\n%s", title, strings.TrimRightFunc(text, unicode.IsSpace))
	}
	b.WriteString("Usage:")
	if c.Runnable() {
		b.WriteString("\n  " + c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\n  " + c.CommandPath() + " [command]")
	}
	if len(c.Aliases) > 0 {
		paragraph("Aliases:", "  "+c.NameAndAliases())
	}
	if c.HasExample() {
		paragraph("Examples:", c.Example)
	}
	for _, g := range slices.Concat(c.Groups(), []*cobra.Group{{Title: "Available Commands:"}}) {
		var list strings.Builder
		for _, sub := range c.Commands() {
			if sub.GroupID == g.ID && (sub.IsAvailableCommand() || sub.Name() == "help") {
				fmt.Fprintf(&list, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
		if list.Len() > 0 {
			paragraph(g.Title, list.String())
		}
	}
	width := NewScreen(os.Stdout, false, false).Columns
	if c.HasAvailableLocalFlags() {
		for _, s := range flagSections(c) {
			paragraph(s.Title+":", s.Flags.FlagUsagesWrapped(width))
		}
	}
	if c.HasAvailableInheritedFlags() {
		paragraph("Global Flags:", c.InheritedFlags().FlagUsagesWrapped(width))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nUse \"%s [command] --help\" for more information about a command.", c.CommandPath())
	}
	_, err := fmt.Fprintln(c.OutOrStderr(), b.String())
	return err
}

// Given reports whether the command line itself sets a flag.
func Given(fl *pflag.FlagSet, name string) bool {
	f := fl.Lookup(name)
	return f != nil && f.Changed && len(f.Annotations[configured]) == 0
}

// GoesWith refuses the named flags where the command line sets one and what it goes with is not there: it would have
// no effect.
func GoesWith(fl *pflag.FlagSet, there bool, with, flags string) error {
	for name := range strings.FieldsSeq(flags) {
		if !there && fl.Changed(name) {
			return Usagef("--%s goes with %s", name, with)
		}
	}
	return nil
}

// MonitorFlag adds --monitor of a command that needs one.
func MonitorFlag(fl *pflag.FlagSet, to *string, usage string) {
	fl.StringVar(to, "monitor", DefaultMonitor, usage)
	Configured(fl, "monitor")
}

// UserFlag adds --user of a command that makes tasks.
func UserFlag(fl *pflag.FlagSet, to *string) {
	fl.StringVar(to, "user", "", "user of the task (default: the login name)")
	Configured(fl, "user")
}

// GPUFlag adds --gpu of a command that measures.
func GPUFlag(fl *pflag.FlagSet, to *string, usage string) {
	fl.StringVar(to, "gpu", "", usage)
	Configured(fl, "gpu")
}

// family returns the name of the command right below the root that c belongs to; of the root its own.
func family(c *cobra.Command) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" "), " ")
	return name
}

// configure sets the flags that the command line does not set from the client configuration,
// for commands that use it.
func (a *App) configure(c *cobra.Command) error {
	if slices.Contains([]string{"bench", "config", "version", "man", "completion", "help"}, family(c)) {
		return nil
	}
	settings, err := config.OpenClient(a.Context)
	if err != nil {
		return WithCode(ExitUsage, err)
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Annotations[configured]; !ok || f.Changed {
			return
		}
		value, source := settings.Value(strings.ReplaceAll(f.Name, "-", "_"))
		if source != "" {
			set := func() error { return c.Flags().Set(f.Name, value) }
			if c.Flags().Lookup("config") != nil { // a service's own file has precedence
				set = func() error { return f.Value.Set(value) }
			}
			f.Annotations[configured] = []string{source}
			if serr := set(); serr != nil && err == nil {
				err = Usagef("%s: %s: %w", source, f.Name, serr)
			}
		}
	})
	return err
}

// relative is the pflag.Value of a relative quantity, written as 0.02 or 2%.
type relative float64

// RelativeFlag adds a flag for a relative quantity, which may be written as 0.02 or 2%.
func RelativeFlag(fl *pflag.FlagSet, to *float64, name string, value float64, usage string) {
	*to = value
	fl.Var((*relative)(to), name, usage)
}

func (r *relative) String() string { return strconv.FormatFloat(float64(*r), 'g', -1, 64) }

// Set reads 0.02 or 2%.
func (r *relative) Set(s string) error {
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return errors.New("want a number or a percentage, as in 0.02 or 2%")
	}
	if percent {
		v /= 100
	}
	*r = relative(v)
	return nil
}

func (*relative) Type() string { return "float" }
