package hostlink

import (
	"fmt"
	"os"
	"runtime"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/store"
)

// Bounds of a command line that a program tells; what is longer is cut.
const (
	maxWords = 1024
	maxBytes = 64 << 10
)

// provenance is what a program tells of itself; nil for nothing.
func provenance(p *store.Provenance) *wattmarkv1.Provenance {
	if p == nil {
		return nil
	}
	out := &wattmarkv1.Provenance{
		Host: wire.Text(p.Host), Os: wire.Text(p.OS), Version: wire.Text(p.Version), Directory: wire.Text(p.Directory),
		GitCommit: wire.Text(p.GitCommit), GitDirty: p.GitDirty,
	}
	size := 0
	for i, w := range p.Command {
		w = wire.Text(w)
		if size += len(w); i == maxWords || size > maxBytes {
			out.Command = append(out.Command, "…")
			break
		}
		out.Command = append(out.Command, w)
	}
	return out
}

// provenance is where a program says that it runs. One that says nothing runs on this
// machine all the same.
func (s *Server) provenance(p *wattmarkv1.Provenance) (*store.Provenance, error) {
	if p == nil {
		host, _ := os.Hostname()
		return &store.Provenance{Host: host, OS: runtime.GOOS + "/" + runtime.GOARCH, Version: s.cfg.Version}, nil
	}
	size := 0
	for _, w := range p.Command {
		size += len(w)
	}
	if len(p.Command) > maxWords+1 || size > maxBytes+wire.MaxText {
		return nil, fmt.Errorf("%w: provenance: a command line of %d words and %d bytes", wire.ErrMessage, len(p.Command), size)
	}
	for _, t := range []string{p.Host, p.Os, p.Version, p.Directory, p.GitCommit} {
		if len(t) > wire.MaxText {
			return nil, fmt.Errorf("%w: provenance: a text of more than %d bytes", wire.ErrMessage, wire.MaxText)
		}
	}
	out := &store.Provenance{Host: p.Host, OS: p.Os, Version: p.Version, Directory: p.Directory, GitCommit: p.GitCommit, GitDirty: p.GitDirty, Command: p.Command}
	if out.Version == "" {
		out.Version = s.cfg.Version
	}
	return out, nil
}
