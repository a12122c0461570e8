package main

import (
	"fmt"
	"io"

	"wattmark/store"
)

// qualityReport is how far a task's energy may be trusted, and why.
type qualityReport struct {
	Level   string         `json:"level"`
	Reasons []reasonReport `json:"reasons,omitempty"`
}

type reasonReport struct {
	Cause   string  `json:"cause"`
	Level   string  `json:"level"`
	Subject string  `json:"subject,omitempty"`
	Count   uint64  `json:"count,omitempty"`
	Share   float64 `json:"share,omitempty"`
	Text    string  `json:"text"`
}

// newQuality judges a task; nil while it runs.
func newQuality(t *store.Task) *qualityReport {
	v, ended := t.Verdict()
	if !ended {
		return nil
	}
	out := &qualityReport{Level: v.Level.String()}
	for _, r := range v.Reasons {
		if number(r.Share) == nil {
			r.Share = 0
		}
		out.Reasons = append(out.Reasons, reasonReport{string(r.Cause), r.Level.String(), r.Subject, r.Count, r.Share, r.Text})
	}
	return out
}

// render writes the verdict for a person.
func (q *qualityReport) render(w io.Writer) {
	if q == nil {
		return
	}
	fmt.Fprintf(w, "  quality  %s\n", q.Level)
	for _, r := range q.Reasons {
		fmt.Fprintf(w, "           %s: %s\n", r.Level, r.Text)
	}
}
