package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A server that stands still – stopped, swapped out, behind a line that is cut – keeps its connections and
// answers nothing. A question may take its time, so silence alone proves little: after some of it a
// connection of its own asks whether the server answers at all. Where it does not, the question has failed.
var (
	// silence is how long a question goes unanswered before the server is doubted; it
	// doubles up to longestSilence while the server answers others.
	silence = 5 * time.Second
	// probing is how long a new connection may take.
	probing = 10 * time.Second
)

const (
	longestSilence = 30 * time.Second
	// longQuestion is the time after which the user hears of a question that is still worked on.
	longQuestion = time.Minute
)

// silentError: the server stands still.
type silentError struct {
	server string
	waited time.Duration
}

func (e silentError) Error() string {
	return fmt.Sprintf("PostgreSQL at %s has answered nothing for %v, and no new connection either", e.server,
		e.waited.Round(time.Second))
}

// Timeout is false: the connection is of no more use.
func (silentError) Timeout() bool   { return false }
func (silentError) Temporary() bool { return true }

// pulse finds out whether a server answers. Its connections share it.
type pulse struct {
	cfg    *pgx.ConnConfig // without a watch
	server string
	say    func(text string)
	// silence and probing are those in force when the database was opened.
	silence, probing time.Duration

	mu    sync.Mutex
	asked time.Time // when the last probe ended
	still bool      // it was not answered
}

// watch puts the connections of a configuration under a pulse.
func watch(cfg *pgx.ConnConfig, say func(text string)) {
	if say == nil {
		say = func(string) {}
	}
	p := &pulse{
		cfg: cfg.Copy(), server: net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port)), say: say, silence: silence,
		probing: probing,
	}
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if p.known() {
			return nil, silentError{p.server, p.silence}
		}
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &watched{Conn: c, pulse: p}, nil
	}
}

// known reports whether the server was found standing still just now.
func (p *pulse) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.still && time.Since(p.asked) < p.silence
}

// beats asks the server over a connection of its own, once for all connections that doubt it.
func (p *pulse) beats() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) < p.silence {
		return !p.still
	}
	late := time.AfterFunc(p.probing/10, func() {
		p.say(fmt.Sprintf("waiting for PostgreSQL at %s, which answers nothing: given up in %v", p.server,
			p.probing-p.probing/10))
	})
	defer late.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), p.probing)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, p.cfg.Copy())
	if err == nil {
		_ = c.Close(ctx) // it has answered
	}
	var refused *pgconn.PgError // an answer, too
	p.asked, p.still = time.Now(), err != nil && !errors.As(err, &refused)
	return !p.still
}

// watched is a connection whose reads end when the server stands still.
type watched struct {
	net.Conn
	pulse *pulse

	mu    sync.Mutex
	reads uint64    // begun and ended: odd while one waits
	since time.Time // when it began
	given error     // why it was given up
	told  bool
}

// Read ends with a silentError once the server is found standing still.
func (w *watched) Read(b []byte) (int, error) {
	w.mu.Lock()
	w.reads++
	this := w.reads
	w.since = time.Now()
	timer := time.AfterFunc(w.pulse.silence, func() { w.doubt(this, w.pulse.silence) })
	w.mu.Unlock()
	n, err := w.Conn.Read(b)
	timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if err != nil && w.given != nil {
		err = w.given
	}
	return n, err
}

// doubt looks whether the server answers others while a read waits, and gives the
// connection up where it does not.
func (w *watched) doubt(read uint64, waited time.Duration) {
	beats := w.pulse.beats()
	w.mu.Lock()
	defer w.mu.Unlock()
	since := time.Since(w.since)
	switch {
	case w.reads != read: // it was answered meanwhile
	case !beats:
		w.given = silentError{w.pulse.server, since}
		_ = w.Close() // the read returns the cause
	default:
		if since > longQuestion && !w.told {
			w.told = true
			w.pulse.say(fmt.Sprintf("PostgreSQL at %s has worked on one question for %v", w.pulse.server,
				since.Round(time.Second)))
		}
		next := min(2*waited, longestSilence)
		time.AfterFunc(next, func() { w.doubt(read, next) })
	}
}
