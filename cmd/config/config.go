// Package config reads the configuration files of the services: a file sets the
// flags of a command. Each key is the name of a flag, with _ for -. A flag on the
// command line wins.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/monitor/regular"
)

// setting is the value of a key in a configuration file.
type setting struct {
	value string
	at    *token.Position
}

// File is a configuration file that was read.
type File struct {
	name     string
	settings map[string]setting // by the name of the flag
}

// Name is the file's path.
func (c *File) Name() string { return c.name }

// Len is the number of keys that the file sets.
func (c *File) Len() int { return len(c.settings) }

// maxSize bounds a configuration file; it is written by hand.
const maxSize = 1 << 20

// Read reads a configuration file for a command. Errors name line and
// column.
func Read(name string, flags *pflag.FlagSet) (*File, error) {
	data, err := read(name)
	if err != nil {
		return nil, err
	}
	return Parse(name, data, flags)
}

// Value returns what a file sets a key to; "" where it has no such key or cannot be read.
func Value(name, key string) string {
	var settings map[string]any
	if data, err := read(name); err == nil {
		_ = yaml.Unmarshal(data, &settings) // who reads the whole file reports its faults
	}
	value, _ := settings[key].(string)
	return value
}

// read returns the content of a file of at most maxSize bytes.
func read(name string) ([]byte, error) {
	data, err := regular.Read(name, maxSize)
	if len(data) > maxSize {
		err = fmt.Errorf("%s: larger than %d bytes: this is no configuration file", name, maxSize)
	}
	return data, err
}

// Parse reads a configuration file's text, and holds it against the flags
// without setting them.
func Parse(name string, data []byte, flags *pflag.FlagSet) (*File, error) {
	c := &File{name: name, settings: map[string]setting{}}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		var ye yaml.Error
		if errors.As(err, &ye) && ye.GetToken() != nil {
			return nil, c.fault(ye.GetToken().Position, errors.New(regular.YAMLMessage(ye.GetMessage())))
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	bodies := slices.DeleteFunc(tree.Docs,
		func(d *ast.DocumentNode) bool { return d.Body == nil || d.Body.Type() == ast.CommentType })
	switch len(bodies) {
	case 0:
		return c, nil // empty
	case 1:
	default:
		return nil, c.fault(bodies[1].Body.GetToken().Position,
			errors.New("a second document begins here: one file, one document"))
	}
	m, ok := bodies[0].Body.(ast.MapNode)
	if !ok {
		return nil, c.fault(bodies[0].Body.GetToken().Position, errors.New("want lines of the form key: value"))
	}
	for it := m.MapRange(); it.Next(); {
		if err := c.add(it.KeyValue(), flags); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// notInFile are flags that make no sense in the file itself.
var notInFile = []string{"config", "help", "json"}

// add takes one key with its value over. A key that is no flag, stands twice or has a
// value that the flag refuses is an error with its line.
func (c *File) add(kv *ast.MappingValueNode, flags *pflag.FlagSet) error {
	k := kv.Key.GetToken()
	key, s := k.Value, setting{at: k.Position}
	flag := flags.Lookup(strings.ReplaceAll(key, "_", "-"))
	if flag == nil || slices.Contains(notInFile, flag.Name) || strings.Contains(key, "-") {
		return c.fault(s.at, fmt.Errorf("no such key: %q; there are %s", key, strings.Join(keysOf(flags), ", ")))
	}
	if other, twice := c.settings[flag.Name]; twice {
		return c.fault(s.at, fmt.Errorf("%s is said twice, first in line %d", key, other.at.Line))
	}
	if _, many := flag.Value.(pflag.SliceValue); many && kv.Value.Type() == ast.SequenceType {
		if err := c.joined(key, &s, kv.Value.(*ast.SequenceNode)); err != nil {
			return err
		}
	} else {
		value, ok := kv.Value.(ast.ScalarNode)
		if !ok || kv.Value.Type() == ast.NullType {
			return c.fault(s.at, fmt.Errorf("%s: want one value behind the colon", key))
		}
		s.value, s.at = value.GetToken().Value, value.GetToken().Position
		if lit, ok := kv.Value.(*ast.LiteralNode); ok {
			s.value = lit.Value.Value
		}
	}
	// A trial on a copy of the flag, so that a bad file changes nothing.
	if err := try(flag, s.value); err != nil {
		return c.fault(s.at, fmt.Errorf("%s: %w", key, err))
	}
	c.settings[flag.Name] = s
	return nil
}

// joined sets s to the values of a key's list, with commas between, as a flag takes them.
func (c *File) joined(key string, s *setting, list *ast.SequenceNode) error {
	var values []string
	for _, v := range list.Values {
		if _, ok := v.(ast.ScalarNode); !ok || v.Type() == ast.NullType {
			return c.fault(v.GetToken().Position, fmt.Errorf("%s: want one value behind each dash", key))
		}
		values = append(values, v.GetToken().Value)
	}
	if s.value = strings.Join(values, ","); s.value == "" {
		return c.fault(s.at, fmt.Errorf("%s: the list is empty", key))
	}
	return nil
}

// try reports whether a flag takes a value, and leaves it as it was.
func try(f *pflag.Flag, value string) error {
	was, changed := f.Value.String(), f.Changed
	back := func() { _ = f.Value.Set(was) } // it had that value
	if l, ok := f.Value.(pflag.SliceValue); ok {
		list := l.GetSlice()
		back = func() { _ = l.Replace(list) }
	}
	err := f.Value.Set(value)
	back()
	f.Changed = changed
	if wants := Wants(f.Value.Type()); err != nil && wants != "" {
		return fmt.Errorf("%q: want %s", value, wants)
	} else if err != nil {
		return fmt.Errorf("%w (%s)", err, f.Usage)
	}
	return nil
}

// Wants describes the values of a flag of a type; "" for a type whose own error does so.
func Wants(flag string) string {
	switch strings.TrimSuffix(flag, "Slice") {
	case "int", "int64", "uint", "uint32", "uint64", "count":
		return "a whole number"
	case "float64", "float32":
		return "a number"
	case "bool":
		return "true or false"
	case "duration":
		return "a time with its unit, such as 500ms, 30s or 2h"
	case "days":
		return "a time in days or hours, such as 365d or 12h"
	}
	return ""
}

// keysOf returns the keys of all flags, for the remedy of an unknown one.
func keysOf(flags *pflag.FlagSet) (keys []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notInFile, f.Name) && !f.Hidden {
			keys = append(keys, strings.ReplaceAll(f.Name, "-", "_"))
		}
	})
	slices.Sort(keys)
	return keys
}

// fault adds file, line and column to an error.
func (c *File) fault(at *token.Position, err error) error {
	if at == nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return fmt.Errorf("%s:%d:%d: %w", c.name, at.Line, at.Column, err)
}

// Apply sets the flags that the command line does not set.
func (c *File) Apply(flags *pflag.FlagSet) error {
	for _, flag := range slices.Sorted(maps.Keys(c.settings)) {
		f, s := flags.Lookup(flag), c.settings[flag]
		if f.Changed {
			continue
		}
		if err := f.Value.Set(s.value); err != nil {
			return c.fault(s.at, fmt.Errorf("%s: %w", strings.ReplaceAll(flag, "-", "_"), err))
		}
	}
	return nil
}

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
	// Always is done with each reload, whatever the file holds.
	Always func() error
}

// NewReloader is for flags that a file may set.
func NewReloader(flags *pflag.FlagSet, log *slog.Logger) *Reloader {
	r := &Reloader{
		flags: flags, log: log, Live: map[string]func(){}, defaults: map[string]string{},
		Always: func() error { return nil },
	}
	for _, key := range keysOf(flags) {
		flag := strings.ReplaceAll(key, "_", "-")
		r.defaults[flag] = flags.Lookup(flag).DefValue
	}
	return r
}

// Reload reads the file again. A file with a fault changes nothing; keys that
// cannot change in a service that runs are logged. It returns the faults, which are logged, too.
func (r *Reloader) Reload() (err error) {
	defer func() { err = errors.Join(err, r.Always()) }()
	if r.File == nil {
		r.log.Info("reload: no configuration file is in use")
		return nil
	}
	fresh, err := Read(r.File.name, r.flags)
	if err != nil {
		r.log.Error("reload: the configuration stays as it is", "error", err)
		return err
	}
	var restart, done, overruled []string
	for flag, wanted := range r.defaults {
		was, had := r.File.settings[flag]
		now, said := fresh.settings[flag]
		if said {
			wanted = now.value
		}
		f := r.flags.Lookup(flag)
		act, live := r.Live[flag]
		switch {
		case was.value == now.value:
		case f.Changed:
			overruled = append(overruled, flag)
		case !live:
			restart = append(restart, flag)
			// The old value stays, so that the change is logged again with the next reload.
			if delete(fresh.settings, flag); had {
				fresh.settings[flag] = was
			}
		default:
			_ = f.Value.Set(wanted) // Read has tried it
			act()
			done = append(done, flag+"="+wanted)
		}
	}
	r.File = fresh
	r.report(done, restart, overruled)
	return nil
}

// report logs the outcome of a reload: changed keys, keys that need a restart, keys that
// the command line overrules.
func (r *Reloader) report(done, restart, overruled []string) {
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
