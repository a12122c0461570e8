// Package config reads the configuration files of the services: a file says what the
// flags of a command say. Each key is the name of a flag, with _ for -. A flag on the
// command line wins.
package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/pflag"

	"wattmark/monitor/regular"
)

// setting is one key of a configuration file.
type setting struct {
	key, value string
	at         *token.Position
}

// File is a configuration file that was read.
type File struct {
	name     string
	settings []setting
}

// Len is the number of keys that the file says.
func (c *File) Len() int { return len(c.settings) }

// maxSize bounds a configuration file; it is written by hand.
const maxSize = 1 << 20

// Read reads a configuration file for a command. Errors name line and
// column.
func Read(name string, flags *pflag.FlagSet) (*File, error) {
	data, err := regular.Read(name, maxSize)
	if err != nil {
		return nil, err
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("%s: larger than %d bytes: this is no configuration file", name, maxSize)
	}
	return Parse(name, data, flags)
}

// Parse reads a configuration file's text, and holds it against the flags
// without setting them.
func Parse(name string, data []byte, flags *pflag.FlagSet) (*File, error) {
	c := &File{name: name}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		var ye yaml.Error
		if errors.As(err, &ye) && ye.GetToken() != nil {
			message, _, _ := strings.Cut(ye.GetMessage(), "\n")
			return nil, c.fault(ye.GetToken().Position, errors.New(message))
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	bodies := slices.DeleteFunc(tree.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil || d.Body.Type() == ast.CommentType })
	switch len(bodies) {
	case 0:
		return c, nil // nothing said
	case 1:
	default:
		return nil, c.fault(bodies[1].Body.GetToken().Position, errors.New("a second document begins here: one file, one document"))
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

func (c *File) add(kv *ast.MappingValueNode, flags *pflag.FlagSet) error {
	k := kv.Key.GetToken()
	s := setting{key: k.Value, at: k.Position}
	flag := flags.Lookup(strings.ReplaceAll(s.key, "_", "-"))
	if flag == nil || slices.Contains(notInFile, flag.Name) || strings.Contains(s.key, "-") {
		return c.fault(s.at, fmt.Errorf("no such key: %q; there are %s", s.key, strings.Join(keysOf(flags), ", ")))
	}
	for _, other := range c.settings {
		if other.key == s.key {
			return c.fault(s.at, fmt.Errorf("%s is said twice, first in line %d", s.key, other.at.Line))
		}
	}
	if list, ok := kv.Value.(*ast.SequenceNode); ok && isList(flag) {
		return c.addList(s, list, flag)
	}
	value, ok := kv.Value.(ast.ScalarNode)
	if !ok || kv.Value.Type() == ast.NullType {
		return c.fault(s.at, fmt.Errorf("%s: want one value behind the colon", s.key))
	}
	s.value, s.at = value.GetToken().Value, value.GetToken().Position
	if lit, ok := kv.Value.(*ast.LiteralNode); ok {
		s.value = lit.Value.Value
	}
	// A trial on a copy of the flag, so that a bad file changes nothing.
	if err := try(flag, s.value); err != nil {
		return c.fault(s.at, fmt.Errorf("%s: %q: %w", s.key, s.value, err))
	}
	c.settings = append(c.settings, s)
	return nil
}

// isList reports whether a flag may be said several times.
func isList(f *pflag.Flag) bool {
	_, ok := f.Value.(pflag.SliceValue)
	return ok
}

// addList adds a key with several values, which the flag takes with commas between.
func (c *File) addList(s setting, list *ast.SequenceNode, flag *pflag.Flag) error {
	var values []string
	for _, v := range list.Values {
		if _, ok := v.(ast.ScalarNode); !ok || v.Type() == ast.NullType {
			return c.fault(v.GetToken().Position, fmt.Errorf("%s: want one value behind each dash", s.key))
		}
		values = append(values, v.GetToken().Value)
	}
	if s.value = strings.Join(values, ","); s.value == "" {
		return c.fault(s.at, fmt.Errorf("%s: the list is empty", s.key))
	}
	if err := try(flag, s.value); err != nil {
		return c.fault(s.at, fmt.Errorf("%s: %q: %w", s.key, s.value, err))
	}
	c.settings = append(c.settings, s)
	return nil
}

// try tells whether a flag takes a value, and leaves it as it was.
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
	if err != nil {
		return fmt.Errorf("want %s", wants(f.Value.Type()))
	}
	return nil
}

// wants says what a flag of a type wants to be written.
func wants(flag string) string {
	switch flag {
	case "int", "int64", "uint", "uint32", "uint64", "count":
		return "a whole number"
	case "float64", "float32":
		return "a number"
	case "bool":
		return "true or false"
	case "duration":
		return "a time with its unit, such as 500ms, 30s or 2h"
	}
	return "a " + flag
}

func keysOf(flags *pflag.FlagSet) (keys []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notInFile, f.Name) && !f.Hidden {
			keys = append(keys, strings.ReplaceAll(f.Name, "-", "_"))
		}
	})
	slices.Sort(keys)
	return keys
}

func (c *File) fault(at *token.Position, err error) error {
	if at == nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return fmt.Errorf("%s:%d:%d: %w", c.name, at.Line, at.Column, err)
}

// lookup returns what the file says of a flag.
func (c *File) lookup(flag string) (setting, bool) {
	for _, s := range c.settings {
		if strings.ReplaceAll(s.key, "_", "-") == flag {
			return s, true
		}
	}
	return setting{}, false
}

// Apply sets the flags that the command line does not set.
func (c *File) Apply(flags *pflag.FlagSet) error {
	for _, s := range c.settings {
		f := flags.Lookup(strings.ReplaceAll(s.key, "_", "-"))
		if f.Changed {
			continue
		}
		if err := f.Value.Set(s.value); err != nil {
			return c.fault(s.at, fmt.Errorf("%s: %w", s.key, err))
		}
	}
	return nil
}
