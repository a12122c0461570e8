package api

import (
	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure/quality"
	"wattmark/store"
)

// judge says how far a task may be trusted, from all that is known of it; nothing
// while it runs.
func judge(t *store.Task) (wattmarkv1.Verdict, []*wattmarkv1.VerdictReason) {
	v, ended := t.Verdict()
	if !ended {
		return wattmarkv1.Verdict_VERDICT_UNSPECIFIED, nil
	}
	var reasons []*wattmarkv1.VerdictReason
	for _, r := range v.Reasons {
		reasons = append(reasons, &wattmarkv1.VerdictReason{
			Cause: string(r.Cause), Verdict: level(r.Level), Subject: wire.Text(r.Subject), Text: wire.Text(r.Text),
		})
	}
	return level(v.Level), reasons
}

// level is a level's number on the wire, where 0 says nothing.
func level(l quality.Level) wattmarkv1.Verdict { return wattmarkv1.Verdict(l) + 1 }
