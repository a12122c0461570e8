package wire

import (
	"sync/atomic"

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

// SendChunk sends a chunk as an item of ReadCapture or ReadSamples, its columns
// by reference: they must not change until release is called, which happens
// exactly once, on any goroutine, and maybe before SendChunk returns. release
// may be nil for columns that are never reused. It blocks as Send does, and
// must not be called from two goroutines at once on one stream.
func SendChunk(stream grpc.ServerStream, c *chunk.Chunk, release func()) error {
	parts := make([][]byte, 0, 2*len(c.Columns))
	for _, col := range c.Columns {
		parts = append(parts, col.Dir, col.Data)
	}
	return send(stream, &outgoing{head: chunkHead(c), parts: parts, release: release})
}

// SendPayload is SendChunk for a payload that is already one piece, as the
// spool keeps it; c's columns are not looked at.
func SendPayload(stream grpc.ServerStream, c *chunk.Chunk, payload []byte, release func()) error {
	return send(stream, &outgoing{head: chunkHead(c), parts: [][]byte{payload}, release: release})
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
	parts   [][]byte          // the payload
	release func()
	taken   bool // release is now the buffers' business
}

// ProtoReflect builds the ordinary message, with a copy of the payload.
func (o *outgoing) ProtoReflect() protoreflect.Message {
	c := &wattmarkv1.Chunk{
		ChunkNo: o.head.ChunkNo, FirstScan: o.head.FirstScan, Scans: o.head.Scans,
		FirstTick: o.head.FirstTick, Crc32C: o.head.Crc32C,
	}
	for _, p := range o.parts {
		c.Payload = append(c.Payload, p...)
	}
	return (&wattmarkv1.ReadCaptureResponse{Item: &wattmarkv1.ReadCaptureResponse_Chunk{Chunk: c}}).ProtoReflect()
}

// buffers returns the wire form: small pieces copied, large ones by reference.
func (o *outgoing) buffers() mem.BufferSlice {
	o.taken = true
	loan := &loan{release: o.release}
	loan.left.Store(1)
	out := make(mem.BufferSlice, 0, 2*len(o.parts)+1)
	small := o.header(make([]byte, 0, 128))
	for _, p := range o.parts {
		if len(p) <= copyBelow {
			small = append(small, p...)
			continue
		}
		if len(small) > 0 {
			out, small = append(out, mem.SliceBuffer(small)), nil
		}
		if o.release == nil {
			out = append(out, mem.SliceBuffer(p))
			continue
		}
		loan.left.Add(1)
		out = append(out, mem.NewBuffer(&p, loan))
	}
	if len(small) > 0 {
		out = append(out, mem.SliceBuffer(small))
	}
	loan.Put(nil)
	return out
}

// header appends all bytes before the payload's. As in proto3, a field that is
// zero is left out.
func (o *outgoing) header(b []byte) []byte {
	payload := 0
	for _, p := range o.parts {
		payload += len(p)
	}
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
	if payload > 0 {
		h = protowire.AppendVarint(protowire.AppendTag(h, chunkPayload, protowire.BytesType), uint64(payload))
	}
	b = protowire.AppendTag(b, itemChunk, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(h)+payload))
	return append(b, h...)
}

// loan calls release when the last buffer over the lent memory is freed. To
// gRPC it is the pool that the buffers go back to.
type loan struct {
	left    atomic.Int32
	release func()
}

// Get is never called: nothing is taken from a loan.
func (*loan) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put gives one buffer back.
func (l *loan) Put(*[]byte) {
	if l.left.Add(-1) == 0 && l.release != nil {
		l.release()
	}
}
