package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/wattmark/wattmark/internal/chromium"
)

// browser opens a tab.
func browser(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), chromium.Patience)
	t.Cleanup(cancel)
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium.Path(t)), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.DisableGPU)
	ctx, cancel = chromedp.NewExecAllocator(ctx, o...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// pageCalls is what a page needs to speak gRPC-Web: a frame is a flag, a length of four
// bytes and a message; a flag of 128 marks the trailers, which are text. Messages are
// written and read by their wire format.
const pageCalls = `
const frame = message => { const b = new Uint8Array(5 + message.length); new DataView(b.buffer).setUint32(1, message.length); b.set(message, 5); return b; };
const ask = (call, message, o = {}) => fetch(o.base ? o.base + '/wattmark.v1.TaskService/' + call : '/wattmark.v1.TaskService/' + call,
	{method: 'POST', headers: {'Content-Type': 'application/grpc-web+proto', 'X-Grpc-Web': '1'}, body: frame(message), signal: o.signal});
async function* frames(answer) {
	const reader = answer.body.getReader();
	let kept = new Uint8Array(0);
	for (;;) {
		while (kept.length >= 5) {
			const n = new DataView(kept.buffer, kept.byteOffset).getUint32(1);
			if (kept.length < 5 + n) break;
			yield {flag: kept[0], data: kept.slice(5, 5 + n)};
			kept = kept.slice(5 + n);
		}
		const {done, value} = await reader.read();
		if (done) return;
		const more = new Uint8Array(kept.length + value.length);
		more.set(kept); more.set(value, kept.length); kept = more;
	}
}
function fields(b) {
	const out = []; let at = 0;
	const varint = () => { let v = 0, m = 1; for (;;) { const x = b[at++]; v += (x & 127) * m; m *= 128; if (x < 128) return v; } };
	while (at < b.length) {
		const tag = varint(), kind = tag & 7;
		if (kind == 0) out.push([tag >> 3, varint()]);
		else if (kind == 2) { const n = varint(); out.push([tag >> 3, b.slice(at, at + n)]); at += n; }
		else { out.push([tag >> 3, null]); at += kind == 1 ? 8 : 4; }
	}
	return out;
}
const all = (list, number) => list.filter(f => f[0] == number).map(f => f[1]);
const text = b => new TextDecoder().decode(b);
`

// answers is what the page found out.
type answers struct {
	Names    []string `json:"names"`    // of the tasks of ListTasks
	Status   string   `json:"status"`   // its trailers
	Samples  int      `json:"samples"`  // that ReadSamples streamed
	Batches  int      `json:"batches"`  // in which
	Streamed string   `json:"streamed"` // its trailers
	Watching int      `json:"watching"` // the first event of a watch that was left then
	Refused  string   `json:"refused"`  // trailers or headers of a request that cannot be
}

const onThePage = `(async () => {
	const out = {names: [], samples: 0, batches: 0};
	for await (const f of frames(await ask('ListTasks', [0x0a, 3, 97, 100, 97]))) {   // user: "ada"
		if (f.flag & 128) out.status = text(f.data);
		else for (const task of all(fields(f.data), 1)) out.names.push(text(all(fields(task), 2)[0]));
	}
	for await (const f of frames(await ask('ReadSamples', [0x08, 1]))) {              // task_id: 1
		if (f.flag & 128) { out.streamed = text(f.data); continue; }
		for (const batch of all(fields(f.data), 1)) { out.batches++; out.samples += all(fields(batch), 3)[0].length / 8; }  // power_w
	}
	const leave = new AbortController();
	for await (const f of frames(await ask('WatchTasks', [], {signal: leave.signal}))) { out.watching = all(fields(f.data), 1)[0]; break; }
	leave.abort();
	const bad = await ask('GetTask', [0x08, 99]);
	out.refused = bad.headers.get('grpc-status') + ' ' + decodeURIComponent(bad.headers.get('grpc-message'));
	return out;
})()`

// A page in a real browser asks and streams in gRPC-Web's own frames; a page of
// another site is kept off.
func TestBrowserSpeaksGRPCWeb(t *testing.T) {
	s := newSite(t, Options{Loopback: true})
	ctx := browser(t)
	if err := chromedp.Do(ctx, chromedp.Navigate(s.url+"/healthz")); err != nil {
		t.Fatal(err)
	}
	got, err := chromedp.Run(ctx, chromedp.Evaluate[answers](pageCalls+onThePage, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(got.Names, " ") != "axpy gemm" || !strings.Contains(strings.ToLower(got.Status), "grpc-status: 0") {
		t.Errorf("ListTasks: %+v", got)
	}
	if got.Samples != 7901 || got.Batches < 2 || !strings.Contains(strings.ToLower(got.Streamed), "grpc-status: 0") {
		t.Errorf("ReadSamples: %+v", got)
	}
	if got.Watching != 1 || !strings.HasPrefix(got.Refused, "5 get task 99: ") {
		t.Errorf("WatchTasks, GetTask: %+v", got)
	}

	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<p>another site")) }))
	defer other.Close()
	if err := chromedp.Do(ctx, chromedp.Navigate(other.URL)); err != nil {
		t.Fatal(err)
	}
	const evil = `ask('DeleteTasks', [0x1a, 3, 97, 100, 97], {base: '%'}).then(a => 'answered ' + a.status, e => 'kept off')`
	said, err := chromedp.Run(ctx, chromedp.Evaluate[string](pageCalls+strings.Replace(evil, "%", s.url, 1), chromedp.EvalAwaitPromise))
	if err != nil || said != "kept off" {
		t.Errorf("another site's page: %q %v", said, err)
	}
	if tasks := s.ask("GET", "/v1/tasks", "", 200)["tasks"].([]any); len(tasks) != 3 {
		t.Errorf("%d tasks are left", len(tasks))
	}
}
