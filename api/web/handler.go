// Package web serves TaskService as JSON over HTTP: the calls that
// proto/wattmark/v1/http.yaml maps, their OpenAPI file, health and, where wanted,
// metrics and profiles. The generated gateway calls the gRPC server; this
// package adds strict requests, headers and limits around it.
//
//	GET /               the page, with its files below /assets/
//	GET /v1/…           the calls
//	GET /v1/tasks/{task_id}/export   ReadExport, as the file that it streams
//	POST /v1/batch      several calls that read, in one
//	GET /openapi.json   their requests and answers (OpenAPI 2.0)
//	POST /wattmark.v1.TaskService/…   the calls as gRPC-Web
//	GET /healthz        health, as gRPC's
//	GET /metrics        for Prometheus
//	GET /debug/pprof/   profiles
//
// Callers are identified where Options.Ask does so (package api/auth/signin). Else serve
// it on a loopback address alone. Requests that a browser makes for another site's page
// are refused in any case.
package web

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/klauspost/compress/gzhttp"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/web/page"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

//go:embed openapi.swagger.json
var openAPI []byte

// Options are the parts that a handler may serve beside the calls.
type Options struct {
	// Metrics is served at /metrics; nil for none.
	Metrics http.Handler
	// Profiles serves /debug/pprof/: whoever reaches it sees the program's inside.
	Profiles bool
	// Live is a connection to the same server for live streams, with small windows
	// (wire.LiveDialOptions), so that a slow browser gets less and not later;
	// nil for the one that serves all.
	Live *grpc.ClientConn
	// Loopback is set where only this machine's own names are names of the server: a
	// request under another one comes from a page that made its name point here.
	Loopback bool
	// Ask puts the question who is there before all that is served; nil where nobody is
	// asked.
	Ask func(http.Handler) http.Handler
	// Charge counts n calls more for the caller of a request, or refuses them; nil for no limit.
	Charge func(ctx context.Context, n int) error
}

// Handler serves the calls of the services that conn leads to, and the page that
// shows them, until ctx ends.
func Handler(ctx context.Context, conn *grpc.ClientConn, o Options) (http.Handler, error) {
	strict()
	gateway := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{&runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true},
		}}),
		runtime.WithMarshalerOption(sparse,
			marshaler{&runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{UseProtoNames: true}}}),
		runtime.WithHealthzEndpoint(grpc_health_v1.NewHealthClient(conn)),
		runtime.WithRoutingErrorHandler(misrouted),
		runtime.WithMiddlewares(plain),
		// A form that is posted is not a way to ask: any page can post one.
		runtime.WithDisablePathLengthFallback(),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
	)
	live := cmp.Or(o.Live, conn)
	err := errors.Join(
		pb.RegisterTaskServiceHandlerClient(ctx, gateway, pb.NewTaskServiceClient(conn)),
		pb.RegisterBenchServiceHandlerClient(ctx, gateway, pb.NewBenchServiceClient(live)),
		pb.RegisterReportServiceHandlerClient(ctx, gateway, pb.NewReportServiceClient(conn)))
	if err != nil {
		return nil, fmt.Errorf("serve JSON: %w", err)
	}
	mux := http.NewServeMux()
	rpcs(mux, conn, live)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Has("read_mask") || q.Has("readMask") {
			r.Header.Set("Accept", sparse)
		}
		gateway.ServeHTTP(&refusal{ResponseWriter: w}, r)
	})
	// Where callers are asked who they are, Options.Ask answers this.
	mux.HandleFunc("GET /v1/session", fixed(`{"name":""}`))
	mux.Handle("POST /v1/batch", batch(mux, o.Charge))
	mux.Handle("GET /v1/tasks/{task_id}/export", exported(pb.NewTaskServiceClient(conn)))
	mux.Handle("GET /{$}", page.Handler())
	mux.Handle("GET /assets/", page.Handler())
	mux.HandleFunc("GET /openapi.json", fixed(string(openAPI)))
	small, err := compressing(mux)
	if err != nil {
		return nil, fmt.Errorf("serve JSON: %w", err)
	}
	return Beside(o, small), nil
}

// fixed answers with a JSON text.
func fixed(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
}

// compressing compresses answers of text for clients that accept it, but for live streams, whose lines must not wait
// for each other.
func compressing(next http.Handler) (http.Handler, error) {
	wrap, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(1), gzhttp.ContentTypes([]string{
		"application/json", "text/html", "text/css", "text/javascript", "image/svg+xml",
	}))
	if err != nil {
		return nil, err
	}
	small := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ":watch") {
			next.ServeHTTP(w, r)
			return
		}
		small.ServeHTTP(w, r)
	}), nil
}

// Beside serves the parts that the options name beside a handler of one's own, with the same
// headers and limits.
func Beside(o Options, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}
	if o.Profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	if o.Ask == nil {
		return guard(mux, o)
	}
	return guard(o.Ask(mux), o)
}

// misrouted answers requests for unknown paths, in the calls' own form.
func misrouted(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request,
	httpStatus int,
) {
	if httpStatus == http.StatusMethodNotAllowed { // which the gateway calls 501
		runtime.HTTPError(ctx, mux, m, w, r, &runtime.HTTPStatusError{
			HTTPStatus: httpStatus, Err: status.Errorf(codes.Unimplemented,
				"%s is not for this path: /openapi.json says what is", r.Method),
		})
		return
	}
	runtime.DefaultRoutingErrorHandler(ctx, mux, m, w, r, httpStatus)
}

// marshaler writes JSON with the fields' own names and marks streams as such.
type marshaler struct{ *runtime.JSONPb }

// sparse leaves out empty and zero fields: of tasks that were asked for by their
// fields, the fields that nobody asked for would otherwise look like zeros.
const sparse = "application/vnd.wattmark.sparse+json"

// StreamContentType is that of a stream: one object a line.
func (marshaler) StreamContentType(any) string { return "application/x-ndjson" }

// refusal is a writer that makes the refusal of a stream that cannot begin look like that of any
// other call: the gateway wraps it as it would one in the middle, {"error": …}, which the
// OpenAPI file does not know.
type refusal struct {
	http.ResponseWriter
	refused bool
}

// WriteHeader notes whether the request is refused, and gives refusals the type of JSON.
func (w *refusal) WriteHeader(status int) {
	if w.refused = status >= http.StatusBadRequest; w.refused {
		w.Header().Set("Content-Type", "application/json")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes b, of a refusal the error itself.
func (w *refusal) Write(b []byte) (int, error) {
	var wrapped struct {
		Error json.RawMessage `json:"error"`
	}
	if w.refused && json.Unmarshal(b, &wrapped) == nil && wrapped.Error != nil {
		_, err := w.ResponseWriter.Write(wrapped.Error)
		return len(b), err
	}
	return w.ResponseWriter.Write(b)
}

// Flush sends the written bytes.
func (w *refusal) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *refusal) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Server is an HTTP server with its limits.
type Server struct {
	server *http.Server
	listen net.Listener
}

// NewServer makes a server of a handler on a listener. Trouble with connections
// goes to log; nil for silence.
func NewServer(l net.Listener, h http.Handler, log *slog.Logger) *Server {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &Server{listen: l, server: &http.Server{
		Handler: h, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ConnContext: lean,
	}}
}

// unsent is how much of an answer may wait in a socket for the network, in bytes. More
// would be old news when it comes to who watches over a slow line. How fast a line is
// does not suffer, as a small buffer for all that is on its way would make it.
const unsent = 16 << 10

// lean bounds the bytes that a new connection takes and cannot send yet to unsent.
// Where the kernel does not support it its own buffers must do.
func lean(ctx context.Context, c net.Conn) context.Context {
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
			})
		}
	}
	return ctx
}

// Serve serves until Stop; it closes the listener.
func (s *Server) Serve() error {
	if err := s.server.Serve(s.listen); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.listen.Addr(), err)
	}
	return nil
}

// Stop takes no new requests, and gives those that go on a while to end, also where ctx has ended.
func (s *Server) Stop(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
}
