package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi2"

	"github.com/wattmark/wattmark/api/internal/testdb"
	"github.com/wattmark/wattmark/store"
)

// row is a request of a path, and what is to come of it.
type row struct {
	path, body string
	status     int
	says       string // is in the answer, or in the message of a refusal
}

func good(path, says string) row { return row{path, "", 200, says} }

// rows has the requests of each operation of the OpenAPI file, in the order in which
// the operations are tried: those that change something come last.
var rows = []struct {
	operation string
	rows      []row
}{
	{"GET /v1/tasks", []row{
		good("/v1/tasks", "3 2 1"), good("/v1/tasks?page_size=1", "3"), good("/v1/tasks?name=*x*", "2"), good("/v1/tasks?name=%E6%A0%B8*", ""),
		good("/v1/tasks?user=ada&order=TASK_ORDER_LAUNCHED&ascending=true", "1 2"),
		good("/v1/tasks?states=TASK_STATE_COMPLETE&states=TASK_STATE_RUNNING", "3 2 1"), good("/v1/tasks?verdicts=VERDICT_VOID", ""),
		good("/v1/tasks?since=2026-03-04T06:00:00Z&until=2026-03-04T06:30:00Z", "2"), good("/v1/tasks?min_energy_j=1&max_duration_s=0.9&with_totals=true", "3 2 1"),
		good("/v1/tasks?read_mask=task_id,energy,tags&gpu=h200", "3 2 1"), good("/v1/tasks?name='%3BDROP%20TABLE%20task--", ""),
		good("/v1/tasks?user=bob&job=&group_id=0&min_duration_s=0.001&max_energy_j=1e9", "3"),
		good("/v1/tasks?tags=node=a3&tags=cooler", "1"), good("/v1/tasks?tags=node%3D%E6%A0%B8", "2"), good("/v1/tasks?without_tags=cooler", "3 2"),
		good("/v1/tasks?search=GEM+wat", "1"), good("/v1/tasks?search=%22%20OR%20--", ""), good("/v1/tasks?tags=x'%3B--", ""),
		{"/v1/tasks?nmae=x", "", 400, "nmae"},
		{"/v1/tasks?energy.bogus=1", "", 400, "energy.bogus"},
		{"/v1/tasks?page_size=many", "", 400, "page_size"},
		{"/v1/tasks?page_size=99999999999", "", 400, "page_size"},
		{"/v1/tasks?page_token=x", "", 400, "page_token"},
		{"/v1/tasks?since=yesterday", "", 400, "since"},
		{"/v1/tasks?states=BUSY", "", 400, "states"},
		{"/v1/tasks?name=" + strings.Repeat("*a", 30), "", 400, "name"},
		{"/v1/tasks?name=" + strings.Repeat("a", 40_000), "", 414, "query"},
		{"/v1/tasks?name=%ff", "", 400, "UTF-8"},
		{"/v1/tasks?read_mask=task_id,nope", "", 400, "nope"},
		{"/v1/tasks?read_mask=tags.node", "", 400, "tags.node"},
		{"/v1/tasks?min_energy_j=NaN", "", 400, "min_energy_j"},
		{"/v1/tasks?tags=a%20b", "", 400, "tags[0]"},
		{"/v1/tasks?without_tags=ok&without_tags==", "", 400, "without_tags[1]"},
		{"/v1/tasks?search=" + strings.Repeat("a+", 33), "", 400, "search"},
		{"/v1/tasks?tags=" + strings.Repeat("k", 65), "", 400, "tags[0]"},
		{"/v1/tasks?" + strings.Repeat("tags=k&", 33), "", 400, "tags"},
		{"/v1/tasks?search=%00", "", 400, "search"},
		{"/v1/tasks/%80", "", 400, "UTF-8"},
	}},
	{"GET /v1/tasks/{task_id}", []row{
		good("/v1/tasks/1", `"tags":{"cooler":"water","node":"a3"}`), good("/v1/tasks/1?result=1", `"fan at 40 %"`), good("/v1/tasks/1", `"git_commit":"abc"`), good("/v1/tasks/3", `"tags":{}`),
		{"/v1/tasks/x", "", 400, "task_id"},
		{"/v1/tasks/0", "", 400, "task_id"},
		{"/v1/tasks/99", "", 404, "no such task"},
		{"/v1/tasks/99999999999999999999", "", 400, "task_id"},
	}},
	{"GET /v1/users", []row{good("/v1/users", `"user":"ada"`), {"/v1/users?x=1", "", 400, `"x"`}}},
	{"GET /v1/tasks/{task_id}/samples", []row{
		good("/v1/tasks/1/samples?limit=2000", "power_w"), good("/v1/tasks/1/samples?raw=true&limit=1", "payload"), {"/v1/tasks/1/samples?result=7", "", 404, "no such"},
	}},
	{"GET /v1/tasks/{task_id}/energy", []row{
		good("/v1/tasks/1/energy", "energy_u_j"), good("/v1/tasks/1/energy?from_s=0.2&to_s=0.3", `"from_s":0.2`), {"/v1/tasks/1/energy?from_s=1&to_s=0", "", 400, "to_s"},
	}},
	{"GET /v1/tasks/{task_id}/envelope", []row{
		good("/v1/tasks/1/envelope", "aux_12v"), good("/v1/tasks/1/envelope?columns=3&rails=slot&rails=total&from_s=0.1&to_s=0.5", `"rail":"slot"`),
		{"/v1/tasks/1/envelope?columns=-1", "", 400, "columns"},
		{"/v1/tasks/1/envelope?rails=nope", "", 400, "rails[0]"},
	}},
	{"GET /v1/tasks/{task_id}/timeline", []row{good("/v1/tasks/1/timeline?max_slices=5", "gemm"), {"/v1/tasks/1/timeline?max_slices=99999", "", 400, "max_slices"}}},
	{"GET /v1/tasks/{task_id}/kernels", []row{
		good("/v1/tasks/1/kernels", `"name":"gemm"`), good("/v1/tasks/3/kernels", `"lines":[]`), {"/v1/tasks/1/kernels?result=9", "", 404, "no such"}, {"/v1/tasks/0/kernels", "", 400, "task_id"},
	}},
	{"GET /v1/tasks/{task_id}/readings", []row{
		good("/v1/tasks/1/readings", "from_s"), good("/v1/tasks/1/readings?methods=nvml.instant&max_readings=10&from_s=0.1&to_s=0.2", "from_s"),
		{"/v1/tasks/99/readings", "", 404, "no such task"},
	}},
	{"GET /v1/tasks/{task_id}/ranges", []row{
		good("/v1/tasks/1/ranges", `"path":"step/forward"`), good("/v1/tasks/2/ranges", `"ranges":[]`), good("/v1/tasks/1/ranges?from_s=0.1&to_s=0.2&max_spans=5", "spans"),
		{"/v1/tasks/1/ranges?max_spans=20001", "", 400, "max_spans"},
		{"/v1/tasks/99/ranges", "", 404, "no such task"},
	}},
	{"POST /v1/benches/{bench}/recording", []row{
		{"/v1/benches/a/recording", `{"name":"idle"}`, 200, `"task_id":"3"`},
		{"/v1/benches/a/recording", `{"name":"again"}`, 400, "cannot be done now"},
		{"/v1/benches/a/recording", `{"name":" "}`, 400, "name"},
		{"/v1/benches/a/recording", `{"nam":"x"}`, 400, "nam"},
		{"/v1/benches/rack/recording", `{"name":"x"}`, 404, "no such bench"},
	}},
	{"DELETE /v1/benches/{bench}/recording", []row{{"/v1/benches/a/recording", "", 200, `"task_id":"3"`}, {"/v1/benches/a/recording", "", 400, "cannot be done now"}}},
	// What is watched live and what analysis found, with what there is to find: see live.
	{"GET /v1/benches", []row{good("/v1/benches", `"holder":"ada@lab"`)}},
	{"GET /v1/benches/{bench}", []row{good("/v1/benches/a", `"name":"a"`), {"/v1/benches/rack", "", 404, "--monitor"}}},
	{"GET /v1/benches:watch", []row{{"/v1/benches:watch?every=-1s", "", 400, "every"}, {"/v1/benches:watch?bench=rack", "", 404, "no such bench"}}},
	{"GET /v1/sensors", []row{good("/v1/sensors", `"instant"`)}},
	{"GET /v1/sensors:errors", []row{good("/v1/sensors:errors", `"sma"`)}},
	{"GET /v1/tasks/{task_id}/validation", []row{{"/v1/tasks/99/validation", "", 404, "no such task"}, {"/v1/tasks/0/validation", "", 400, "task_id"}}},
	{"GET /v1/tasks/{task_id}/swings", []row{
		good("/v1/tasks/1/swings", `"mean_w":100`),
		{"/v1/tasks/1/swings?step=gemm", "", 400, "no kernel"},
		{"/v1/tasks/99/swings", "", 404, "no such task"},
	}},
	{"GET /v1/comparison", []row{
		good("/v1/comparison?a=1&a=2&b=3&work=token=5", `"verdict":"1 2 against 3, token=5"`),
		{"/v1/comparison?a=1", "", 400, "b: 0 tasks"},
		{"/v1/comparison?a=1&b=1", "", 400, "on both sides"},
		{"/v1/comparison?a=1&b=2" + strings.Repeat("&work=x=1", 9), "", 400, "work"},
	}},
	{"GET /v1/validations", []row{good("/v1/validations", `"verdict":"high"`), {"/v1/validations?page_size=-1", "", 400, "page_size"}}},
	{"GET /v1/aggregate", []row{
		good("/v1/aggregate?by=AGGREGATE_BY_USER", `"key":"ada"`), good("/v1/aggregate?by=AGGREGATE_BY_DAY&utc_offset_min=-60&limit=1", "2026-03-04"),
		good("/v1/aggregate?by=AGGREGATE_BY_GPU", "H200"), good("/v1/aggregate?by=AGGREGATE_BY_KERNEL", "rows"), good("/v1/aggregate?by=AGGREGATE_BY_JOB", "rows"),
		good("/v1/aggregate?by=AGGREGATE_BY_TAG&tag_key=node&search=gemm", `"key":"a3"`), good("/v1/aggregate?by=AGGREGATE_BY_TAG&tag_key=node&without_tags=node", `"row_count":"1"`),
		{"/v1/aggregate", "", 400, "by"},
		{"/v1/aggregate?by=AGGREGATE_BY_TAG", "", 400, "tag_key"},
		{"/v1/aggregate?by=AGGREGATE_BY_USER&tag_key=x", "", 400, "tag_key"},
	}},
	{"GET /v1/tasks:watch", []row{{"/v1/tasks:watch?resume_token=x", "", 400, "resume_token"}, {"/v1/tasks:watch?tags=a%20b", "", 400, "tags[0]"}}}, // and TestWatch
	{"PATCH /v1/tasks/{task_id}", []row{
		{"/v1/tasks/3", `{"pinned":true}`, 200, `"pinned":true`},
		{"/v1/tasks/3", `{"tags":{"a":"1","узел":"核"}}`, 200, `"tags":{"a":"1","узел":"核"}`},
		{"/v1/tasks/3?update_mask=tags.b,tags.a", `{"tags":{"b":"2"}}`, 200, `"tags":{"b":"2","узел":"核"}`},
		{"/v1/tasks/3?update_mask=*", `{}`, 200, `"tags":{},"pinned":false`},
		{"/v1/tasks/3?task.pinned=true", `{"pinned":true}`, 400, "task.pinned"},
		{"/v1/tasks/3", `{}`, 400, "update_mask"},
		{"/v1/tasks/3", `{"name":"x"}`, 400, "name"},
		{"/v1/tasks/3", `{"tags":{"a b":"1"}}`, 400, "task.tags"},
		{"/v1/tasks/3", `{"pined":true}`, 400, "pined"},
		{"/v1/tasks/3?update_mask=tags.a%20b", `{}`, 400, "update_mask.paths[0]"},
		{"/v1/tasks/99", `{"pinned":true}`, 404, "no such task"},
		{"/v1/tasks/0", `{"pinned":true}`, 400, "task_id"},
		{"/v1/tasks/3", `{"tags":{"a":"` + strings.Repeat("v", 5000) + `"}}`, 400, "task.tags"},
		{"/v1/tasks/3", `{"tags":{"a":"\u001b[2J"}}`, 400, "task.tags"},
	}},
	{"GET /v1/tasks/{task_id}/windows", []row{
		good("/v1/tasks/1/windows", `"class":"chat"`), good("/v1/tasks/1/windows?max_windows=1", `"windows_left_out":"1"`),
		{"/v1/tasks/1/windows?max_windows=20001", "", 400, "max_windows"},
		{"/v1/tasks/99/windows", "", 404, "no such task"},
	}},
	{"POST /v1/tasks/{task_id}/windows", []row{
		{"/v1/tasks/3/windows", `{"id":"r1","stage":"decode"}`, 200, `"window":"1"`},
		{"/v1/tasks/3/windows", `{"id":"r1","at_ns":-5}`, 400, "begin_ns"},
		{"/v1/tasks/3/windows", `{"ID":"r1"}`, 400, "ID"},
		{"/v1/tasks/99/windows", `{"id":"r1"}`, 404, "no such task"},
	}},
	{"POST /v1/tasks/{task_id}/windows:record", []row{
		{"/v1/tasks/3/windows:record", `{"windows":[{"id":"r1","begin_ns":"1","end_ns":"2","counts":{"tokens":7}}]}`, 200, "{}"},
		{"/v1/tasks/3/windows:record", `{"windows":[{"begin_ns":1,"end_ns":2},{"begin_ns":2,"end_ns":1}]}`, 400, "windows[1]"},
		{"/v1/tasks/3/windows:record", `{}`, 400, "want 1 to 10000"},
		{"/v1/tasks/99/windows:record", `{"windows":[{"begin_ns":1,"end_ns":2}]}`, 404, "no such task"},
	}},
	{"POST /v1/tasks/{task_id}/windows/{window}/end", []row{
		{"/v1/tasks/3/windows/1/end", `{"counts":{"tokens":-1}}`, 400, "tokens"},
		{"/v1/tasks/3/windows/1/end", `{"counts":{"tokens":7}}`, 200, "{}"},
		{"/v1/tasks/3/windows/1/end", `{}`, 404, "has ended"},
		{"/v1/tasks/3/windows/x/end", `{}`, 400, "window"},
	}},
	{"POST /v1/tasks/{task_id}/notes", []row{
		{"/v1/tasks/3/notes", `{"text":"風扇 at 40 %"}`, 200, "風扇"},
		{"/v1/tasks/3/notes", `{"number":9,"text":"again"}`, 200, `"number":2`},
		{"/v1/tasks/3/notes", `{"text":" "}`, 400, "note.text"},
		{"/v1/tasks/3/notes", `{"txt":"x"}`, 400, "txt"},
		{"/v1/tasks/99/notes", `{"text":"x"}`, 404, "no such task"},
	}},
	{"DELETE /v1/tasks/{task_id}/notes/{number}", []row{
		{"/v1/tasks/3/notes/1", "", 200, "{}"}, {"/v1/tasks/3/notes/1", "", 404, "no such note"}, {"/v1/tasks/3/notes/0", "", 400, "number"}, {"/v1/tasks/3/notes/-1", "", 400, "number"},
	}},
	{"POST /v1/tasks/{task_id}/trim", []row{
		{"/v1/tasks/3/trim", `{"from_s":0.2,"to_s":0.3}`, 200, `"task_id":"3"`},
		{"/v1/tasks/3/trim", `{"from_s":7,"to_s":8}`, 400, "from_s"},
		{"/v1/tasks/3/trim", `{}`, 400, "to_s"},
		{"/v1/tasks/3/trim", `{"form_s":1}`, 400, "form_s"},
		{"/v1/tasks/99/trim", `{"from_s":0.2,"to_s":0.3}`, 404, "no such task"},
	}},
	{"DELETE /v1/tasks/{task_id}", []row{{"/v1/tasks/2", "", 200, `"deleted":"1"`}, {"/v1/tasks/99", "", 404, "no such task"}, {"/v1/tasks/1?user=ada", "", 400, "user"}, {"/v1/tasks/1?force=maybe", "", 400, "force"}}},
	{"POST /v1/tasks:delete", []row{
		{"/v1/tasks:delete", `{"user":"ada"}`, 200, `"deleted":"1"`},
		{"/v1/tasks:delete", `{"usr":"ada"}`, 400, "usr"},
		{"/v1/tasks:delete", `{"user":`, 400, ""},
		{"/v1/tasks:delete", `{"user":"ada","name":"x"}`, 400, ""},
		{"/v1/tasks:delete?user=ada", `{"name":"x"}`, 400, "user"},
		{"/v1/tasks:delete", `{}`, 400, "by"},
		{"/v1/tasks:delete", `{"user":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "1 MiB"},
	}},
}

// Every path and method of the OpenAPI file, asked over HTTP, answers as the file
// says, with what was asked and with refusals; and no other method is there.
func TestAnswersAreAsTheOpenAPIFileSays(t *testing.T) {
	s := newSite(t, Options{Loopback: true})
	s.label()
	s.live()
	var doc openapi2.T
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, o := range rows {
		tried[o.operation] = true
		method, path, _ := strings.Cut(o.operation, " ")
		if doc.Paths[path] == nil || doc.Paths[path].Operations()[method] == nil {
			t.Errorf("%s has rows, and is not in the OpenAPI file", o.operation)
			continue
		}
		for _, r := range o.rows {
			s.try(method, r)
		}
	}
	s.watch()
	for path, item := range doc.Paths {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			has := item.Operations()[method] != nil
			if has && !tried[method+" "+path] {
				t.Errorf("%s %s is in the OpenAPI file, and has no row: add one", method, path)
			}
			if !has {
				at := strings.NewReplacer("{task_id}", "1", "{number}", "1", "{bench}", "a").Replace(path)
				if status, got := s.do(method, at, "{}", map[string]string{"Content-Type": "application/json"}); status != 405 {
					t.Errorf("%s %s: %d %s, want 405", method, at, status, got)
				}
			}
		}
	}
}

// label gives the tasks what there is to find.
func (s *site) label() {
	s.Helper()
	ctx := s.Context()
	_, noteErr := s.db.AddNote(ctx, 1, testdb.Launched, "fan at 40 %")
	for _, err := range []error{
		noteErr, testdb.Record(ctx, s.db, 10),
		s.db.PutKernels(ctx, 1, []store.Kernel{{Name: "gemm", Start: testdb.Launched.Add(3e8), End: testdb.Launched.Add(4e8)}}),
		s.db.SetTags(ctx, 1, map[string]string{"node": "a3", "cooler": "water"}, nil),
		s.db.SetTags(ctx, 2, map[string]string{"node": "核"}, nil),
		s.db.PutProvenance(ctx, 1, store.Provenance{Host: "gpu1", OS: "linux/amd64", Version: "1", GitCommit: "abc", GitDirty: true, Command: []string{"./gemm", "4096"}}),
	} {
		if err != nil {
			s.Fatal(err)
		}
	}
}

// try asks a row's request. A list is known by its tasks' numbers, any other answer
// by what is in it.
func (s *site) try(method string, r row) {
	s.Helper()
	out := s.ask(method, r.path, r.body, r.status)
	if list, ok := out["tasks"].([]any); ok && strings.HasPrefix(r.path, "/v1/tasks") {
		var ids []string
		for _, x := range list {
			ids = append(ids, fmt.Sprint(x.(map[string]any)["task_id"]))
		}
		if got := strings.Join(ids, " "); got != r.says {
			s.Errorf("%s: got %q, want %q", r.path, got, r.says)
		}
		return
	}
	got, err := json.Marshal(out)
	if err != nil {
		s.Fatal(err)
	}
	if m, refused := out["message"].(string); refused && r.status != http.StatusOK {
		got = []byte(m)
	}
	if !strings.Contains(string(got), r.says) && !slices.Contains(fields(out), r.says) {
		s.Errorf("%s %.80s: %.300s does not say %q", method, r.path, got, r.says)
	}
}

// fields are the parts of an answer as the server may have ordered them otherwise.
func fields(out map[string]any) (texts []string) {
	task, _ := out["task"].(map[string]any)
	b, _ := json.Marshal(map[string]any{"tags": task["tags"], "pinned": task["pinned"]})
	return []string{fmt.Sprintf(`"tags":%s,"pinned":%v`, tagText(task), task["pinned"]), string(b)}
}

func tagText(task map[string]any) string {
	b, _ := json.Marshal(task["tags"])
	return string(b)
}

// What is at no path, or asked in a way that no path has, is refused in the same form.
func TestRefusals(t *testing.T) {
	s := newSite(t, Options{Loopback: true})
	s.try("GET", row{"/v2/tasks", "", 404, ""})
	s.try("PUT", row{"/v1/tasks/1", "{}", 405, "PUT"})
}
