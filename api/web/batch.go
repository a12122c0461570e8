package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"
)

// maxCalls bounds the calls of a batch, and batchAtOnce how many of them run at once.
const (
	maxCalls    = 256
	batchAtOnce = 8
)

// call is one call of a batch: GET of a path below /v1/, or a gRPC-Web call with its message.
type call struct {
	Path    string `json:"path"`
	Message []byte `json:"message"`
}

// answer is the answer to one call of a batch: JSON, or the message of a gRPC-Web call.
type answer struct {
	Status  int             `json:"status"`
	JSON    json.RawMessage `json:"json,omitempty"`
	Message []byte          `json:"message,omitempty"`
}

// batch makes the calls of a request {"calls": [{"path": "/v1/tasks/1"}, …]} for the same caller, and answers
// {"answers": [{"status": 200, "json": …}, …]} in their order. Calls that stream or change something are refused.
func batch(next http.Handler, charge func(context.Context, int) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Calls []call `json:"calls"`
		}
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&q); err != nil || len(q.Calls) > maxCalls {
			refuse(w, http.StatusBadRequest, fmt.Sprintf("want {\"calls\": [{\"path\": \"/v1/…\"}, …]} with at most %d calls", maxCalls))
			return
		}
		requests := make([]*http.Request, len(q.Calls))
		for i := range q.Calls {
			var err error
			if requests[i], err = q.Calls[i].request(r); err != nil {
				refuse(w, http.StatusBadRequest, fmt.Sprintf("calls[%d]: %v", i, err))
				return
			}
		}
		if charge != nil && len(requests) > 1 { // the request itself has been counted
			if err := charge(r.Context(), len(requests)-1); err != nil {
				refuseCall(w, err)
				return
			}
		}
		answers := make([]answer, len(requests))
		var g errgroup.Group
		g.SetLimit(batchAtOnce)
		for i, one := range requests {
			g.Go(func() error {
				p := part{header: http.Header{}, status: http.StatusOK}
				next.ServeHTTP(&p, one)
				answers[i].Status = p.status
				if one.URL.Path == envelopePath && p.status == http.StatusOK {
					answers[i].Message = p.body.Bytes()
				} else if json.Valid(p.body.Bytes()) {
					answers[i].JSON = p.body.Bytes()
				}
				return r.Context().Err()
			})
		}
		if g.Wait() != nil {
			return // the caller has gone
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string][]answer{"answers": answers})
	})
}

// request is a call as a request of the caller of another one.
func (c *call) request(of *http.Request) (*http.Request, error) {
	u, err := url.Parse(c.Path)
	if err != nil || u.IsAbs() || u.Host != "" {
		return nil, fmt.Errorf("%q is no path", c.Path)
	}
	r := of.Clone(of.Context())
	r.URL, r.RequestURI, r.ContentLength, r.Body = u, c.Path, 0, http.NoBody
	r.Header = http.Header{"Accept": {"application/json"}}
	switch {
	case u.Path == envelopePath:
		r.ContentLength, r.Body = int64(len(c.Message)), io.NopCloser(bytes.NewReader(c.Message))
		r.Header.Set("Content-Type", "application/proto")
	case !strings.HasPrefix(u.Path, "/v1/") || strings.Contains(u.Path, ":watch") ||
		strings.HasSuffix(u.Path, "/samples") || strings.HasSuffix(u.Path, "/export"):
		return nil, fmt.Errorf("%q is not for a batch: want a GET below /v1/ that does not stream, or %s", u.Path,
			envelopePath)
	default:
		r.Method = http.MethodGet
	}
	return r, nil
}

const envelopePath = "/wattmark.v1.TaskService/ReadEnvelope"

// part is the answer to a call of a batch on its way.
type part struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (p *part) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *part) WriteHeader(status int) { p.status = status }

// Write implements http.ResponseWriter.
func (p *part) Write(b []byte) (int, error) { return p.body.Write(b) }
