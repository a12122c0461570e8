// Package keysight speaks the commands of Keysight's oscilloscopes for package
// scope.
package keysight
