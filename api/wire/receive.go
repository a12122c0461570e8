package wire

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"wattmark/api/wattmarkv1"
)

// Streamed are the messages that carry chunks.
type Streamed interface {
	wattmarkv1.ReadCaptureResponse | wattmarkv1.ReadSamplesResponse
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
	return &Receiver[T]{stream: stream}
}

// Recv returns the next message, or what the stream's RecvMsg returns: io.EOF
// at its end, a status error otherwise. The message is borrowed: it and its
// payload are valid until the next Recv or Free, unless Keep was called.
func (r *Receiver[T]) Recv() (*T, error) {
	if r.frame == nil {
		r.msg = new(T)
		r.frame = newFrame(any(r.msg).(proto.Message))
	}
	r.frame.free()
	if err := r.stream.RecvMsg(r.frame); err != nil {
		r.frame.free()
		return nil, err
	}
	return r.msg, nil
}

// Keep makes the last message the caller's: it stays valid until release is
// called, once, on any goroutine, whatever the Receiver does meanwhile.
func (r *Receiver[T]) Keep() (release func()) {
	if r.frame == nil {
		return func() {}
	}
	f := r.frame
	r.frame, r.msg = nil, nil
	return f.free
}

// Free gives the last message's buffer back. The Receiver can go on.
func (r *Receiver[T]) Free() {
	if r.frame != nil {
		r.frame.free()
	}
}

// frame is a message with the buffer that its chunk's payload lies in.
type frame struct {
	msg   proto.Message
	chunk wattmarkv1.Chunk
	set   func() // makes chunk the message's item
	buf   mem.Buffer
}

func newFrame(m proto.Message) *frame {
	f := &frame{msg: m}
	switch m := m.(type) {
	case *wattmarkv1.ReadCaptureResponse:
		item := &wattmarkv1.ReadCaptureResponse_Chunk{Chunk: &f.chunk}
		f.set = func() { m.Item = item }
	case *wattmarkv1.ReadSamplesResponse:
		item := &wattmarkv1.ReadSamplesResponse_Chunk{Chunk: &f.chunk}
		f.set = func() { m.Item = item }
	}
	return f
}

// ProtoReflect lets other codecs fill the message.
func (f *frame) ProtoReflect() protoreflect.Message { return f.msg.ProtoReflect() }

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
// false for anything else, also for what is merely unusual.
func parseItem(b []byte, c *wattmarkv1.Chunk) bool {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 || number != itemChunk || kind != protowire.BytesType {
		return false
	}
	inner, m := protowire.ConsumeBytes(b[n:])
	return m >= 0 && n+m == len(b) && parseChunkFields(inner, c)
}

func parseChunkFields(b []byte, c *wattmarkv1.Chunk) bool {
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

func setVarint(c *wattmarkv1.Chunk, number protowire.Number, v uint64) {
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
