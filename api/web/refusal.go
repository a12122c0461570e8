package web

import (
	"encoding/json"
	"net/http"
)

// alike makes the refusal of a stream that cannot begin look like that of any other
// call: the gateway wraps it as it would one in the middle, {"error": …}, which the
// OpenAPI file does not know.
func alike(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&refusal{ResponseWriter: w}, r)
	})
}

type refusal struct {
	http.ResponseWriter
	refused bool
}

func (w *refusal) WriteHeader(status int) {
	if w.refused = status >= http.StatusBadRequest; w.refused {
		w.Header().Set("Content-Type", "application/json")
	}
	w.ResponseWriter.WriteHeader(status)
}

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

// Flush sends what was written.
func (w *refusal) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (w *refusal) Unwrap() http.ResponseWriter { return w.ResponseWriter }
