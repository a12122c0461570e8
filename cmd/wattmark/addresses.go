package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// addresses are the values of a flag that may be said several times, or once with
// commas between them. What is said replaces the default.
type addresses struct {
	list []string
	said bool
}

var _ pflag.SliceValue = (*addresses)(nil)

// String is the list with commas.
func (a *addresses) String() string { return strings.Join(a.list, ",") }

// Type is what help calls it.
func (a *addresses) Type() string { return "list of addresses" }

// Set adds addresses; one that is there is not added again.
func (a *addresses) Set(text string) error {
	var add []string
	for s := range strings.SplitSeq(text, ",") {
		if s = strings.TrimSpace(s); s == "" {
			return errors.New("an address is empty")
		}
		add = append(add, s)
	}
	if !a.said {
		a.list, a.said = nil, true
	}
	for _, s := range add {
		if !slices.Contains(a.list, s) {
			a.list = append(a.list, s)
		}
	}
	return nil
}

// Append adds one.
func (a *addresses) Append(s string) error { return a.Set(s) }

// Replace puts a list in place of what is there, as if nothing had been said.
func (a *addresses) Replace(list []string) error {
	a.list, a.said = slices.Clone(list), false
	return nil
}

// GetSlice returns the list.
func (a *addresses) GetSlice() []string { return slices.Clone(a.list) }
