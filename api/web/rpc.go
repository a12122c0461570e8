package web

import (
	"context"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
)

// rpcs serves the calls of a host as gRPC-Web (and Connect, which comes with
// it), each at the path that gRPC has for it.
func rpcs(mux *http.ServeMux, conn, live grpc.ClientConnInterface) {
	s := wattmarkv1.NewTaskServiceClient(conn)
	unary(mux, wattmarkv1.TaskService_ListTasks_FullMethodName, s.ListTasks)
	unary(mux, wattmarkv1.TaskService_GetTask_FullMethodName, s.GetTask)
	unary(mux, wattmarkv1.TaskService_ListUsers_FullMethodName, s.ListUsers)
	streamed(mux, wattmarkv1.TaskService_ReadSamples_FullMethodName, s.ReadSamples)
	unary(mux, wattmarkv1.TaskService_ReadEnvelope_FullMethodName, s.ReadEnvelope)
	unary(mux, wattmarkv1.TaskService_ReadEnergy_FullMethodName, s.ReadEnergy)
	unary(mux, wattmarkv1.TaskService_ReadTimeline_FullMethodName, s.ReadTimeline)
	unary(mux, wattmarkv1.TaskService_Aggregate_FullMethodName, s.Aggregate)
	streamed(mux, wattmarkv1.TaskService_WatchTasks_FullMethodName, s.WatchTasks)
	unary(mux, wattmarkv1.TaskService_DeleteTasks_FullMethodName, s.DeleteTasks)
	unary(mux, wattmarkv1.TaskService_UpdateTask_FullMethodName, s.UpdateTask)
	unary(mux, wattmarkv1.TaskService_CreateNote_FullMethodName, s.CreateNote)
	unary(mux, wattmarkv1.TaskService_DeleteNote_FullMethodName, s.DeleteNote)
	unary(mux, wattmarkv1.TaskService_ReadReadings_FullMethodName, s.ReadReadings)
	b := wattmarkv1.NewBenchServiceClient(live)
	unary(mux, wattmarkv1.BenchService_ListBenches_FullMethodName, b.ListBenches)
	unary(mux, wattmarkv1.BenchService_ReadBench_FullMethodName, b.ReadBench)
	streamed(mux, wattmarkv1.BenchService_WatchBenches_FullMethodName, b.WatchBenches)
	r := wattmarkv1.NewReportServiceClient(conn)
	unary(mux, wattmarkv1.ReportService_ListSensors_FullMethodName, r.ListSensors)
	unary(mux, wattmarkv1.ReportService_ListSensorErrors_FullMethodName, r.ListSensorErrors)
	unary(mux, wattmarkv1.ReportService_ReadValidation_FullMethodName, r.ReadValidation)
	unary(mux, wattmarkv1.ReportService_ListValidations_FullMethodName, r.ListValidations)
}

// rpcOptions bound what a request may take: what it unpacks to as well. Small
// answers are not worth packing.
var rpcOptions = []connect.HandlerOption{connect.WithReadMaxBytes(maxBody), connect.WithCompressMinBytes(4 << 10)}

// unary serves a call of one answer by calling the gRPC server.
func unary[Q, A any](mux *http.ServeMux, method string, call func(context.Context, *Q, ...grpc.CallOption) (*A, error)) {
	mux.Handle("POST "+method, connect.NewUnaryHandler(method, func(ctx context.Context, r *connect.Request[Q]) (*connect.Response[A], error) {
		a, err := call(ctx, r.Msg)
		if err != nil {
			return nil, connectError(err)
		}
		return connect.NewResponse(a), nil
	}, rpcOptions...))
}

// streamed serves a stream of answers. Each is sent before the next is taken from
// the gRPC server, whose flow control so reaches through to the reader.
func streamed[Q, A any](mux *http.ServeMux, method string, call func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[A], error)) {
	mux.Handle("POST "+method, connect.NewServerStreamHandler(method, func(ctx context.Context, r *connect.Request[Q], to *connect.ServerStream[A]) error {
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
