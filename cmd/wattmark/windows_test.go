//go:build linux

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/report"
)

// A server in Python names its requests' stages, on two threads; one never ends. A client over HTTP adds a window to
// the task that was measured.
func TestWindowsOfARunningServer(t *testing.T) {
	t.Parallel()
	python := tool(t, "python3")
	source, err := filepath.Abs("../../api/python/src")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1")
	const server = `
import threading, time, wattmark
def serve(i):
    with wattmark.window("r%d" % i, "prefill", "chat") as w:
        time.sleep(0.05)
        w.count(tokens=100)
    w = wattmark.window(id="r%d" % i, stage="decode", cls="chat")
    for _ in range(5):
        time.sleep(0.02)
        w.count(tokens=1)
    w.end(requests=1)
    w.end()
all = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
for x in all: x.start()
for x in all: x.join()
lost = wattmark.window("lost")
`
	p := r.run("--name", "serve", "--", python, "-c", server)
	if code := p.wait(t); code != 0 {
		t.Fatal("exit code", code)
	}
	var x report.Report
	object(t, inside(t, "show", "1", "--windows", "--json", "--db", r.db).ok(t).out, &x)
	w := x.Windows
	if w == nil || len(w.Windows) != 8 || len(w.Summary) != 3 || len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "never ended") {
		t.Fatalf("%+v", w)
	}
	whole, decode := &w.Summary[0], &w.Summary[1]
	if whole.Windows != 4 || !(whole.Energy > 0 && whole.U > 0 && float64(whole.Energy) < *x.EnergyJ) || decode.Stage != "decode" {
		t.Errorf("%+v of %v J", whole, x.EnergyJ)
	}
	if len(decode.Per) != 2 || decode.Per[1].Unit != "tokens" || decode.Per[1].Count != 20 || !(decode.Per[1].Energy > 0) {
		t.Errorf("decode: %+v", decode)
	}
	if s := w.Served; s == nil || s.Valid != 0 || s.Requests != 4 || s.Output != 420 || !strings.Contains(s.Reasons[0], "never ended") {
		t.Errorf("served: %+v", s)
	}
	text := inside(t, "show", "1", "--windows", "--no-plot", "--db", r.db).ok(t).out
	for _, want := range []string{"Energy by window", "prefill", "decode", "(requests)", "/token", "never ended"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not told:\n%s", want, text)
		}
	}
	url := r.pageOf()
	call := func(method, path, body string, to any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		said, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(said, to) != nil {
			t.Fatalf("%s: %v %s", path, err, said)
		}
	}
	var begun, ended struct {
		Window string `json:"window"`
	}
	call("POST", "/v1/tasks/1/windows", `{"id":"late","class":"batch"}`, &begun)
	call("POST", "/v1/tasks/1/windows/"+begun.Window+"/end", `{"counts":{"requests":1}}`, &ended)
	var got struct {
		Sums []struct {
			Class   string `json:"class"`
			Unknown string `json:"windows_without_energy"`
		} `json:"sums"`
		Windows []struct{ ID string } `json:"windows"`
	}
	call("GET", "/v1/tasks/1/windows", "", &got)
	if len(got.Windows) != 9 || got.Sums[0].Class != "batch" || got.Sums[0].Unknown != "1" {
		t.Errorf("%+v", got) // it began when the capture had ended
	}
	const panel = `document.querySelector('[aria-label="Windows of a server"]')`
	b := openPage(t, url)
	b.visit("#/task/1", panel)
	says[bool](b, `(`+panel+`.open = true)`)
	b.until(panel + `.querySelectorAll('tbody tr').length === 4 && /decode\s+4\s[^]*J by requests, .*J by tokens/.test(` + panel + `.innerText) && ` + panel + `.innerText.includes('never ended')`)
	says[bool](b, `(`+panel+`.scrollIntoView(), true)`)
	b.shot("windows")
}
