// Package page is the web page of wattmark host: HTML, style sheets and
// JavaScript modules in static, and their handler. Nothing comes from elsewhere.
//
//	GET /           the page; its view stands behind # in the address
//	GET /assets/…   its files; below /assets/FINGERPRINT/ they may be kept for good
//
// A browser gets all modules as one file, static/page.js, which go generate makes of them.
//
// The page asks the JSON API of the same origin (docs/host.md).
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:generate go tool esbuild static/js/main.js --bundle --format=esm --target=es2022 --minify --legal-comments=none --log-level=warning --outfile=static/page.js

//go:embed static/index.html static/icon.svg static/page.js static/js/early.js static/css
var static embed.FS

// Policy is the page's Content-Security-Policy: scripts, styles and data come from
// this origin's files and calls alone, nothing stands in the markup itself, and
// no text can become markup (Trusted Types).
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types " +
	"'none'"

// types are the media types of the files, by their ends. The machine's own table
// may know none of them, and nosniff makes a wrong one fatal.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file is one file as it is sent.
type file struct {
	content []byte
	kind    string // media type
	etag    string
}

func newFile(name string, content []byte) file {
	sum := sha256.Sum256(content)
	return file{content, types[path.Ext(name)], `"` + hex.EncodeToString(sum[:12]) + `"`}
}

// files are all files by their path in the address, made once.
var files = sync.OnceValue(func() map[string]file {
	out := map[string]file{}
	read := func(name string) []byte {
		content, err := static.ReadFile("static/" + name)
		if err != nil {
			panic(err) // the files are part of the program
		}
		return content
	}
	for _, name := range []string{"icon.svg", "page.js", "js/early.js"} {
		out["/assets/"+name] = newFile(name, read(name))
	}
	// The style sheets, in the order in which they count, as one: nothing is painted before the last
	// one is there.
	out["/assets/style.css"] = newFile("style.css",
		slices.Concat(read("css/base.css"), read("css/parts.css"), read("css/plot.css"), read("css/live.css")))
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(out)) {
		all.Write(out[name].content)
	}
	fingerprint = hex.EncodeToString(all.Sum(nil)[:6])
	below := `"/assets/` + fingerprint
	own := strings.NewReplacer(`"/assets/`, below+"/")
	out["/"] = newFile("index.html", []byte(own.Replace(string(read("index.html")))))
	return out
})

// fingerprint is of all files, and known when they are made.
var fingerprint string

// Handler serves the page at / and its files below /assets/. The page is asked for again each time, so that an update
// of the program shows at once; its files have the fingerprint in their address, and are kept.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, cache := files(), "no-cache"
		name := r.URL.Path
		if own := strings.Replace(name, "/assets/"+fingerprint+"/", "/assets/", 1); own != name {
			name, cache = own, "private, max-age=31536000, immutable"
		}
		f, ok := all[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", Policy)
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", cache)
		h.Set("ETag", f.etag)
		if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(f.content)
	})
}
