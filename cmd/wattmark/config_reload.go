package main

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// reloader brings a changed configuration file into a service that runs.
type reloader struct {
	flags *pflag.FlagSet
	file  *configFile // as it is in force; nil where there is none
	log   *slog.Logger
	// live are the flags that can change while the service runs, with what is to be
	// done when they have.
	live map[string]func()
	// defaults are the flags' values without a file.
	defaults map[string]string
	// always is done with each reload, whatever the file says; nil for nothing.
	always func()
}

// newReloader is for flags that a file may set.
func newReloader(flags *pflag.FlagSet, log *slog.Logger) *reloader {
	r := &reloader{flags: flags, log: log, live: map[string]func(){}, defaults: map[string]string{}}
	for _, key := range configKeys(flags) {
		flag := strings.ReplaceAll(key, "_", "-")
		r.defaults[flag] = flags.Lookup(flag).DefValue
	}
	return r
}

// reload reads the file again. A file with a fault changes nothing; what cannot
// change in a service that runs is told.
func (r *reloader) reload() {
	defer func() {
		if r.always != nil {
			r.always()
		}
	}()
	if r.file == nil {
		r.log.Info("reload: no configuration file is in use")
		return
	}
	fresh, err := readConfig(r.file.name, r.flags)
	if err != nil {
		r.log.Error("reload: the configuration stays as it is", "error", err)
		return
	}
	var restart, done, overruled []string
	kept := &configFile{name: fresh.name}
	for flag, def := range r.defaults {
		was, _ := r.file.lookup(flag)
		now, said := fresh.lookup(flag)
		wanted := def
		if said {
			wanted = now.value
		}
		f := r.flags.Lookup(flag)
		act, live := r.live[flag]
		switch {
		case was.value == now.value:
			kept.keep(now)
		case f.Changed:
			overruled = append(overruled, flag)
			kept.keep(now)
		case !live:
			restart = append(restart, flag)
			kept.keep(was) // told again with the next reload
		default:
			_ = f.Value.Set(wanted) // readConfig has tried it
			kept.keep(now)
			act()
			done = append(done, flag+"="+wanted)
		}
	}
	r.file = kept
	r.tell(done, restart, overruled)
}

func (c *configFile) keep(s setting) {
	if s.key != "" {
		c.settings = append(c.settings, s)
	}
}

func (r *reloader) tell(done, restart, overruled []string) {
	for _, l := range [][]string{done, restart, overruled} {
		slices.Sort(l)
	}
	r.log.Info("configuration was read again", "file", r.file.name, "changed", strings.Join(done, " "))
	if len(restart) > 0 {
		r.log.Warn("reload: these changes need a restart", "settings", strings.Join(restart, " "))
	}
	if len(overruled) > 0 {
		r.log.Warn("reload: the command line sets these, the file cannot", "settings", strings.Join(overruled, " "))
	}
}
