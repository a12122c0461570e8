package capture

import (
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// ErrRoom: the spool has no room for another capture.
var ErrRoom = errors.New("no room in the spool")

// Room says how much captures may take. Zeros are no limits.
type Room struct {
	// Quota is what the captures in the spool may take together, in bytes.
	Quota int64
	// Free is what must be left on the spool's disk, in bytes, for a capture to
	// begin. One that runs is ended when half of it is left, so that its end can be
	// written, and other programs are not the first to fail.
	Free int64
	// PerHolder is how many captures of one holder the spool keeps.
	PerHolder int
}

// roomEvery is how often a capture that runs is held against the room.
const roomEvery = time.Second

// room refuses a capture that would find no room. Errors wrap ErrRoom.
func (o *Owner) room(holder string) error {
	r := o.cfg.Room
	held, used := o.usedBy(holder)
	if r.PerHolder > 0 && held >= r.PerHolder {
		return fmt.Errorf("%w: %s has %d captures here, which is the limit: fetch or release some; ListCaptures names them", ErrRoom, holder, held)
	}
	if r.Quota > 0 && used >= r.Quota {
		return fmt.Errorf("%w: its captures take %s, the quota is %s: %s", ErrRoom, sizeText(used), sizeText(r.Quota), o.makeRoom())
	}
	if r.Free > 0 {
		free, err := o.cfg.Store.Free()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRoom, err)
		}
		if free < r.Free {
			return fmt.Errorf("%w: %s are free at %s, a capture needs %s: make room, or release captures",
				ErrRoom, sizeText(free), o.cfg.Store.Dir(), sizeText(r.Free))
		}
	}
	return nil
}

// makeRoom says what to do where captures take too much.
func (o *Owner) makeRoom() string {
	if !o.cfg.Hold {
		return "fetch or release some"
	}
	return "fetch or release some; those that were released wait until the cluster has them (wattmark cluster status)"
}

// exhausted says why a capture that runs must end; empty while it need not.
func (o *Owner) exhausted() string {
	r := o.cfg.Room
	if _, used := o.usedBy(""); r.Quota > 0 && used > r.Quota {
		return fmt.Sprintf("%v: its captures take %s, the quota is %s", ErrRoom, sizeText(used), sizeText(r.Quota))
	}
	if r.Free > 0 {
		if free, err := o.cfg.Store.Free(); err == nil && free < r.Free/2 {
			return fmt.Sprintf("%v: only %s are free at %s", ErrRoom, sizeText(free), o.cfg.Store.Dir())
		}
	}
	return ""
}

// usedBy counts a holder's captures, and the bytes of all.
func (o *Owner) usedBy(holder string) (held int, used int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.captures {
		used += c.log.Size()
		if c.req.Holder == holder && !c.HasBeenReleased() {
			held++
		}
	}
	return held, used
}

// watchRoom ends the capture before the room does. It looks on a goroutine of its
// own: a disk that does not answer must not hold up the samples.
func (c *Capture) watchRoom(done <-chan struct{}) {
	if r := c.owner.cfg.Room; r.Quota <= 0 && r.Free <= 0 {
		return
	}
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if why := c.owner.exhausted(); why != "" {
				c.owner.cfg.Log.Warn("a capture is ended", "capture", c.id, "reason", why)
				c.end(Failed, why)
				return
			}
		case <-done:
			return
		}
	}
}

func sizeText(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }
