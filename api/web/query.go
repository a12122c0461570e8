package web

import (
	"fmt"
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
		if !known(m.ProtoReflect().Descriptor(), strings.Split(key, ".")) {
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
