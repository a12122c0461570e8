package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// strict makes the gateway refuse parameters that there are not, which it
// otherwise passes over: a misspelt filter would select all. The gateway keeps
// its parser in one place for the whole program.
var strict = sync.OnceFunc(func() { runtime.NewServeMux(runtime.SetQueryParameterParser(strictParser{})) })

type strictParser struct{ runtime.DefaultQueryParser }

// Parse reads parameters into a message.
func (p strictParser) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	for key, list := range values {
		for _, v := range append(list, key) {
			if !utf8.ValidString(v) {
				return fmt.Errorf("parameter %q is not UTF-8", key)
			}
		}
		if !known(m.ProtoReflect().Descriptor(), strings.Split(key, ".")) || chosen(m.ProtoReflect(), key) {
			return fmt.Errorf("there is no parameter %q", key)
		}
	}
	return p.DefaultQueryParser.Parse(m, values, filter)
}

// chosen reports whether a field is one of several of which the path has set one already.
func chosen(m protoreflect.Message, key string) bool {
	f := m.Descriptor().Fields().ByTextName(key)
	return f != nil && f.ContainingOneof() != nil && m.WhichOneof(f.ContainingOneof()) != nil
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
