package measurement

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
)

// EnvWork marks the processes that a measurement starts, and all that these start: its
// value is the number of the process that measures.
const EnvWork = "WATTMARK_WORK"

const (
	// lookEvery is how often the GPU's processes are looked at while the work runs: those
	// that come and go between say nothing of themselves afterwards.
	lookEvery = time.Second
	// usedFrom is the share of the time from which another process has used the GPU, rather
	// than kept a desktop or a context there.
	usedFrom = 0.05
	// shareServer begins the names of CUDA's Multi-Process Service, which works for others:
	// what it uses is theirs, and may be ours.
	shareServer = "nvidia-cuda-mps"
)

// others notices processes on the GPU that are not this measurement's. Where the numbers
// that the driver tells are not those of this machine, as in a container, it notices
// nothing: then this measurement's own process is not among them.
type others struct {
	reader hostagent.ProcessReader
	root   int // the process that measures, or the one that is measured

	mu    sync.Mutex
	known map[int]bool // processes, and whether they are strangers
	seen  map[int]seen // of each that was there, also when it has gone since
	own   bool         // one of ours was among them
	begun time.Time
}

// seen is a process on the GPU, and for how long it has used it, NaN where that is not told.
type seen struct {
	hostagent.ProcessUse
	seconds float64
}

// watchOthers looks at the GPU's processes until the returned function is called, which
// tells of those that are not ours.
func (s *session) watchOthers(ctx context.Context) (stop func() []measure.Event) {
	reader, ok := s.cfg.Sensor.(hostagent.ProcessReader)
	if !ok {
		return func() []measure.Event { return nil }
	}
	o := &others{reader: reader, root: s.cfg.Process, known: map[int]bool{}, seen: map[int]seen{}, begun: time.Now()}
	if o.root == 0 {
		o.root = os.Getpid()
	}
	o.look()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				o.look()
			}
		}
	}()
	return func() []measure.Event {
		cancel()
		<-done
		o.look()
		return o.events(time.Since(o.begun))
	}
}

// look sorts those that are there now, and notes how much they have used so far: the
// driver forgets.
func (o *others) look() {
	now := time.Now()
	list, err := o.reader.Processes(hostagent.Span{Start: o.begun, End: now})
	if err != nil {
		return // what cannot be told is not told
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range list {
		used := p.Busy * now.Sub(o.begun).Seconds()
		if s, before := o.seen[p.PID]; !before || math.IsNaN(s.seconds) || used > s.seconds {
			o.seen[p.PID] = seen{p, used}
		}
		if _, sorted := o.known[p.PID]; sorted {
			continue
		}
		stranger, alive := o.stranger(p.PID)
		if alive {
			o.known[p.PID] = stranger
			o.own = o.own || !stranger
		}
	}
}

// stranger tells whether a process was started by another than this measurement; alive is
// false where it cannot be asked any more.
func (o *others) stranger(pid int) (stranger, alive bool) {
	for at, depth := pid, 0; at > 0 && depth < 100; depth++ {
		if at == o.root {
			return false, true
		}
		parent, ok := parentOf(at)
		if !ok {
			return false, false
		}
		at = parent
	}
	env, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // of another user it cannot be read
	mark := []byte(EnvWork + "=" + strconv.Itoa(o.root))
	return !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(e []byte) bool { return bytes.Equal(e, mark) }), true
}

// parentOf is the process that started another, 0 for none.
func parentOf(pid int) (int, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]) // the name, in brackets, may hold anything
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

// events tell of the strangers: of those that used the GPU, and of those that only have
// contexts there.
func (o *others) events(length time.Duration) (out []measure.Event) {
	if !o.own {
		return nil
	}
	var used, there []string
	for _, pid := range slices.Sorted(maps.Keys(o.seen)) {
		p := o.seen[pid]
		share := p.seconds / length.Seconds()
		switch {
		case !o.known[p.PID], strings.HasPrefix(p.Name, shareServer):
		case share >= usedFrom:
			used = append(used, fmt.Sprintf("%s for %.0f %% of the time", processText(p.ProcessUse), 100*min(share, 1)))
		case math.IsNaN(share):
			there = append(there, processText(p.ProcessUse)+" (how much it used the GPU is not told)")
		default:
			there = append(there, processText(p.ProcessUse))
		}
	}
	if len(used) > 0 {
		out = append(out, measure.Event{Kind: measure.EventOthers, Channel: -1, Detail: measure.Printable(
			"other processes used the GPU while it was measured: " + strings.Join(used, ", ") + "; the energy holds what they drew")})
	}
	if len(there) > 0 {
		out = append(out, measure.Event{Kind: measure.EventNote, Channel: -1, Detail: measure.Printable(
			"other processes had contexts on the GPU, and little or no work: " + strings.Join(there, ", "))})
	}
	return out
}

func processText(p hostagent.ProcessUse) string {
	return strings.TrimSpace(fmt.Sprintf("process %d %s", p.PID, p.Name))
}
