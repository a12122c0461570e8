package relay

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamStatus is how one partition is.
type StreamStatus struct {
	Stream   string          `json:"stream"`
	Leader   string          `json:"leader"` // empty for none
	Replicas []ReplicaStatus `json:"replicas"`
	Messages uint64          `json:"messages"`
	Bytes    uint64          `json:"bytes"`
	MaxBytes int64           `json:"max_bytes,omitempty"`
	Tasks    int             `json:"tasks"`
	Aside    int             `json:"aside"`
	SetAside []Aside         `json:"set_aside,omitempty"` // some of those, with the reasons
	Stores   []StoreStatus   `json:"stores"`
	// Trouble is why nothing is known of it.
	Trouble string `json:"trouble,omitempty"`
}

// ReplicaStatus is how one copy is, as the leader says.
type ReplicaStatus struct {
	Node    string        `json:"node"`
	Leader  bool          `json:"leader,omitempty"`
	Current bool          `json:"current"`
	Offline bool          `json:"offline,omitempty"`
	Lag     uint64        `json:"lag"` // messages
	Seen    time.Duration `json:"seen_ns"`
}

// StoreStatus is how far a store has come.
type StoreStatus struct {
	Name    string `json:"name"`
	Waiting uint64 `json:"waiting"` // tasks that it was not given yet
	Working int    `json:"working"` // that it was given and has not acknowledged
}

// shownAside is of how many tasks that were set aside in a stream the status has the reasons.
const shownAside = 20

// Status asks for all partitions. A partition that does not answer has its Trouble.
func (b *Bus) Status(ctx context.Context) (out []StreamStatus) {
	for p := range b.partitions {
		s := StreamStatus{Stream: StreamName(p)}
		if err := b.status(ctx, p, &s); err != nil {
			s.Trouble = explained(err).Error()
		}
		out = append(out, s)
	}
	return out
}

func (b *Bus) status(ctx context.Context, p int, out *StreamStatus) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, out.Stream)
	if err != nil {
		return err
	}
	i := s.CachedInfo()
	out.Messages, out.Bytes, out.MaxBytes = i.State.Msgs, i.State.Bytes, max(0, i.Config.MaxBytes)
	out.replicas(i.Cluster)
	ends, err := b.subjects(ctx, p, kindEnd)
	if err != nil {
		return err
	}
	asides, err := b.subjects(ctx, p, kindAside)
	if err == nil {
		out.SetAside, err = b.asides(ctx, p, shownAside)
	}
	if err != nil {
		return err
	}
	out.Tasks, out.Aside = len(ends), len(asides)
	list := s.ListConsumers(ctx)
	for c := range list.Info() {
		if c.Config.Durable != "" {
			out.Stores = append(out.Stores, StoreStatus{Name: c.Name, Waiting: c.NumPending, Working: c.NumAckPending})
		}
	}
	slices.SortFunc(out.Stores, func(a, b StoreStatus) int { return strings.Compare(a.Name, b.Name) })
	return list.Err()
}

func (s *StreamStatus) replicas(c *jetstream.ClusterInfo) {
	if c == nil {
		return
	}
	if s.Leader = c.Leader; c.Leader != "" {
		s.Replicas = append(s.Replicas, ReplicaStatus{Node: c.Leader, Leader: true, Current: true})
	}
	for _, r := range c.Replicas {
		s.Replicas = append(s.Replicas, ReplicaStatus{Node: r.Name, Current: r.Current, Offline: r.Offline, Lag: r.Lag, Seen: r.Active})
	}
	slices.SortFunc(s.Replicas, func(a, b ReplicaStatus) int { return strings.Compare(a.Node, b.Node) })
}
