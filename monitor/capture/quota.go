package capture

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// Quota bounds the captures in the spool. Zeros are no limits.
type Quota struct {
	// Bytes bounds all captures in the spool together.
	Bytes int64
	// Free is the bytes that must be left on the spool's disk for a capture to begin. A
	// running one ends when half of it is left, so that its end can be written, and other
	// programs are not the first to fail.
	Free int64
	// PerHolder bounds the captures of one holder in the spool.
	PerHolder int
}

// quotaEvery is the distance of the checks of a running capture.
const quotaEvery = time.Second

// checkQuota refuses a capture that would find no room. Errors wrap ErrQuota.
func (o *Owner) checkQuota(holder string) error {
	q := o.cfg.Quota
	held, used := o.usedBy(holder)
	if q.PerHolder > 0 && held >= q.PerHolder {
		return fmt.Errorf("%w: %s has %d captures here, which is the limit: fetch or release some; "+
			"ListCaptures names them", ErrQuota, holder, held)
	}
	if q.Bytes > 0 && used >= q.Bytes {
		remedy := "fetch or release some"
		if o.cfg.AwaitReplicas {
			remedy += "; those that were released wait until the cluster has them (wattmark cluster status)"
		}
		return fmt.Errorf("%w: its captures take %s, the quota is %s: %s",
			ErrQuota, sizeText(used), sizeText(q.Bytes), remedy)
	}
	if q.Free <= 0 {
		return nil
	}
	free, err := o.cfg.Store.Free()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrQuota, err)
	}
	if free < q.Free {
		return fmt.Errorf("%w: %s are free at %s, a capture needs %s: make room, or release captures",
			ErrQuota, sizeText(free), o.cfg.Store.Dir(), sizeText(q.Free))
	}
	return nil
}

// exceeded returns the reason why a running capture must end, empty while it need not.
func (o *Owner) exceeded() string {
	q := o.cfg.Quota
	if _, used := o.usedBy(""); q.Bytes > 0 && used > q.Bytes {
		return fmt.Sprintf("%v: its captures take %s, the quota is %s", ErrQuota, sizeText(used), sizeText(q.Bytes))
	}
	if q.Free > 0 {
		if free, err := o.cfg.Store.Free(); err == nil && free < q.Free/2 {
			return fmt.Sprintf("%v: only %s are free at %s", ErrQuota, sizeText(free), o.cfg.Store.Dir())
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

// checkQuota ends the capture when it exceeds the quota.
func (c *Capture) checkQuota(time.Time) {
	if c.hasEnded() {
		return
	}
	if why := c.owner.exceeded(); why != "" {
		c.owner.cfg.Log.Warn("a capture is ended", "capture", c.id, "reason", why)
		c.end(Failed, why)
	}
}

// sizeText formats bytes with a decimal prefix: 1.0 kB.
func sizeText(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }
