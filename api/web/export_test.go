package web

import (
	"io"
	"net/http"
	"testing"
)

// Exports are files; what is wrong is said before one begins, and one that breaks off never looks whole.
func TestExports(t *testing.T) {
	s := newSite(t, Options{Loopback: true})
	for _, c := range []struct {
		at     string
		status int
		says   string
	}{
		{"1/export?format=csv", 200, "gemm {0 s 0 s}"},
		{"1/export?format=csv&from_s=0.2&to_s=0.3", 200, "gemm {200 ms 300 ms}"},
		{"1/export?format=exe", 400, ""},
		{"1/export?format=csv&from_s=7&to_s=8", 400, ""},
		{"1/export?format=csv&from_s=3&to_s=2", 400, ""},
		{"1/export?format=csv&from_s=x", 400, ""},
		{"1/export?format=csv&raw=1", 400, ""},
		{"x/export?format=csv", 400, ""},
		{"99/export?format=csv", 404, ""},
	} {
		res, err := http.Get(s.url + "/v1/tasks/" + c.at)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.status || c.says != "" && string(body) != c.says || res.StatusCode == 200 != (res.Header.Get("Content-Disposition") == `attachment; filename="task-1.csv"`) {
			t.Errorf("%s: %s %q %v", c.at, res.Status, body, err)
		}
	}
	res, err := http.Get(s.url + "/v1/tasks/1/export?format=csv&from_s=0.6&to_s=0.7")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err == nil || n < 1<<20 {
		t.Errorf("a file that breaks off: %d bytes, %v", n, err)
	}
}
