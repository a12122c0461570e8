package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
	"wattmark/store/relay"
)

// measured adds a task of a user to a database.
func measured(t *testing.T, db *store.DB, user string) store.TaskID {
	t.Helper()
	id, err := db.BeginTask(t.Context(), store.NewTask{Name: "gemm", User: user, Launched: time.Unix(1e9, 0), Monitor: "lab:7551", CaptureID: "c-" + user})
	if err == nil {
		err = db.PutHeader(t.Context(), id, store.Header{Bench: "desk", Setup: measure.Setup{
			Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10}, Channels: []measure.Channel{{Name: "p", Unit: measure.UnitWatt, Gain: 1e-3}},
			Rails: []measure.Rail{{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringPower, Y: -1}},
		}, CalibrationID: "c1", Started: time.Unix(1e9, 0)})
	}
	e, failed := chunk.NewEncoder(measure.Timebase{TickHz: 1e6, TicksPerScan: 10}, 1, 100)
	if err = errors.Join(err, failed); err == nil {
		_, err = e.Append(&measure.Block{Counts: [][]measure.Count{make([]measure.Count, 100)}})
	}
	if err == nil {
		err = db.AppendChunks(t.Context(), id, []*chunk.Chunk{e.Flush(0)}, nil)
	}
	if err == nil {
		err = db.Finish(t.Context(), id, store.Outcome{State: store.Incomplete, Reason: "it stopped"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// take runs a store until it has so many tasks, and returns whose they are.
func take(t *testing.T, bus *relay.Bus, to *store.DB, tasks int) (users []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan relay.Taken, 16)
	c := &relay.Consumer{Bus: bus, DB: to, Name: "lab", Taken: func(x relay.Taken) { taken <- x }}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	for range tasks {
		users = append(users, (<-taken).User)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	return users
}

// A user publishes the own tasks alone; who publishes for others publishes all.
func TestUsersPublishTheirOwn(t *testing.T) {
	a := ask(t)
	host, there := open(t, "host.db"), open(t, "there.db")
	adas, bobs := measured(t, host, "ada"), measured(t, host, "bob")
	publish := func(who string, id store.TaskID) error {
		_, err := (&relay.Publisher{DB: host, Bus: a.dial(who)}).Replicate(t.Context(), id)
		return err
	}
	if err := publish("vic", adas); !errors.Is(err, relay.ErrReader) {
		t.Errorf("a viewer publishes: %v", err)
	}
	if err := publish("eve", adas); !errors.Is(err, relay.ErrNotYours) || !strings.Contains(err.Error(), "operator") {
		t.Errorf("eve publishes ada's: %v", err)
	}
	x, err := host.Task(t.Context(), adas)
	if err != nil {
		t.Fatal(err)
	}
	id := relay.IdentityOf(&x)
	forged, err := json.Marshal(relay.End{Format: 1, Key: id.Key(), Identity: id, Rest: []uint64{1}})
	if err != nil {
		t.Fatal(err)
	}
	eve := a.as("eve")
	for _, source := range []relay.Key{id.Source(), "0123456789abcdef0123456789abcdef"} {
		if _, err := eve.Request(fmt.Sprintf("wattmark.00.%x.%s.%s.end", "eve", source, id.Key()), forged, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for who, id := range map[string]store.TaskID{"ada": adas, "store": bobs} {
		if err := publish(who, id); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	bus := a.dial("store")
	got := take(t, bus, there, 2)
	slices.Sort(got)
	if !slices.Equal(got, []string{"ada", "bob"}) {
		t.Errorf("tasks of %v were stored", got)
	}
	if n, err := bus.Free(t.Context(), 0, 0); n != 2 || err != nil { // what is set aside stays
		t.Errorf("freed %d tasks, %v", n, err)
	}
	list, err := a.dial("vic").Asides(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, x := range list {
		if x.User != "eve" || !strings.Contains(x.Why, "in the name of ada") && !strings.Contains(x.Why, "another source") {
			t.Errorf("%+v", x)
		}
	}
}

// Another user's task that names a capture neither claims it from its monitor, nor has its
// samples removed; the task of who took the bench does both.
func TestOthersClaimNoCapture(t *testing.T) {
	a := ask(t)
	host, eves, there := open(t, "host.db"), open(t, "eves.db"), open(t, "there.db")
	id := measured(t, host, "ada")
	x, err := host.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := eves.BeginTask(t.Context(), store.NewTask{Name: "gemm", User: "eve", Launched: time.Unix(1e9, 0), CaptureID: x.CaptureID})
	if err == nil {
		err = eves.PutHeader(t.Context(), forged, x.Header)
	}
	if err == nil {
		err = eves.Finish(t.Context(), forged, store.Outcome{State: store.Incomplete, Reason: "hers"})
	}
	if err != nil {
		t.Fatal(err)
	}
	monitor := a.dial("store") // a monitor publishes for all, as a store does
	c, err := (&relay.Publisher{Bus: monitor}).Capture(t.Context(), relay.CaptureHeader{Header: x.Header, Task: store.NewTask{
		Name: x.Name, User: "ada", CaptureID: x.CaptureID, Launched: x.Started,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for k, err := range host.Chunks(t.Context(), id, 0) {
		if err == nil {
			err = c.Chunk(k, chunk.AppendPayload(nil, k))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if again, err := c.Published(t.Context()); again || err != nil {
		t.Fatal(again, err)
	}
	free := func() uint64 {
		t.Helper()
		if _, err := monitor.Free(t.Context(), 0, time.Hour); err != nil {
			t.Fatal(err)
		}
		return monitor.Status(t.Context())[0].Messages
	}
	step := func(who string, db *store.DB, id store.TaskID) (claimed bool, left uint64) {
		t.Helper()
		if _, err := (&relay.Publisher{DB: db, Bus: a.dial(who)}).Replicate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		claimed, err := c.Claimed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		take(t, monitor, there, 1)
		return claimed, free()
	}
	samples := monitor.Status(t.Context())[0].Messages
	if claimed, left := step("eve", eves, forged); claimed || left != samples {
		t.Errorf("by eve's task: claimed %v, %d messages of %d are left", claimed, left, samples)
	}
	if claimed, left := step("ada", host, id); !claimed || left != 0 {
		t.Errorf("by ada's task: claimed %v, %d messages are left", claimed, left)
	}
}
