package store

import (
	"errors"
	"strings"
	"testing"

	"wattmark/measure"
)

// What a terminal would obey is refused where a person gives it, and made
// harmless where a device, another program or an older version wrote it.
func TestNoEscapeCodesComeOutOfTheDatabase(t *testing.T) {
	d, ctx := open(t), t.Context()
	for _, bad := range []string{"\x1b[2J", "caf\xe9", "a\nb", "\u202e"} {
		for _, n := range []NewTask{newTask(bad, "ann"), newTask("gemm", bad)} {
			if _, err := d.BeginTask(ctx, n); !errors.Is(err, measure.ErrText) || strings.Contains(err.Error(), bad) {
				t.Errorf("name %q, user %q: %v", n.Name, n.User, err)
			}
		}
	}
	const evil = "\x1b]0;evil\a"
	n := newTask("gemm", "ann")
	n.GPU, n.Driver = evil, evil
	id := must(d.BeginTask(ctx, n))(t)
	h := header(threeRails(measure.Timebase{TickHz: 1e6, TicksPerScan: 50}))
	h.Instrument.Model, h.Bench = evil, evil
	ok(t, d.PutHeader(ctx, id, h))
	ok(t, d.AppendChunks(ctx, id, nil, []measure.Event{{Kind: measure.EventNote, Channel: -1, Detail: evil}}))
	ok(t, d.PutKernels(ctx, id, []Kernel{{Name: evil, Start: epoch, End: epoch}}))
	ok(t, d.Finish(ctx, id, Outcome{State: Incomplete, Reason: "one\ntwo " + evil}))
	if _, err := d.writer.Exec(`UPDATE user SET login=?`, evil); err != nil {
		t.Fatal(err)
	}
	task := must(d.Task(ctx, id))(t)
	kernels, users := must(d.Kernels(ctx, id))(t), must(d.Users(ctx))(t)
	texts := []string{
		task.User, task.GPU, task.Driver, task.Instrument.Model, task.Bench, task.Reason, task.Events[0].Detail,
		kernels[0].Name, users[0].User,
	}
	for i, s := range texts {
		if s == "" || s != measure.Printable(s) {
			t.Errorf("text %d: %q", i, s)
		}
	}
	if !strings.HasPrefix(task.Reason, "one two ") {
		t.Errorf("reason %q", task.Reason)
	}
}
