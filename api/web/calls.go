package web

import (
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
	f := m.Fields().ByTextName(path[0])
	if f == nil {
		f = m.Fields().ByJSONName(path[0])
	}
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

// rpcs serves the calls of a host as gRPC-Web (and Connect, which comes with
// it), each at the path that gRPC has for it.
func rpcs(mux *http.ServeMux, conn, live grpc.ClientConnInterface) {
	s := pb.NewTaskServiceClient(conn)
	unary(mux, pb.TaskService_ListTasks_FullMethodName, s.ListTasks)
	unary(mux, pb.TaskService_GetTask_FullMethodName, s.GetTask)
	unary(mux, pb.TaskService_ListUsers_FullMethodName, s.ListUsers)
	streamed(mux, pb.TaskService_ReadSamples_FullMethodName, s.ReadSamples)
	streamed(mux, pb.TaskService_ReadTasks_FullMethodName, s.ReadTasks)
	unary(mux, pb.TaskService_ReadEnvelope_FullMethodName, s.ReadEnvelope)
	unary(mux, pb.TaskService_ReadEnergy_FullMethodName, s.ReadEnergy)
	unary(mux, pb.TaskService_ReadTimeline_FullMethodName, s.ReadTimeline)
	unary(mux, pb.TaskService_ReadKernels_FullMethodName, s.ReadKernels)
	unary(mux, pb.TaskService_ReadRanges_FullMethodName, s.ReadRanges)
	unary(mux, pb.TaskService_Aggregate_FullMethodName, s.Aggregate)
	streamed(mux, pb.TaskService_WatchTasks_FullMethodName, s.WatchTasks)
	unary(mux, pb.TaskService_DeleteTasks_FullMethodName, s.DeleteTasks)
	unary(mux, pb.TaskService_UpdateTask_FullMethodName, s.UpdateTask)
	unary(mux, pb.TaskService_BeginWindow_FullMethodName, s.BeginWindow)
	unary(mux, pb.TaskService_EndWindow_FullMethodName, s.EndWindow)
	unary(mux, pb.TaskService_RecordWindows_FullMethodName, s.RecordWindows)
	unary(mux, pb.TaskService_ReadWindows_FullMethodName, s.ReadWindows)
	unary(mux, pb.TaskService_CreateNote_FullMethodName, s.CreateNote)
	unary(mux, pb.TaskService_DeleteNote_FullMethodName, s.DeleteNote)
	unary(mux, pb.TaskService_ReadReadings_FullMethodName, s.ReadReadings)
	unary(mux, pb.TaskService_TrimTask_FullMethodName, s.TrimTask)
	streamed(mux, pb.TaskService_ReadExport_FullMethodName, s.ReadExport)
	b := pb.NewBenchServiceClient(live)
	unary(mux, pb.BenchService_ListBenches_FullMethodName, b.ListBenches)
	unary(mux, pb.BenchService_ReadBench_FullMethodName, b.ReadBench)
	unary(mux, pb.BenchService_StartRecording_FullMethodName, b.StartRecording)
	unary(mux, pb.BenchService_StopRecording_FullMethodName, b.StopRecording)
	streamed(mux, pb.BenchService_WatchBenches_FullMethodName, b.WatchBenches)
	r := pb.NewReportServiceClient(conn)
	unary(mux, pb.ReportService_ListSensors_FullMethodName, r.ListSensors)
	unary(mux, pb.ReportService_ListSensorErrors_FullMethodName, r.ListSensorErrors)
	unary(mux, pb.ReportService_ReadValidation_FullMethodName, r.ReadValidation)
	unary(mux, pb.ReportService_ListValidations_FullMethodName, r.ListValidations)
	unary(mux, pb.ReportService_ReadComparison_FullMethodName, r.ReadComparison)
	unary(mux, pb.ReportService_ReadSwings_FullMethodName, r.ReadSwings)
}

// rpcOptions bound the size of a request, also unpacked. Small
// answers are not worth packing.
var rpcOptions = []connect.HandlerOption{connect.WithReadMaxBytes(maxBody), connect.WithCompressMinBytes(4 << 10)}

// unary serves a call of one answer by calling the gRPC server.
func unary[Q, A any](mux *http.ServeMux, method string,
	call func(context.Context, *Q, ...grpc.CallOption) (*A, error),
) {
	mux.Handle("POST "+method, connect.NewUnaryHandler(method,
		func(ctx context.Context, r *connect.Request[Q]) (*connect.Response[A], error) {
			a, err := call(ctx, r.Msg)
			if err != nil {
				return nil, connectError(err)
			}
			return connect.NewResponse(a), nil
		}, rpcOptions...))
}

// streamed serves a stream of answers. Each is sent before the next is taken from
// the gRPC server, whose flow control so reaches through to the reader.
func streamed[Q, A any](mux *http.ServeMux, method string,
	call func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[A], error),
) {
	mux.Handle("POST "+method, connect.NewServerStreamHandler(method,
		func(ctx context.Context, r *connect.Request[Q], to *connect.ServerStream[A]) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			from, err := call(ctx, r.Msg)
			if err != nil {
				return connectError(err)
			}
			for {
				a, err := from.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return connectError(err)
				}
				if err := to.Send(a); err != nil {
					return err
				}
			}
		}, rpcOptions...))
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
