package composite

import (
	"context"
	"fmt"
	"strings"

	"wattmark/monitor/instrument"
)

// launchFirst starts the members, but for the one that triggers the others.
func (s *session) launchFirst(ctx context.Context) {
	for i := range s.members {
		if s.c.align.By != Trigger || i != s.master() {
			s.launch(ctx, i)
		}
	}
	s.launchMaster(ctx, s.c.align.By != Trigger)
}

// launchMaster starts it once all the others are ready for its trigger, or at once.
func (s *session) launchMaster(ctx context.Context, now bool) {
	if s.started {
		return
	}
	for _, m := range s.members {
		if m.launched && !m.ready && !now {
			return
		}
	}
	if i := s.master(); !s.members[i].launched && ctx.Err() == nil {
		s.launch(ctx, i)
	}
	s.started = true
}

func (s *session) master() int {
	for i, m := range s.c.members {
		if m.Name == s.c.align.Master {
			return i
		}
	}
	return 0
}

func (s *session) launch(ctx context.Context, i int) {
	s.members[i].launched = true
	s.running++
	go func() {
		s.in <- message{member: i, what: ended, err: s.c.members[i].Instrument.Stream(ctx, s.feeds[i])}
	}()
}

// late says which members did not begin.
func (s *session) late() error {
	var names []string
	for i, m := range s.members {
		if m.launched && !m.begun {
			names = append(names, s.c.members[i].Name)
		}
	}
	return fmt.Errorf("composite: %w: no scan of %s within %v of its start: is its trigger line connected?", instrument.ErrSilent, strings.Join(names, ", "), beginWithin)
}
