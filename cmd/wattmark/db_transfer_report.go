package main

import (
	"fmt"
	"strings"
	"time"

	"wattmark/store"
)

func (a *app) renderTransfer(r *transferReport) {
	fmt.Fprintf(a.out, "Copied %d task(s) with %d samples from %s to %s in %.1f s; every chunk was read back and is right.\n", r.Copied, r.Samples, r.From, r.To, r.DurationS)
	if r.Known > 0 {
		fmt.Fprintf(a.out, "%d were there already.\n", r.Known)
	}
	if r.Updated > 0 {
		fmt.Fprintf(a.out, "%d of them differed and were updated.\n", r.Updated)
	}
	if r.Differing > 0 {
		fmt.Fprintf(a.out, "%d of them differ and were left as they are: --update makes them as the source has them.\n", r.Differing)
	}
	if len(r.Running) > 0 {
		fmt.Fprintf(a.out, "Left out, for they still run: %s. Copy again when they are done.\n", strings.Trim(fmt.Sprint(r.Running), "[]"))
	}
	if r.Analyses+r.Campaigns > 0 {
		fmt.Fprintf(a.out, "With them %d analyses and %d campaigns of instructions.\n", r.Analyses, r.Campaigns)
	}
	if n := len(r.Tasks); n > 0 && (n <= 20 || r.Differing > 0) {
		t := newTable(a.out)
		t.AppendHeader([]any{"task", "is there", "samples", "rows", ""})
		for _, x := range r.Tasks {
			note := ""
			switch {
			case x.Updated:
				note = "updated: " + strings.Join(x.Differs, ", ")
			case len(x.Differs) > 0:
				note = "differs: " + strings.Join(x.Differs, ", ")
			case x.Known && n > 20:
				continue
			case x.Known:
				note = "was there"
			case x.Resumed:
				note = "went on"
			case n > 20:
				continue
			}
			t.AppendRow([]any{x.TaskID, x.CopyID, x.Samples, x.Rows, note})
		}
		t.Render()
	}
}

// transferBar shows how far a copy is, on a terminal.
type transferBar struct {
	a              *app
	tasks, task    int
	id             store.TaskID
	total, samples uint64
	live           bool
	began          time.Time
}

func (b *transferBar) at(i int, id store.TaskID) {
	b.task, b.id = i, id
	b.show()
}

func (b *transferBar) add(scans uint64) {
	b.samples += scans
	b.show()
}

func (b *transferBar) show() {
	if !b.live {
		return
	}
	const width = 30
	part := float64(b.task) / float64(max(b.tasks, 1))
	if b.total > 0 {
		part = min(1, float64(b.samples)/float64(b.total))
	}
	full := int(part * width)
	fmt.Fprintf(b.a.err, "\r\x1b[K[%s%s] %3.0f %%  task %d (%d of %d), %.1f M samples/s", strings.Repeat("█", full), strings.Repeat("·", width-full),
		100*part, b.id, b.task+1, b.tasks, float64(b.samples)/1e6/max(time.Since(b.began).Seconds(), 1e-3))
}

func (b *transferBar) clear() {
	if b.live {
		fmt.Fprint(b.a.err, "\r\x1b[K")
	}
}
