package page

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
)

// Every file is served with its type and policy, and not again when it is known.
func TestFiles(t *testing.T) {
	if len(files()) != 5 {
		t.Fatalf("%d files", len(files()))
	}
	for name := range files() {
		w := httptest.NewRecorder()
		Handler().ServeHTTP(w, httptest.NewRequest("GET", name, nil))
		h := w.Header()
		if w.Code != 200 || w.Body.Len() == 0 || h.Get("Content-Type") == "" || h.Get("Content-Security-Policy") != Policy || h.Get("ETag") == "" {
			t.Errorf("%s: %d, %d bytes, %v", name, w.Code, w.Body.Len(), h)
		}
		r := httptest.NewRequest("GET", name, nil)
		r.Header.Set("If-None-Match", `"other", `+h.Get("ETag"))
		w = httptest.NewRecorder()
		if Handler().ServeHTTP(w, r); w.Code != 304 || w.Body.Len() != 0 {
			t.Errorf("%s, known already: %d, %d bytes", name, w.Code, w.Body.Len())
		}
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "/assets/"+fingerprint+"/page.js", nil))
	if w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("below the fingerprint: %d, %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder()
	if Handler().ServeHTTP(w, httptest.NewRequest("GET", "/assets/000000000000/page.js", nil)); w.Code != 404 {
		t.Errorf("below another's fingerprint: %d", w.Code)
	}
	w = httptest.NewRecorder()
	if Handler().ServeHTTP(w, httptest.NewRequest("GET", "/assets/../page.go", nil)); w.Code != 404 {
		t.Errorf("outside of the files: %d", w.Code)
	}
}

// The file that browsers get is made of the modules as they are now, and a view is there after few requests.
func TestBundleIsOfTheModules(t *testing.T) {
	made := api.Build(api.BuildOptions{
		EntryPoints: []string{"static/js/main.js"}, Bundle: true, Format: api.FormatESModule, Target: api.ES2022,
		MinifyWhitespace: true, MinifySyntax: true, MinifyIdentifiers: true, LegalComments: api.LegalCommentsNone,
	})
	if len(made.Errors) > 0 || len(made.OutputFiles) != 1 {
		t.Fatalf("%+v", made.Errors)
	}
	if got := files()["/assets/page.js"].content; !bytes.Equal(got, made.OutputFiles[0].Contents) {
		t.Error("static/page.js is of other modules: go generate ./api/web/page")
	}
	if n := strings.Count(string(files()["/"].content), `"/assets/`); n > 6 {
		t.Errorf("the page names %d files", n)
	}
}

// The page's arithmetic, tried without a browser: units.test.js.
func TestUnits(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if out, err := exec.CommandContext(t.Context(), node, "--test", ".").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What could turn a name that somebody typed into markup or script is not used, nor
// what the policy forbids.
func TestNothingBecomesMarkup(t *testing.T) {
	bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|javascript:|https?://`)
	inline := regexp.MustCompile(` style="| on[a-z]+="|<style|<script>`)
	for name, f := range files() {
		if m := bad.FindString(strings.ReplaceAll(string(f.content), "http://www.w3.org/2000/svg", "")); m != "" {
			t.Errorf("%s has %s", name, m)
		}
		if m := inline.FindString(string(f.content)); m != "" && strings.HasPrefix(f.kind, "text/html") {
			t.Errorf("%s has %s, which the policy forbids", name, m)
		}
	}
}
