package signin

import (
	"embed"
	"net/http"
)

//go:embed page
var files embed.FS

// strict is the policy of the page: nothing but its own three files and one request.
const strict = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// page serves the page that asks for a token: three files by their names, and no others.
func page(mux *http.ServeMux) {
	for path, f := range map[string]struct{ name, kind string }{
		"GET /signin":           {"page/signin.html", "text/html; charset=utf-8"},
		"GET /signin/signin.js": {"page/signin.js", "text/javascript; charset=utf-8"},
		"GET /signin/style.css": {"page/style.css", "text/css; charset=utf-8"},
	} {
		b, err := files.ReadFile(f.name)
		if err != nil {
			panic(err) // it is built in
		}
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", f.kind)
			w.Header().Set("Content-Security-Policy", strict)
			_, _ = w.Write(b)
		})
	}
}
