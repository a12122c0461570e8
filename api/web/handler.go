package web

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"wattmark/api/wattmarkv1"
	"wattmark/api/web/page"
)

//go:embed openapi.swagger.json
var openAPI []byte

// Options are what a handler may serve beside the calls.
type Options struct {
	// Metrics is served at /metrics; nil for none.
	Metrics http.Handler
	// Profiles serves /debug/pprof/: whoever reaches it sees the program's inside.
	Profiles bool
	// Live is a connection to the same server for what is watched live, with small
	// windows (wire.LiveDialOptions), so that a slow browser is told less and not later;
	// nil for the one that serves all.
	Live *grpc.ClientConn
	// Loopback says that only this machine's own names are names of the server: what
	// is asked under another one comes from a page that made its name point here.
	Loopback bool
	// Ask puts the question who is there before all that is served; nil where nobody is
	// asked.
	Ask func(http.Handler) http.Handler
}

// Handler serves the calls of the services that conn leads to, and the page that
// shows them, until ctx ends.
func Handler(ctx context.Context, conn *grpc.ClientConn, o Options) (http.Handler, error) {
	strict()
	gateway := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{&runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true},
		}}),
		runtime.WithMarshalerOption(sparse, marshaler{&runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{UseProtoNames: true}}}),
		runtime.WithHealthzEndpoint(grpc_health_v1.NewHealthClient(conn)),
		runtime.WithRoutingErrorHandler(misrouted),
		runtime.WithMiddlewares(plain),
		// A form that is posted is not a way to ask: any page can post one.
		runtime.WithDisablePathLengthFallback(),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
	)
	live := o.Live
	if live == nil {
		live = conn
	}
	err := errors.Join(
		wattmarkv1.RegisterTaskServiceHandlerClient(ctx, gateway, wattmarkv1.NewTaskServiceClient(conn)),
		wattmarkv1.RegisterBenchServiceHandlerClient(ctx, gateway, wattmarkv1.NewBenchServiceClient(live)),
		wattmarkv1.RegisterReportServiceHandlerClient(ctx, gateway, wattmarkv1.NewReportServiceClient(conn)))
	if err != nil {
		return nil, fmt.Errorf("serve JSON: %w", err)
	}
	mux := http.NewServeMux()
	rpcs(mux, conn, live)
	mux.Handle("/", alike(masked(gateway)))
	mux.Handle("GET /{$}", page.Handler())
	mux.Handle("GET /assets/", page.Handler())
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openAPI)
	})
	return Beside(o, mux), nil
}

// Beside serves what the options name beside a handler of one's own, with the same
// headers and limits.
func Beside(o Options, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}
	if o.Profiles {
		profiles(mux)
	}
	return guard(asked(mux, o), o)
}

// misrouted answers what no call is at, in the calls' own form.
func misrouted(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, httpStatus int) {
	if httpStatus == http.StatusMethodNotAllowed { // which the gateway calls 501
		runtime.HTTPError(ctx, mux, m, w, r, &runtime.HTTPStatusError{
			HTTPStatus: httpStatus, Err: status.Errorf(codes.Unimplemented, "%s is not for this path: /openapi.json says what is", r.Method),
		})
		return
	}
	runtime.DefaultRoutingErrorHandler(ctx, mux, m, w, r, httpStatus)
}

// OpenAPI returns the file that describes the calls.
func OpenAPI() []byte { return append([]byte(nil), openAPI...) }

// profiles serves Go's own profiles.
func profiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// marshaler writes JSON with the fields' own names and says of streams what they are.
type marshaler struct{ *runtime.JSONPb }

// sparse leaves out what is empty or zero: of tasks that were asked for by their
// fields, the fields that nobody asked for would otherwise look like zeros.
const sparse = "application/vnd.wattmark.sparse+json"

// masked answers a request that names fields with nothing but fields.
func masked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Has("read_mask") || q.Has("readMask") {
			r.Header.Set("Accept", sparse)
		}
		next.ServeHTTP(w, r)
	})
}

// StreamContentType is that of a stream: one object a line.
func (marshaler) StreamContentType(any) string { return "application/x-ndjson" }
