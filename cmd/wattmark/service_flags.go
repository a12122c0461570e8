package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"wattmark/cmd/config"
)

// serviceFlags are what both services understand.
type serviceFlags struct {
	config string
	level  slog.LevelVar
	// more are flags of the whole program that the file may set, too.
	more []string
	// fallback is the file that is read where --config names none, if it is there.
	fallback string
}

// configDir is where an installation has its configuration.
const configDir = "/etc/wattmark/"

// addTo gives a command the flags of a service.
func (s *serviceFlags) addTo(c *cobra.Command, name string) {
	s.fallback = configDir + name + ".yaml"
	c.Flags().StringVar(&s.config, "config", "", "configuration file, whose keys are these flags (default: "+s.fallback+", where it is there)")
	c.Flags().TextVar(&s.level, "log-level", &s.level, "least of what is logged: debug, info, warn, error")
}

// flags are those that the file may set.
func (s *serviceFlags) flags(c *cobra.Command) *pflag.FlagSet {
	set := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	set.AddFlagSet(c.LocalFlags())
	for _, name := range s.more {
		set.AddFlag(c.Flags().Lookup(name))
	}
	return set
}

// load reads the configuration file and sets what the command line does not. It
// returns nil where there is no file.
func (s *serviceFlags) load(c *cobra.Command) (*config.File, error) {
	name := s.config
	if name == "" {
		if _, err := os.Stat(s.fallback); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		name = s.fallback
	}
	flags := s.flags(c)
	file, err := config.Read(name, flags)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	if err := file.Apply(flags); err != nil {
		return nil, withCode(exitUsage, err)
	}
	return file, nil
}
