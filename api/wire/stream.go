package wire

import (
	"bytes"
	"fmt"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure/chunk"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	encproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Codec is a gRPC codec that reads and writes plain protobuf, byte for byte
// as any other client understands it, but does not copy a chunk's payload:
//
//   - a chunk goes out as a few header bytes and the payload by reference,
//     whether it is sent with SendChunk, SendPayload or the generated Send;
//   - a Receiver gets the payload as a view into a pooled buffer.
//
// All other messages take the ordinary way. It is safe for concurrent use.
var Codec encoding.CodecV2 = codec{encoding.GetCodecV2(encproto.Name)}

// codec is Codec over gRPC's own.
type codec struct{ plain encoding.CodecV2 }

// Name is that of the ordinary codec, since the bytes are the same.
func (codec) Name() string { return encproto.Name }

// Marshal returns v's wire form. gRPC forbids changing a message after it was
// sent, so a payload that the generated Send was given can go by reference too.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *outgoing:
		return m.buffers(), nil
	case carrier:
		// One with fields of a later version takes the ordinary way, which keeps them.
		ch := m.GetChunk()
		if ch != nil && len(m.ProtoReflect().GetUnknown())+len(ch.ProtoReflect().GetUnknown()) == 0 {
			return (&outgoing{head: ch, payload: ch.Payload}).buffers(), nil
		}
	}
	return c.plain.Marshal(v)
}

// carrier is a message of a stream that carries chunks.
type carrier interface {
	proto.Message
	GetChunk() *pb.Chunk
}

// Unmarshal reads v's wire form.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		return f.unmarshal(data)
	}
	return c.plain.Unmarshal(data, v)
}

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
// the unsent chunks of a broken stream, so it may not come at all: give
// memory back to a pool in it, and never wait for it. release may be nil for
// memory that is never reused. c's columns are not looked at. It blocks as Send
// does, and must not be called from two goroutines at once on one stream.
func SendPayload(stream grpc.ServerStream, c *chunk.Chunk, payload []byte, release func()) error {
	o := &outgoing{head: chunkHead(c), payload: payload, release: release}
	err := stream.SendMsg(o)
	// Another codec copied the payload, or the stream ended before it was looked at.
	if !o.taken && o.release != nil {
		o.release()
	}
	return err
}

// SendChunk is SendPayload for a chunk in columns, which are copied into a
// pooled buffer: the chunk is borrowed until the call returns.
func SendChunk(stream grpc.ServerStream, c *chunk.Chunk) error {
	b := pool.Get(chunk.PayloadSize(c))
	payload := chunk.AppendPayload((*b)[:0], c)
	return SendPayload(stream, c, payload, func() { pool.Put(b) })
}

// outgoing is a chunk on its way out. It is a proto.Message too, so that a
// server without our codec sends the same bytes, only slower.
type outgoing struct {
	head    *pb.Chunk // its payload is not looked at
	payload []byte
	release func()
	taken   bool // release is now the buffers' business
}

// ProtoReflect builds the ordinary message, with a copy of the payload.
func (o *outgoing) ProtoReflect() protoreflect.Message {
	c := &pb.Chunk{
		ChunkNo: o.head.ChunkNo, FirstScan: o.head.FirstScan, Scans: o.head.Scans, FirstTick: o.head.FirstTick,
		Crc32C: o.head.Crc32C, Payload: bytes.Clone(o.payload),
	}
	return (&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Chunk{Chunk: c}}).ProtoReflect()
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

// Streamed are the messages that carry chunks.
type Streamed interface {
	pb.ReadCaptureResponse | pb.ReadSamplesResponse
}

// Receiver reads a stream of ReadCapture or ReadSamples into one message that
// is used again and again; a chunk's payload is a view into a pooled buffer.
// It belongs to one goroutine.
type Receiver[T Streamed] struct {
	stream grpc.ServerStreamingClient[T]
	frame  *frame
	msg    *T
}

// NewReceiver reads from a stream that was opened with the generated client.
// With a connection dialled without DialOptions it works too, only slower.
func NewReceiver[T Streamed](stream grpc.ServerStreamingClient[T]) *Receiver[T] {
	m := new(T)
	return &Receiver[T]{stream, newFrame(any(m).(proto.Message)), m}
}

// Recv returns the next message, or the error of the stream's RecvMsg: io.EOF
// at its end, a status error otherwise. The message is borrowed: it and its
// payload are valid until the next Recv or Free.
func (r *Receiver[T]) Recv() (*T, error) {
	r.frame.free()
	if err := r.stream.RecvMsg(r.frame); err != nil {
		r.frame.free()
		return nil, err
	}
	return r.msg, nil
}

// Free gives the last message's buffer back. The Receiver can go on.
func (r *Receiver[T]) Free() { r.frame.free() }

// frame is a message with the buffer that its chunk's payload lies in.
type frame struct {
	msg   proto.Message
	chunk pb.Chunk
	set   func() // makes chunk the message's item
	buf   mem.Buffer
}

// newFrame returns the frame of a message of either stream.
func newFrame(m proto.Message) *frame {
	f := &frame{msg: m}
	switch m := m.(type) {
	case *pb.ReadCaptureResponse:
		item := &pb.ReadCaptureResponse_Chunk{Chunk: &f.chunk}
		f.set = func() { m.Item = item }
	case *pb.ReadSamplesResponse:
		item := &pb.ReadSamplesResponse_Chunk{Chunk: &f.chunk}
		f.set = func() { m.Item = item }
	}
	return f
}

// ProtoReflect lets other codecs fill the message.
func (f *frame) ProtoReflect() protoreflect.Message { return f.msg.ProtoReflect() }

// free gives the buffer back; the payload is no longer valid.
func (f *frame) free() {
	if f.buf != nil {
		f.buf.Free()
		f.buf = nil
		f.chunk.Payload = nil
	}
}

// unmarshal reads a message that is one plain chunk itself, and leaves
// everything else to proto.
func (f *frame) unmarshal(data mem.BufferSlice) error {
	f.free()
	proto.Reset(f.msg)
	proto.Reset(&f.chunk)
	buf := data.MaterializeToBuffer(pool)
	b := buf.ReadOnlyData()
	if !parseItem(b, &f.chunk) {
		defer buf.Free()
		return proto.Unmarshal(b, f.msg)
	}
	f.set()
	f.buf = buf
	return nil
}

// parseItem reads a message that consists of exactly one chunk. It returns
// false for anything else, also for unusual encodings.
func parseItem(b []byte, c *pb.Chunk) bool {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 || number != itemChunk || kind != protowire.BytesType {
		return false
	}
	inner, m := protowire.ConsumeBytes(b[n:])
	return m >= 0 && n+m == len(b) && parseChunkFields(inner, c)
}

// parseChunkFields reads the fields of a chunk, its payload as a view of b. It returns
// false for unknown fields and for damage: proto reads the message then.
func parseChunkFields(b []byte, c *pb.Chunk) bool {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch {
		case kind == protowire.VarintType && number >= chunkNo && number <= chunkFirstTick:
			var v uint64
			if v, n = protowire.ConsumeVarint(b); n >= 0 {
				setVarint(c, number, v)
			}
		case kind == protowire.Fixed32Type && number == chunkCRC:
			c.Crc32C, n = protowire.ConsumeFixed32(b)
		case kind == protowire.BytesType && number == chunkPayload:
			c.Payload, n = protowire.ConsumeBytes(b)
		default:
			return false // a field of a later version: proto keeps it
		}
		if n < 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

// setVarint sets the field of a number.
func setVarint(c *pb.Chunk, number protowire.Number, v uint64) {
	switch number {
	case chunkNo:
		c.ChunkNo = v
	case chunkFirstScan:
		c.FirstScan = v
	case chunkScans:
		c.Scans = uint32(v)
	case chunkFirstTick:
		c.FirstTick = protowire.DecodeZigZag(v)
	}
}

// Chunk converts a chunk to its message, with a copy of its columns as the
// payload (chunk.AppendPayload). SendChunk and SendPayload do it cheaper.
func Chunk(c *chunk.Chunk) *pb.Chunk {
	p := chunkHead(c)
	p.Payload = chunk.AppendPayload(make([]byte, 0, chunk.PayloadSize(c)), c)
	return p
}

// chunkHead converts all of a chunk but its columns.
func chunkHead(c *chunk.Chunk) *pb.Chunk {
	return &pb.Chunk{
		ChunkNo: c.No, FirstScan: c.FirstScan, FirstTick: c.FirstTick, Scans: toUint32(c.Scans), Crc32C: c.CRC,
	}
}

// ParseChunk reads a message into c, whose columns are then views of the
// message's payload; the memory of c.Columns is used again, so that a loop over
// chunks does not allocate. columns is the number of columns that the setup
// asks for: its channels, and one more where the timebase is stamped. The
// structure is checked (chunk.ErrCorrupt), the checksum is taken over and not
// verified: chunk.Chunk.Validate does that.
func ParseChunk(p *pb.Chunk, columns int, c *chunk.Chunk) error {
	switch {
	case p == nil:
		return refuse("an empty chunk")
	case p.Scans == 0 || p.Scans > chunk.MaxScans:
		return refuse("chunk %d: %d scans: want 1 to %d", p.ChunkNo, p.Scans, chunk.MaxScans)
	case p.FirstScan+uint64(p.Scans) < p.FirstScan:
		return refuse("chunk %d: %d scans from scan %d on: past the largest number", p.ChunkNo, p.Scans, p.FirstScan)
	}
	c.No, c.FirstScan, c.FirstTick, c.Scans, c.CRC = p.ChunkNo, p.FirstScan, p.FirstTick, int(p.Scans), p.Crc32C
	if err := chunk.ParsePayload(c, p.Payload); err != nil {
		return fmt.Errorf("%w: chunk %d: %w", ErrMessage, p.ChunkNo, err)
	}
	if len(c.Columns) != columns {
		return refuse("chunk %d: %d columns, the setup asks for %d", p.ChunkNo, len(c.Columns), columns)
	}
	return nil
}

// pool holds receive buffers. Unlike gRPC's default one it has sizes between 32 KiB and 1 MiB, where
// chunks lie.
var pool = mem.NewTieredBufferPool(4<<10, 16<<10, 64<<10, 128<<10, 256<<10, 512<<10, 1<<20, 4<<20, 16<<20)
