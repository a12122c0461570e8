package main

import (
	"bufio"
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has at a moment; zeros where it was not there.
type usage struct {
	PID         int
	RSS         int64 // bytes
	Own         int64 // bytes of RSS that are no file's: the system takes back those that are as it likes
	Descriptors int
	Goroutines  int // 0 where it does not say
}

// sample is a look at everything.
type sample struct {
	At                   time.Duration // since the soak began
	Meter, Monitor, Host usage
	Spool, WAL, Database int64 // bytes
}

// watch looks again and again; the function that it returns ends that, and gives
// what was seen.
func (l *lab) watch(ctx context.Context) func() []sample {
	ctx, stop := context.WithCancel(ctx)
	seen := make(chan []sample, 1)
	go func() {
		var all []sample
		tick := time.NewTicker(l.o.sample)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				all = append(all, l.look(ctx))
			case <-ctx.Done():
				seen <- all
				return
			}
		}
	}()
	return func() []sample {
		stop()
		return <-seen
	}
}

func (l *lab) look(ctx context.Context) sample {
	s := sample{At: time.Since(l.begun), Meter: lookAt(l.meter), Monitor: lookAt(l.monitor), Host: lookAt(l.host)}
	s.Monitor.Goroutines = goroutines(ctx, l.monitorHTTP)
	s.Host.Goroutines = goroutines(ctx, l.hostHTTP)
	s.Spool = folderSize(l.path("spool"))
	s.Database, s.WAL = fileSize(l.path("power.db")), fileSize(l.path("power.db-wal"))
	return s
}

// lookAt reads a process's figures from /proc.
func lookAt(p *process) usage {
	u := usage{PID: p.pid()}
	dir := filepath.Join("/proc", strconv.Itoa(u.PID))
	if b, err := os.ReadFile(dir + "/statm"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 2 {
			resident, _ := strconv.ParseInt(f[1], 10, 64) // the kernel writes numbers
			shared, _ := strconv.ParseInt(f[2], 10, 64)
			page := int64(os.Getpagesize())
			u.RSS, u.Own = resident*page, (resident-shared)*page
		}
	}
	if fds, err := os.ReadDir(dir + "/fd"); err == nil {
		u.Descriptors = len(fds)
	}
	return u
}

// goroutines asks a program's metrics; 0 where it does not answer.
func goroutines(ctx context.Context, address string) int {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	for in := bufio.NewScanner(r.Body); in.Scan(); {
		if v, ok := strings.CutPrefix(in.Text(), "go_goroutines "); ok {
			n, _ := strconv.Atoi(v)
			return n
		}
	}
	return 0
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func folderSize(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was released in this moment
		}
		if info, err := d.Info(); err == nil && !d.IsDir() {
			total += info.Size()
		}
		return nil
	})
	return total
}
