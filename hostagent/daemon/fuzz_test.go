package daemon

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// FuzzMessages reads what the other end may send: it is refused, or can be said
// again.
func FuzzMessages(f *testing.F) {
	add := func(m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{})
	add(opened(&pb.OpenMeasurement{Name: "x", Gpu: gpuMessage(gpu.Info{Name: "H200"}), WarmUp: duration(1)}))
	add(say(&pb.Done{
		Id: 1, Played: &pb.PlayedMarker{EndNs: 1, Edges: []*pb.HostPlayedEdge{{Chip: -4, AtNs: 7}}},
		Parts: []*pb.WorkPart{{Name: "a", StartNs: 1, EndNs: 2}}, Failure: failure(ErrLost),
	}))
	add(&pb.MeasureResponse{Event: &pb.MeasureResponse_Outcome{
		Outcome: &pb.MeasureOutcome{
			Task:    outcome(&store.Brief{ID: 1, State: store.Complete}),
			Failure: failure(store.ErrFull),
		},
	}})
	server := NewServer(Config{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var q pb.MeasureRequest
		if proto.Unmarshal(b, &q) == nil {
			if o := q.GetOpen(); o != nil {
				if c, err := server.config(o); err == nil && (c.WarmUp < 0 || c.Wait < 0 || c.Lease < 0) {
					t.Errorf("taken: %+v", c)
				}
			}
			if d := q.GetDone(); d != nil {
				if p, err := parsePlayed(marker.Start, d.Played); err == nil &&
					(p.Span.End.Before(p.Span.Start) || len(played(p).Edges) != len(d.Played.Edges)) {
					t.Errorf("taken: %+v", p)
				}
				if k, err := parseParts(d.Parts); err == nil && len(lists.Map(k, part)) != len(d.Parts) {
					t.Errorf("taken: %+v", k)
				}
			}
		}
		var r pb.MeasureResponse
		if proto.Unmarshal(b, &r) == nil {
			if o := r.GetOutcome(); o != nil {
				if task, err := parseOutcome(o.Task); err == nil && o.Task != nil &&
					outcome(&task).TaskId != o.Task.TaskId {
					t.Errorf("taken: %+v", task)
				}
				if err := parseFailure(o.Failure); (err == nil) != (o.Failure == nil) {
					t.Errorf("an error became %v", err)
				}
			}
		}
	})
}
