package wire

import (
	"google.golang.org/grpc/encoding"
	encproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"wattmark/api/wattmarkv1"
)

// Codec is a gRPC codec that reads and writes plain protobuf, byte for byte
// what any other client understands, but does not copy a chunk's payload:
//
//   - a chunk goes out as a few header bytes and the payload by reference,
//     whether it is sent with SendChunk, SendPayload or the generated Send;
//   - a Receiver gets the payload as a view into a pooled buffer.
//
// All other messages take the ordinary way. It is safe for concurrent use.
var Codec encoding.CodecV2 = codec{encoding.GetCodecV2(encproto.Name)}

type codec struct{ plain encoding.CodecV2 }

// Name is that of the ordinary codec, since the bytes are the same.
func (codec) Name() string { return encproto.Name }

// Marshal returns v's wire form. gRPC forbids changing a message after it was
// sent, so a payload that the generated Send was given can go by reference too.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *outgoing:
		return m.buffers(), nil
	case *wattmarkv1.ReadCaptureResponse:
		if ch := m.GetChunk(); ch != nil && len(m.ProtoReflect().GetUnknown()) == 0 {
			return c.chunk(v, ch)
		}
	case *wattmarkv1.ReadSamplesResponse:
		if ch := m.GetChunk(); ch != nil && len(m.ProtoReflect().GetUnknown()) == 0 {
			return c.chunk(v, ch)
		}
	}
	return c.plain.Marshal(v)
}

func (c codec) chunk(v any, ch *wattmarkv1.Chunk) (mem.BufferSlice, error) {
	if len(ch.ProtoReflect().GetUnknown()) != 0 {
		return c.plain.Marshal(v)
	}
	return (&outgoing{head: ch, payload: ch.Payload}).buffers(), nil
}

// Unmarshal reads v's wire form.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		return f.unmarshal(data)
	}
	return c.plain.Unmarshal(data, v)
}
