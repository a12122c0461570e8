package exchange_test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The script queries traces with Perfetto's own trace processor, the part of its page that
// reads traces. It is third-party: .ci/install fetches a built one, WebAssembly for the page's
// worker, into the user's cache, and it is run in Node.
//
//go:embed testdata/processor.mjs
var processorScript []byte

// answerRow is an answer's row, by column. Integers come as text: nanoseconds since 1970 are
// too large for a number of JavaScript.
type answerRow map[string]any

// findProcessor returns the folder of the trace processor. Without it the test is skipped, or fails
// where WATTMARK_REQUIRE_TOOLS=1.
func findProcessor(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("WATTMARK_TRACE_PROCESSOR")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "wattmark", "trace-processor")
	}
	_, err := os.Stat(filepath.Join(dir, "trace_processor.wasm")) // #nosec G703 -- the user of the tests names it
	if err == nil {
		_, err = exec.LookPath("node")
	}
	if err == nil {
		return dir
	}
	why := fmt.Sprintf("no Perfetto trace processor "+
		"(.ci/install fetches it; WATTMARK_TRACE_PROCESSOR names its folder): %v", err)
	if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// askProcessor opens a trace and returns the answers to queries in the processor's SQL. A query
// that it refuses, or a trace that it cannot open, fails the test.
func askProcessor(t testing.TB, trace []byte, queries ...string) [][]answerRow {
	t.Helper()
	dir, tmp := findProcessor(t), t.TempDir()
	run, file := filepath.Join(tmp, "processor.mjs"), filepath.Join(tmp, "trace")
	asked, err := json.Marshal(queries)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{run: processorScript, file: trace} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", run, dir, file)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(asked), &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the trace processor: %v\n%s", err, said.Bytes())
	}
	var answers [][]answerRow
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return answers
}

// traceFaults is a query for the errors in a trace, and for lost parts of it.
const traceFaults = `SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0`
