package config

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Reloader brings a changed configuration file into a service that runs.
type Reloader struct {
	flags *pflag.FlagSet
	log   *slog.Logger
	// File is as it is in force; nil where there is none.
	File *File
	// Live are the flags that can change while the service runs, with what is to be
	// done when they have.
	Live map[string]func()
	// defaults are the flags' values without a file.
	defaults map[string]string
	// Always is done with each reload, whatever the file says; nil for nothing.
	Always func()
}

// NewReloader is for flags that a file may set.
func NewReloader(flags *pflag.FlagSet, log *slog.Logger) *Reloader {
	r := &Reloader{flags: flags, log: log, Live: map[string]func(){}, defaults: map[string]string{}}
	for _, key := range keysOf(flags) {
		flag := strings.ReplaceAll(key, "_", "-")
		r.defaults[flag] = flags.Lookup(flag).DefValue
	}
	return r
}

// Reload reads the file again. A file with a fault changes nothing; what cannot
// change in a service that runs is told.
func (r *Reloader) Reload() {
	defer func() {
		if r.Always != nil {
			r.Always()
		}
	}()
	if r.File == nil {
		r.log.Info("reload: no configuration file is in use")
		return
	}
	fresh, err := Read(r.File.name, r.flags)
	if err != nil {
		r.log.Error("reload: the configuration stays as it is", "error", err)
		return
	}
	var restart, done, overruled []string
	kept := &File{name: fresh.name}
	for flag, def := range r.defaults {
		was, _ := r.File.lookup(flag)
		now, said := fresh.lookup(flag)
		wanted := def
		if said {
			wanted = now.value
		}
		f := r.flags.Lookup(flag)
		act, live := r.Live[flag]
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
			_ = f.Value.Set(wanted) // Read has tried it
			kept.keep(now)
			act()
			done = append(done, flag+"="+wanted)
		}
	}
	r.File = kept
	r.tell(done, restart, overruled)
}

func (c *File) keep(s setting) {
	if s.key != "" {
		c.settings = append(c.settings, s)
	}
}

func (r *Reloader) tell(done, restart, overruled []string) {
	for _, l := range [][]string{done, restart, overruled} {
		slices.Sort(l)
	}
	r.log.Info("configuration was read again", "file", r.File.name, "changed", strings.Join(done, " "))
	if len(restart) > 0 {
		r.log.Warn("reload: these changes need a restart", "settings", strings.Join(restart, " "))
	}
	if len(overruled) > 0 {
		r.log.Warn("reload: the command line sets these, the file cannot", "settings", strings.Join(overruled, " "))
	}
}
