package wire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// FuzzFrame holds the two readers of a chunk together: whatever the bytes,
// the frame must accept, refuse and read exactly as proto does.
func FuzzFrame(f *testing.F) {
	for _, c := range oddChunks()[:5] {
		b, _ := proto.Marshal(captureChunk(c))
		f.Add(b)
	}
	f.Add([]byte{0x12, 0x00})
	f.Add([]byte{0x12, 0x02, 0x08, 0x01, 0x12, 0x02, 0x10, 0x05})             // two chunks: proto merges them
	f.Add([]byte{0x12, 0x05, 0x18, 0xFF, 0xFF, 0xFF, 0xFF})                   // varint cut short
	f.Add([]byte{0x12, 0x07, 0x18, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01})       // scans of more than 32 bits
	f.Add([]byte{0x12, 0x03, 0x32, 0x01, 0x41, 0x1A, 0x02, 0x08, 0x01})       // chunk, then event: the last wins
	f.Add([]byte{0x12, 0x06, 0x0A, 0x01, 0x00, 0x32, 0x01, 0x42})             // field 1 of another type
	f.Add([]byte{0x12, 0x06, 0x32, 0x01, 0x41, 0x32, 0x01, 0x42, 0xF8, 0x01}) // trailing rubbish
	f.Fuzz(func(t *testing.T, b []byte) {
		var want, got pb.ReadCaptureResponse
		wantErr := proto.Unmarshal(b, &want)
		fr, err := receive(t, b, &got, 7)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("frame: %v, proto: %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if !proto.Equal(&got, &want) {
			t.Fatalf("frame read %v, proto %v", &got, &want)
		}
		// And what it read must survive our own writing.
		var again pb.ReadCaptureResponse
		if err := proto.Unmarshal(marshal(t, &got), &again); err != nil || !proto.Equal(&again, &want) {
			t.Fatalf("written again: %v %v, want %v", err, &again, &want)
		}
		fr.free()
	})
}

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
		captureChunk(Chunk(testChunk(f, 300))),
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
