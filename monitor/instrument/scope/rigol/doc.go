// Package rigol speaks the commands of Rigol's oscilloscopes for package scope.
package rigol
