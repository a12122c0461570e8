package wire

import (
	"bytes"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"wattmark/api/wattmarkv1"
	"wattmark/measure/chunk"
)

// The chunk has the same field number in ReadCaptureResponse and in
// ReadSamplesResponse, so that one outgoing form serves both (a test holds it so).
const itemChunk protowire.Number = 2

// Fields of Chunk.
const (
	chunkNo        protowire.Number = 1
	chunkFirstScan protowire.Number = 2
	chunkScans     protowire.Number = 3
	chunkFirstTick protowire.Number = 4
	chunkCRC       protowire.Number = 5
	chunkPayload   protowire.Number = 6
)

// copyBelow is the size up to which a part is copied into the header's buffer:
// gRPC does not count references to buffers that small.
const copyBelow = 1 << 10

// SendPayload sends a chunk as an item of ReadCapture or ReadSamples, its
// payload (chunk.AppendPayload) by reference: it must not change until release
// is called, on any goroutine, maybe before SendPayload returns. release is
// called once for every chunk that was sent, and never twice; but gRPC drops
// what a stream that broke had not sent yet, so it may not come at all: give
// memory back to a pool in it, and never wait for it. release may be nil for
// memory that is never reused. c's columns are not looked at. It blocks as Send
// does, and must not be called from two goroutines at once on one stream.
func SendPayload(stream grpc.ServerStream, c *chunk.Chunk, payload []byte, release func()) error {
	return send(stream, &outgoing{head: chunkHead(c), payload: payload, release: release})
}

// SendChunk is SendPayload for a chunk in columns, which are copied into a
// pooled buffer: the chunk is borrowed until the call returns.
func SendChunk(stream grpc.ServerStream, c *chunk.Chunk) error {
	b := pool.Get(chunk.PayloadSize(c))
	payload := chunk.AppendPayload((*b)[:0], c)
	return SendPayload(stream, c, payload, func() { pool.Put(b) })
}

func send(stream grpc.ServerStream, o *outgoing) error {
	err := stream.SendMsg(o)
	// Another codec copied the payload, or the stream ended before it was looked at.
	if !o.taken && o.release != nil {
		o.release()
	}
	return err
}

// outgoing is a chunk on its way out. It is a proto.Message too, so that a
// server without our codec sends the same bytes, only slower.
type outgoing struct {
	head    *wattmarkv1.Chunk // its payload is not looked at
	payload []byte
	release func()
	taken   bool // release is now the buffers' business
}

// ProtoReflect builds the ordinary message, with a copy of the payload.
func (o *outgoing) ProtoReflect() protoreflect.Message {
	c := &wattmarkv1.Chunk{
		ChunkNo: o.head.ChunkNo, FirstScan: o.head.FirstScan, Scans: o.head.Scans,
		FirstTick: o.head.FirstTick, Crc32C: o.head.Crc32C,
		Payload: bytes.Clone(o.payload),
	}
	return (&wattmarkv1.ReadCaptureResponse{Item: &wattmarkv1.ReadCaptureResponse_Chunk{Chunk: c}}).ProtoReflect()
}

// buffers returns the wire form: header and payload, the payload by reference
// unless it is small.
func (o *outgoing) buffers() mem.BufferSlice {
	o.taken = true
	head := o.header(make([]byte, 0, 128))
	switch {
	case len(o.payload) <= copyBelow:
		head = append(head, o.payload...)
		if o.release != nil {
			o.release()
		}
		return mem.BufferSlice{mem.SliceBuffer(head)}
	case o.release == nil:
		return mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(o.payload)}
	default:
		return mem.BufferSlice{mem.SliceBuffer(head), mem.NewBuffer(&o.payload, loan(o.release))}
	}
}

// header appends all bytes before the payload's. As in proto3, a field that is
// zero is left out.
func (o *outgoing) header(b []byte) []byte {
	var fields [64]byte
	h := fields[:0]
	for _, f := range []struct {
		number protowire.Number
		v      uint64
	}{
		{chunkNo, o.head.ChunkNo},
		{chunkFirstScan, o.head.FirstScan},
		{chunkScans, uint64(o.head.Scans)},
		{chunkFirstTick, protowire.EncodeZigZag(o.head.FirstTick)},
	} {
		if f.v != 0 {
			h = protowire.AppendVarint(protowire.AppendTag(h, f.number, protowire.VarintType), f.v)
		}
	}
	if o.head.Crc32C != 0 {
		h = protowire.AppendFixed32(protowire.AppendTag(h, chunkCRC, protowire.Fixed32Type), o.head.Crc32C)
	}
	if len(o.payload) > 0 {
		h = protowire.AppendVarint(protowire.AppendTag(h, chunkPayload, protowire.BytesType), uint64(len(o.payload)))
	}
	b = protowire.AppendTag(b, itemChunk, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(h)+len(o.payload)))
	return append(b, h...)
}

// loan calls release when the last reference to the lent memory is freed. To
// gRPC it is the pool that the buffer goes back to.
type loan func()

// Get is never called: nothing is taken from a loan.
func (loan) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put ends the loan.
func (l loan) Put(*[]byte) { l() }
