package attribute

import "slices"

// change moves what is pending to who ran, and then one kernel in or out.
func (e *Engine) change(t, host float64, name, by int) {
	e.settle()
	before, after := e.trace.at(t-e.beside), e.trace.at(t+e.beside)
	was := len(e.running) - by
	if was == 0 {
		e.between.edge(-1, before, after, host)
		if e.any {
			e.activeIdle.take(&e.between)
		} else {
			e.idle.take(&e.between)
		}
		e.between, e.any = account{}, true
	}
	if e.names[name].running == 0 {
		e.active = append(e.active, name)
	}
	for _, n := range e.active {
		a := &e.names[n]
		d := -share(a.running, was)
		if n == name {
			a.running += by
		}
		a.edge(d+share(a.running, was+by), before, after, host)
	}
	if e.names[name].running == 0 {
		e.active = slices.DeleteFunc(e.active, func(n int) bool { return n == name })
	}
	if was+by == 0 {
		e.between.edge(1, before, after, host)
	}
}

func share(of, all int) float64 {
	if all == 0 {
		return 0
	}
	return float64(of) / float64(all)
}

// settle books what is pending for those that ran.
func (e *Engine) settle() {
	energy, length := e.pending, e.at-e.since
	e.pending, e.since = sum{}, e.at
	e.total.take(&energy)
	if len(e.active) == 0 {
		e.between.energy.take(&energy)
		e.between.share.add(length)
		e.between.busy.add(length)
		return
	}
	var all int
	for _, n := range e.active {
		all += e.names[n].running
	}
	for _, n := range e.active {
		a := &e.names[n]
		k := share(a.running, all)
		a.energy.add(k * energy.s)
		a.energy.add(k * energy.c)
		a.share.add(k * length)
	}
}
