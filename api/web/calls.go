package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// strict makes the gateway refuse parameters that there are not, which it
// otherwise passes over: a misspelt filter would select all. The gateway keeps
// its parser in one place for the whole program.
var strict = sync.OnceFunc(func() { runtime.NewServeMux(runtime.SetQueryParameterParser(strictParser{})) })

// strictParser refuses unknown parameters of a query, and those that the path has set.
type strictParser struct{ runtime.DefaultQueryParser }

// Parse reads parameters into a message.
func (p strictParser) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	for key, list := range values {
		for _, v := range append(list, key) {
			if !utf8.ValidString(v) {
				return fmt.Errorf("parameter %q is not UTF-8", key)
			}
		}
		// Of several fields that exclude each other the path may have set one already.
		f := m.ProtoReflect().Descriptor().Fields().ByTextName(key)
		chosen := f != nil && f.ContainingOneof() != nil && m.ProtoReflect().WhichOneof(f.ContainingOneof()) != nil
		if chosen || !known(m.ProtoReflect().Descriptor(), strings.Split(key, ".")) {
			return fmt.Errorf("there is no parameter %q", key)
		}
	}
	return p.DefaultQueryParser.Parse(m, values, filter)
}

// known reports whether a path leads to a field.
func known(m protoreflect.MessageDescriptor, path []string) bool {
	f := cmp.Or(m.Fields().ByTextName(path[0]), m.Fields().ByJSONName(path[0]))
	if f == nil || len(path) == 1 {
		return f != nil
	}
	return f.Message() != nil && !f.IsList() && known(f.Message(), path[1:])
}

// plainCalls are the calls without parameters, as "GET /v1/users", for which the
// gateway does not look at the query at all. That of an update may have a mask.
var plainCalls = sync.OnceValue(func() map[string]bool {
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				In string `json:"in"`
			} `json:"parameters"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		panic(err) // it is part of the program, and tests read it
	}
	out := map[string]bool{}
	for path, calls := range doc.Paths {
		for method, call := range calls {
			query := false
			for _, p := range call.Parameters {
				query = query || p.In == "query"
			}
			out[strings.ToUpper(method)+" "+path] = !query
		}
	}
	return out
})

// plain refuses parameters of calls that have none, and paths that no message can hold.
func plain(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, path map[string]string) {
		pattern, _ := runtime.HTTPPattern(r.Context())
		if plainCalls()[r.Method+" "+strings.ReplaceAll(pattern.String(), "=*}", "}")] {
			for key := range r.URL.Query() {
				if r.Method != http.MethodPatch || key != "update_mask" && key != "updateMask" {
					refuse(w, http.StatusBadRequest, fmt.Sprintf("there is no parameter %q", key))
					return
				}
			}
		}
		for _, v := range path {
			if !utf8.ValidString(v) {
				refuse(w, http.StatusBadRequest, fmt.Sprintf("%q of the path is not UTF-8", v))
				return
			}
		}
		next(w, r, path)
	}
}

// rpcs serves the calls of a host, except those with a stream of requests, as gRPC-Web (and Connect, which comes with
// it), each at the path that gRPC has for it. All handlers are of one type and make their messages by descriptor: with
// a typed handler for each call the same code is linked thirty times.
func rpcs(mux *http.ServeMux, conn, live grpc.ClientConnInterface) {
	for file, conn := range map[protoreflect.FileDescriptor]grpc.ClientConnInterface{
		pb.File_wattmark_v1_task_proto: conn, pb.File_wattmark_v1_bench_proto: live, pb.File_wattmark_v1_report_proto: conn,
	} {
		service := file.Services().Get(0)
		for i := range service.Methods().Len() {
			if m := service.Methods().Get(i); !m.IsStreamingClient() {
				path := "/" + string(service.FullName()) + "/" + string(m.Name())
				mux.Handle("POST "+path, rpc(path, m, conn))
			}
		}
	}
}

// message holds a message of any kind, so that one type serves all calls.
type message struct{ proto.Message }

// newMessage returns an empty message of the kind of d, one of the program's.
func newMessage(d protoreflect.MessageDescriptor) message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // the services are part of the program
	}
	return message{kind.New().Interface()}
}

// rpc serves a call of one answer, or of a stream of them, by calling the gRPC server. Each answer of a stream is sent
// before the next is taken from the gRPC server, whose flow control so reaches through to the reader.
func rpc(path string, m protoreflect.MethodDescriptor, conn grpc.ClientConnInterface) http.Handler {
	options := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxBody),     // also of a request that is unpacked
		connect.WithCompressMinBytes(4 << 10), // small answers are not worth packing
		connect.WithRequestInitializer(func(_ connect.Spec, q any) error {
			*q.(*message) = newMessage(m.Input())
			return nil
		}),
	}
	if !m.IsStreamingServer() {
		return connect.NewUnaryHandler(path, func(ctx context.Context, r *connect.Request[message]) (*connect.Response[message], error) {
			a := newMessage(m.Output())
			if err := conn.Invoke(ctx, path, r.Msg.Message, a.Message); err != nil {
				return nil, connectError(err)
			}
			return connect.NewResponse(&a), nil
		}, options...)
	}
	return connect.NewServerStreamHandler(path, func(ctx context.Context, r *connect.Request[message], to *connect.ServerStream[message]) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		from, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
		if err == nil {
			err = errors.Join(from.SendMsg(r.Msg.Message), from.CloseSend())
		}
		if err != nil {
			return connectError(err)
		}
		for {
			a := newMessage(m.Output())
			if err := from.RecvMsg(a.Message); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return connectError(err)
			}
			if err := to.Send(&a); err != nil {
				return err
			}
		}
	}, options...)
}

// connectError is a gRPC status with its details.
func connectError(err error) error {
	s := status.Convert(err)
	out := connect.NewError(connect.Code(s.Code()), errors.New(s.Message()))
	for _, d := range s.Proto().GetDetails() {
		m, err := d.UnmarshalNew()
		if err != nil {
			continue // a detail that nobody here knows must not hide the error itself
		}
		if detail, err := connect.NewErrorDetail(m); err == nil {
			out.AddDetail(detail)
		}
	}
	return out
}
