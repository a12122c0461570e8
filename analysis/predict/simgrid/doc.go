// Package simgrid writes and reads a GPU as a platform file of SimGrid
// (https://simgrid.org), holds the small program that runs it there, and reads
// what that program says. It is pure: running compilers and programs is the
// caller's.
//
// The model is that of Boughzala et al. (2020), section V: the GPU is a host of
// one core whose speed is the flops of a round over T_r; rounds are executed one
// after another; the plugin host_energy adds up idle power and P_r.
package simgrid

import "errors"

// ErrPlatform: a platform file, or the numbers for one, cannot be used.
var ErrPlatform = errors.New("unusable platform")
