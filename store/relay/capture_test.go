package relay_test

import (
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// header is what a monitor knows of a host's task before its samples.
func header(t *testing.T, host *store.DB, id store.TaskID) relay.CaptureHeader {
	t.Helper()
	x := must(host.Task(t.Context(), id))(t)
	return relay.CaptureHeader{Header: x.Header, Task: store.NewTask{
		Name: x.Name, User: x.User, CaptureID: x.CaptureID, Launched: x.Started, Marker: x.Marker,
	}}
}

// publish is a monitor that publishes the capture of a host's task, up to a chunk.
func publish(t *testing.T, c *relay.Capture, host *store.DB, id store.TaskID, upTo uint64) {
	t.Helper()
	for x, err := range host.Chunks(t.Context(), id, 0) {
		ok(t, err)
		if x.No >= upTo {
			break
		}
		ok(t, c.Chunk(x, chunk.AppendPayload(nil, x)))
	}
	c.Event(measure.Event{Kind: measure.EventNote, Detail: "as the monitor saw it", Exact: true, Channel: -1})
}

func published(t *testing.T, c *relay.Capture) {
	t.Helper()
	if again := must(c.Published(t.Context()))(t); again {
		t.Fatal("what was published is gone")
	}
}

const all = ^uint64(0)

var interrupted = store.Outcome{State: store.Incomplete, Reason: "no host said what it is of"}

// only is the one task that a store must have.
func only(t *testing.T, d *store.DB) store.Task {
	t.Helper()
	ids := must(d.TaskIDs(t.Context()))(t)
	if len(ids) != 1 {
		t.Fatalf("the store has tasks %v, want one", ids)
	}
	return must(d.Task(t.Context(), ids[0]))(t)
}

// A monitor publishes a capture and, since no host has, what it knows of it; the host comes
// back later, sends no sample again, and its task takes the place of the monitor's.
func TestMonitorPublishesWhatHostsMightNot(t *testing.T) {
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{Partitions: 4})
	host, there := open(t, "host.db"), open(t, "there.db")
	id := fill(t, host, "c-1", 5, 1000, 1)
	monitor := &relay.Publisher{Bus: bus}
	c := must(monitor.Capture(t.Context(), header(t, host, id)))(t)
	if _, err := c.File(t.Context(), interrupted); err == nil {
		t.Error("filed without its samples")
	}
	publish(t, c, host, id, all)
	published(t, c)
	if claimed := must(c.Claimed(t.Context()))(t); claimed {
		t.Error("no host has published it")
	}
	must(c.File(t.Context(), interrupted))(t)
	if !must(c.Filed(t.Context()))(t) || must(c.Claimed(t.Context()))(t) {
		t.Error("what was filed is not told from a host's")
	}

	store1 := &relay.Consumer{Bus: bus, DB: there, Name: "lab"}
	consume(t, store1, 1)
	orphan := only(t, there)
	if orphan.Tags[relay.TagOrphan] != "desk" || orphan.State != store.Incomplete || orphan.User != "ada" || orphan.Chunks != 5 || len(orphan.Events) != 1 {
		t.Errorf("filed: %+v", orphan)
	}
	before := bus.Status(t.Context())[0:4]
	if freed := free(t, bus, relay.Unclaimed); freed != 0 {
		t.Errorf("freed %d tasks that a host may still claim", freed)
	}

	must((&relay.Publisher{DB: host, Bus: bus}).Replicate(t.Context(), id))(t)
	var more uint64
	for i, s := range bus.Status(t.Context()) {
		more += s.Messages - before[i].Messages
	}
	if more != 2 { // rest and end
		t.Errorf("the host sent %d messages, want no samples", more)
	}
	if !must(c.Claimed(t.Context()))(t) {
		t.Error("the host's task is not seen")
	}
	consume(t, store1, 1)
	x := only(t, there)
	sameTask(t, host, id, there, x.ID)
	if freed := free(t, bus, relay.Unclaimed); freed != 2 {
		t.Errorf("freed %d tasks, want the host's and the monitor's", freed)
	}
	for _, s := range bus.Status(t.Context()) {
		if s.Messages > 0 {
			t.Errorf("%s still has %d messages", s.Stream, s.Messages)
		}
	}
	// All of it is gone from the streams; a monitor that does not know sends it again, and
	// the store leaves it.
	late := must(monitor.Capture(t.Context(), header(t, host, id)))(t)
	publish(t, late, host, id, all)
	if again := must(late.Published(t.Context()))(t); again { // the servers still knew the ids
		publish(t, late, host, id, all)
		published(t, late)
	} else {
		t.Error("samples count as published that were removed")
	}
	must(late.File(t.Context(), interrupted))(t)
	if got := consume(t, store1, 1); !got[0].Known || got[0].To != x.ID {
		t.Errorf("filed late: %+v", got[0])
	}
	only(t, there)
}

func free(t *testing.T, bus *relay.Bus, unclaimed time.Duration) (n int) {
	t.Helper()
	for part := range bus.Partitions() {
		n += must(bus.Free(t.Context(), part, unclaimed))(t)
	}
	return n
}

// The host goes first; the monitor's samples are those that the stream has.
func TestHostAndMonitorPublishTheSame(t *testing.T) {
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{})
	host, there := open(t, "host.db"), open(t, "there.db")
	id := fill(t, host, "c-1", 4, 262144, 1) // each chunk is several messages
	must((&relay.Publisher{DB: host, Bus: bus}).Replicate(t.Context(), id))(t)
	before := bus.Status(t.Context())[0].Messages
	c := must((&relay.Publisher{Bus: bus}).Capture(t.Context(), header(t, host, id)))(t)
	publish(t, c, host, id, all)
	published(t, c)
	if n := bus.Status(t.Context())[0].Messages - before; n != 1 { // its index
		t.Errorf("the monitor added %d messages, want its index alone", n)
	}
	if !must(c.Claimed(t.Context()))(t) {
		t.Error("the host's task is not seen")
	}
	consume(t, &relay.Consumer{Bus: bus, DB: there, Name: "lab"}, 1)
	sameTask(t, host, id, there, only(t, there).ID)
	// A monitor that is started again finds all of it published.
	again := must((&relay.Publisher{Bus: bus}).Capture(t.Context(), header(t, host, id)))(t)
	publish(t, again, host, id, all)
	published(t, again)
	if n := bus.Status(t.Context())[0].Messages - before; n != 1 {
		t.Errorf("it has added %d messages after all", n)
	}
}

// A host that lost samples does not take away those that the monitor published.
func TestMonitorHasMoreThanItsHost(t *testing.T) {
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{})
	whole, part, there, other := open(t, "whole.db"), open(t, "part.db"), open(t, "there.db"), open(t, "other.db")
	id := fill(t, whole, "c-1", 5, 1000, 1)
	lost := fill(t, part, "c-1", 3, 1000, 1)
	monitor := &relay.Publisher{Bus: bus}
	c := must(monitor.Capture(t.Context(), header(t, whole, id)))(t)
	publish(t, c, whole, id, all)
	published(t, c)
	must((&relay.Publisher{DB: part, Bus: bus}).Replicate(t.Context(), lost))(t)
	must(c.File(t.Context(), interrupted))(t)
	for _, d := range []*store.DB{there, other} {
		got := consume(t, &relay.Consumer{Bus: bus, DB: d, Name: map[*store.DB]string{there: "a", other: "b"}[d]}, 2)
		if len(got) != 2 || len(must(d.TaskIDs(t.Context()))(t)) != 2 {
			t.Errorf("of the host's three chunks and the monitor's five: %+v", got)
		}
	}
}

// Samples of which neither host nor monitor ever said anything are removed by their age.
func TestUnclaimedSamplesAreRemoved(t *testing.T) {
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{})
	host, there := open(t, "host.db"), open(t, "there.db")
	lost, good := fill(t, host, "c-1", 3, 1000, 1), fill(t, host, "c-2", 3, 1000, 2)
	c := must((&relay.Publisher{Bus: bus}).Capture(t.Context(), header(t, host, lost)))(t)
	publish(t, c, host, lost, 2) // and then its machine burned
	published(t, c)
	if n := free(t, bus, time.Nanosecond); n != 0 || bus.Status(t.Context())[0].Messages == 0 {
		t.Error("something was removed before there was a store")
	}
	must((&relay.Publisher{DB: host, Bus: bus}).Replicate(t.Context(), good))(t)
	consume(t, &relay.Consumer{Bus: bus, DB: there, Name: "lab"}, 1)
	if n := free(t, bus, time.Hour); n != 1 || bus.Status(t.Context())[0].Messages == 0 {
		t.Errorf("freed %d tasks, want the good one, and the other's samples left", n)
	}
	free(t, bus, time.Nanosecond)
	if n := bus.Status(t.Context())[0].Messages; n != 0 {
		t.Errorf("%d messages are left", n)
	}
}
