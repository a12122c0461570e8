package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"google.golang.org/grpc/status"
)

// endings are those of the names of exported files, by format.
var endings = map[string]string{
	"csv": "csv", "parquet": "parquet", "arrow": "arrow", "perfetto": "pftrace",
}

// exported serves ReadExport as a file to save: its parameters are format, from_s and to_s. An
// error before the first byte is answered as those of other calls; a later one breaks the
// connection, so that a cut file never looks whole.
func exported(s pb.TaskServiceClient) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := exportRequest(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		from, err := s.ReadExport(r.Context(), q)
		if err != nil {
			refuseCall(w, err)
			return
		}
		part, err := from.Recv()
		if err != nil && !errors.Is(err, io.EOF) {
			refuseCall(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition",
			fmt.Sprintf(`attachment; filename="task-%d.%s"`, q.TaskId, endings[q.Format]))
		for err == nil {
			if _, err = w.Write(part.GetData()); err == nil { // #nosec G705 -- bytes to keep, which no browser shows
				part, err = from.Recv()
			}
		}
		if !errors.Is(err, io.EOF) {
			panic(http.ErrAbortHandler)
		}
	})
}

// refuseCall answers with the error of a call, as the gateway does.
func refuseCall(w http.ResponseWriter, err error) {
	s := status.Convert(err)
	refuseAs(w, runtime.HTTPStatusFromCode(s.Code()), s.Code(), s.Message())
}

// exportRequest reads the path and the parameters of a request; others are refused.
func exportRequest(r *http.Request) (*pb.ReadExportRequest, error) {
	q := &pb.ReadExportRequest{}
	var err error
	if q.TaskId, err = strconv.ParseInt(r.PathValue("task_id"), 10, 64); err != nil {
		return nil, fmt.Errorf("task_id: %q is no number of a task", r.PathValue("task_id"))
	}
	for name, v := range r.URL.Query() {
		switch to := map[string]*float64{"from_s": &q.FromS, "to_s": &q.ToS}[name]; {
		case name == "format":
			q.Format = v[0]
		case to == nil:
			return nil, fmt.Errorf("unknown parameter %q: want format, from_s and to_s", name)
		default:
			if *to, err = strconv.ParseFloat(v[0], 64); err != nil {
				return nil, fmt.Errorf("%s: %q: want seconds of device time", name, v[0])
			}
		}
	}
	return q, nil
}
