package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
	"github.com/wattmark/wattmark/store/relay"
)

// campaign skips what is too long for every commit.
func campaign(t *testing.T) {
	t.Helper()
	if os.Getenv("WATTMARK_CLUSTER_CAMPAIGN") == "" {
		t.Skip("WATTMARK_CLUSTER_CAMPAIGN is not set: this takes minutes")
	}
}

// publishing starts a relay and a store, and returns the store's database.
func (l *lab) publishing() *store.DB {
	l.run("relay", "--db", l.host, "--cluster", l.servers(), "--every", "100ms")
	path := filepath.Join(l.dir, "there.db")
	there := openThere(l.t, path)
	l.run("store", "--db", path, "--cluster", l.servers(), "--name", "lab")
	return there
}

// timed tells how long a step took.
func timed(t *testing.T, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	t.Logf("%s: %.1f s", what, time.Since(began).Seconds())
}

// One node is cut off and another is killed: nothing can be acknowledged. The one that was
// killed comes back, then the one that was cut off.
func TestCampaignOneCutOffAndAnotherKilled(t *testing.T) {
	campaign(t)
	for round := range 3 {
		t.Run(fmt.Sprint("leader", round), func(t *testing.T) {
			l := newLab(t, true)
			bus := l.dial()
			there := l.publishing()
			l.measured(20, 4)
			l.some(3)
			lead := l.leader(bus, 0)
			// The leader is cut off, killed, or neither.
			cut, killed := (lead+round)%3, (lead+round+1)%3
			l.cut(cut)
			l.nodes[killed].kill(t)
			l.measured(10, 4)
			cli.SleepUntil(t.Context(), time.Now().Add(15*time.Second))
			l.start(killed)
			timed(t, "with two of three again, until all is published", func() { l.published(2 * patience) })
			l.measured(10, 4)
			l.mend(cut)
			timed(t, "with all three again, until all is published", func() { l.published(2 * patience) })
			timed(t, "until all has arrived", func() { l.arrived(2*patience, there) })
			timed(t, "until all replicas have all", func() { l.whole(bus) })
		})
	}
}

// Two of three nodes are killed while much is published, and started again: what nats-server's
// issue 8519 is about.
func TestCampaignTwoKilled(t *testing.T) {
	campaign(t)
	for round := range 3 {
		t.Run(fmt.Sprint("leader", round), func(t *testing.T) {
			l := newLab(t, false)
			bus := l.dial()
			there := l.publishing()
			l.measured(30, 40)
			l.some(5)
			lead := l.leader(bus, 0)
			a, b := (lead+round)%3, (lead+round+1)%3
			l.nodes[a].kill(t)
			l.nodes[b].kill(t)
			l.measured(10, 40)
			cli.SleepUntil(t.Context(), time.Now().Add(15*time.Second))
			l.start(a)
			timed(t, "with two of three again, until all is published", func() { l.published(2 * patience) })
			l.start(b)
			timed(t, "until all has arrived", func() { l.arrived(2*patience, there) })
			timed(t, "until all replicas have all", func() { l.whole(bus) })
		})
	}
}

// All nodes are killed at once.
func TestCampaignAllKilled(t *testing.T) {
	campaign(t)
	l := newLab(t, false)
	bus := l.dial()
	there := l.publishing()
	l.measured(30, 20)
	l.some(5)
	for i := range l.nodes {
		l.nodes[i].kill(t)
	}
	l.measured(10, 4)
	for i := range l.nodes {
		l.start(i)
	}
	timed(t, "with all three again, until all is published", func() { l.published(2 * patience) })
	timed(t, "until all has arrived", func() { l.arrived(2*patience, there) })
	timed(t, "until all replicas have all", func() { l.whole(bus) })
}

// Eight hosts publish to four partitions, which two SQLite shards and a PostgreSQL server
// take, while each node is killed and started again in turn.
func TestCampaignManyHostsManyStores(t *testing.T) {
	campaign(t)
	l := newLab(t, false, "--streams", "4")
	bus := l.dial()
	const hosts, each = 8, 10
	for h := range hosts {
		path := filepath.Join(l.dir, fmt.Sprintf("host%d.db", h))
		db := openThere(t, path)
		for i := range each {
			if err := fillLabTask(t.Context(), db, 1000*h+i, 8); err != nil {
				t.Fatal(err)
			}
			if err := fillLabTask(t.Context(), l.db, 1000*h+i, 8); err != nil { // to compare with
				t.Fatal(err)
			}
			l.tasks++
		}
		start(t, "relay", "--db", path, "--cluster", l.servers(), "--every", "100ms")
	}
	var shards []*store.DB
	for i, parts := range []string{"0,1", "2,3"} {
		path := filepath.Join(l.dir, fmt.Sprintf("shard%d.db", i))
		shards = append(shards, openThere(t, path))
		start(t, "store", "--db", path, "--cluster", l.servers(), "--name", fmt.Sprint("shard", i), "--partitions", parts)
	}
	postgres.Register(nil)
	cluster := pgtest.Own(t)
	cluster.Make(t, "lab")
	server := openThere(t, cluster.URL("lab"))
	for range 2 { // share the work
		start(t, "store", "--db", cluster.URL("lab"), "--cluster", l.servers(), "--name", "server", "--partitions", "0-3")
	}
	for i := range l.nodes {
		l.status(bus, func(s []relay.StreamStatus) bool { return s[0].Messages > 0 })
		l.nodes[i].kill(t)
		cli.SleepUntil(t.Context(), time.Now().Add(time.Second))
		l.start(i)
		timed(t, fmt.Sprintf("until node %d is whole again", i), func() { l.whole(bus) })
	}
	timed(t, "until all has arrived in the shards", func() { l.arrived(3*patience, shards...) })
	timed(t, "until all has arrived in the server", func() { l.arrived(3*patience, server) })
}
