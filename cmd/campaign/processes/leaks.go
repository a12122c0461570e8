package processes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"wattmark/cmd/campaign/network"
)

// holding is what a process has open while nothing happens.
type holding struct {
	goroutines, sockets int
	stacks              string   // of the goroutines
	captures            []string // files of captures in the spool
}

// looks is how often a service is looked at: what it does now and then comes and goes.
const looks = 5

// remember looks at the services before anything happens.
func (p *place) remember(ctx context.Context) error {
	for _, name := range []string{"monitor", "host"} {
		if p.all[name] == nil {
			continue
		}
		for range looks {
			err := p.until(ctx, "the state of "+name, func() error {
				h, err := p.holds(ctx, name)
				if h.goroutines > p.rest[name].goroutines {
					p.rest[name] = h
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// leaks fails when a service, also one that was started anew, comes to hold more than
// such a one did before anything happened.
func (p *place) leaks(ctx context.Context) {
	for name, before := range p.rest {
		var now holding
		err := p.until(ctx, "the release of what "+name+" holds", func() (err error) {
			now, err = p.holds(ctx, name)
			switch {
			case err != nil:
				return err
			case now.goroutines > before.goroutines:
				return fmt.Errorf("%d goroutines, %d before", now.goroutines, before.goroutines)
			case now.sockets > before.sockets:
				return fmt.Errorf("%d sockets, %d before", now.sockets, before.sockets)
			case len(now.captures) > 0:
				return fmt.Errorf("open files of captures: %v", now.captures)
			}
			return nil
		})
		if err != nil {
			stacks := "before:\n" + before.stacks + "\nafter:\n" + now.stacks
			p.fail("%v", errors.Join(err, os.WriteFile(p.path(name+".goroutines"), []byte(stacks), 0o600)))
		}
	}
}

// holds looks at a service now.
func (p *place) holds(ctx context.Context, name string) (h holding, err error) {
	if h.goroutines, h.stacks, err = p.goroutines(ctx, name); err != nil {
		return h, err
	}
	fds := fmt.Sprintf("/proc/%d/fd", p.all[name].Process.Pid)
	all, err := os.ReadDir(fds)
	for _, fd := range all {
		to, err := os.Readlink(filepath.Join(fds, fd.Name()))
		switch {
		case err != nil: // closed in between
		case strings.HasPrefix(to, "socket:"):
			h.sockets++
		case strings.HasPrefix(to, p.path("spool")) && filepath.Base(to) != ".lock" && to != p.path("spool"):
			h.captures = append(h.captures, to)
		}
	}
	return h, err
}

// goroutines reads how many a service has, and what they do.
func (p *place) goroutines(ctx context.Context, name string) (n int, stacks string, err error) {
	if stacks, err = p.get(ctx, name, "/debug/pprof/goroutine?debug=1"); err != nil {
		return 0, "", err
	}
	if _, err := fmt.Sscanf(stacks, "goroutine profile: total %d", &n); err != nil {
		return 0, "", fmt.Errorf("%s tells no number of goroutines: %w", name, err)
	}
	return n, stacks, nil
}

// get reads a page of a service's web address, on its own machine.
func (p *place) get(ctx context.Context, name, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	side := machines[name]
	address := map[network.Side]string{network.Monitor: p.monitorWeb, network.Host: p.hostWeb}[side]
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, a string) (net.Conn, error) {
		return p.dial(ctx, side, a)
	}}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s%s: %s", name, path, resp.Status)
	}
	return string(b), err
}
