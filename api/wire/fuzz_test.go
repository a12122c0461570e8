package wire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// FuzzParse feeds every Parse function with whatever proto accepts: none may panic.
func FuzzParse(f *testing.F) {
	for _, m := range []proto.Message{
		&pb.Header{Setup: Setup(testSetup()), Marker: MarkerSpec(testMarkerSpec())},
		&pb.Header{},
	} {
		b, _ := proto.Marshal(m)
		f.Add(b, uint8(2))
	}
	for _, m := range []proto.Message{
		&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Chunk{Chunk: Chunk(testChunk(f, 300))}},
		&pb.GetTaskResponse{Markers: []*pb.Marker{Marker(testMarker())}, Clock: &pb.Clock{B: 1}, Window: Window(&measure.Window{From: 1, To: 2})},
	} {
		b, _ := proto.Marshal(m)
		f.Add(b, uint8(2))
	}
	f.Fuzz(func(t *testing.T, b []byte, columns uint8) {
		var header pb.Header
		if proto.Unmarshal(b, &header) == nil {
			if s, err := ParseSetup(header.Setup); err == nil && s.Validate() != nil {
				t.Fatalf("accepted a setup that is not valid: %v", s.Validate())
			}
			_, _ = ParseMarkerSpec(header.Marker)
			_, _ = ParseInstrument(header.Instrument)
			_, _ = ParseTime("started", header.Started)
		}
		var task pb.GetTaskResponse
		if proto.Unmarshal(b, &task) == nil {
			_, _ = ParseEach(task.Markers, ParseMarker)
			_, _ = ParseClock(task.Clock)
			_, _ = ParseWindow(task.Window)
			for _, r := range task.Rails {
				_, _ = ParseRailResult(r)
			}
			for _, e := range task.Events {
				_, _ = ParseEvent(e)
			}
		}
		var item pb.ReadCaptureResponse
		var c chunk.Chunk
		if proto.Unmarshal(b, &item) == nil && ParseChunk(item.GetChunk(), int(columns), &c) == nil {
			if !bytes.Equal(Chunk(&c).Payload, item.GetChunk().Payload) {
				t.Fatal("the columns are not the payload")
			}
		}
	})
}
