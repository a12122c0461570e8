package exchange

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/parquetfile"
)

// The files of a dataset beside those of each task.
const (
	crateFile    = "ro-crate-metadata.json"
	datasetTasks = "tasks.db"
)

//go:embed recompute.sql
var recomputeSQL []byte

// publishFlags are those of publish.
type publishFlags struct {
	output, title, text, creator, license string
	certificates                          []string
}

func publishCmd(a *cli.App) *cobra.Command {
	var f publishFlags
	c := cli.Command("publish TASK…", "Pack tasks as a dataset that others can recompute", cobra.MinimumNArgs(1),
		func(ctx context.Context, args []string) error { return publish(ctx, a, args, f) })
	fl := c.Flags()
	fl.StringVarP(&f.output, "output", "o", "", "folder to make")
	fl.StringVar(&f.title, "title", "", "name of the dataset")
	fl.StringVar(&f.text, "description", "", "what was measured (default: the tasks' names)")
	fl.StringVar(&f.creator, "creator", "", "who made it")
	fl.StringVar(&f.license, "license", "https://creativecommons.org/licenses/by/4.0/", "address of its licence")
	fl.StringArrayVar(&f.certificates, "certificate", nil, "certificate of a sensor to put in; may be given again")
	return a.HostFlag(a.JSONFlag(c))
}

// The rows of the dataset's tables; all times of day are ns since 1970, U is k = 2.
type (
	resultRow struct {
		Task     int64   `parquet:"task"`
		Name     string  `parquet:"name"`
		From     float64 `parquet:"from_s"`
		To       float64 `parquet:"to_s"`
		Energy   float64 `parquet:"energy_j"`
		U        float64 `parquet:"energy_u_j"`
		Coverage float64 `parquet:"coverage_factor"`
		Scans    int64   `parquet:"scans"`
		Lost     int64   `parquet:"scans_lost"`
		Gaps     int64   `parquet:"gaps"`
		Verdict  string  `parquet:"verdict"`
	}
	budgetRow struct {
		Task       int64   `parquet:"task"`
		Source     string  `parquet:"source"`
		U          float64 `parquet:"u_j"` // k = 1
		Systematic bool    `parquet:"systematic"`
	}
	// columnRow is a column of a rail's power in a task's rails.parquet: its values lie Behind after t_s.
	columnRow struct {
		Task   int64   `parquet:"task"`
		Column string  `parquet:"rail_column"`
		Behind float64 `parquet:"behind_s"`
	}
	lossRow struct {
		Task   int64  `parquet:"task"`
		Kind   string `parquet:"kind"`
		First  int64  `parquet:"first_scan"`
		Scans  int64  `parquet:"scans"`
		Exact  bool   `parquet:"exact"`
		Detail string `parquet:"detail"`
	}
	readingRow struct {
		Method string  `parquet:"method"`
		At     int64   `parquet:"at_ns"`
		Value  float64 `parquet:"value"`
	}
	kernelRow struct {
		Name  string `parquet:"name"`
		Start int64  `parquet:"start_ns"`
		End   int64  `parquet:"end_ns"`
	}
)

// publish writes the tasks into a new folder, which appears whole or not at all: as the
// tables of other programs, and as a task database that import dataset takes back.
func publish(ctx context.Context, a *cli.App, args []string, f publishFlags) error {
	if f.output == "" || f.output == "-" || f.title == "" || f.creator == "" {
		return cli.Usagef("name the folder with -o, the dataset with --title, and who made it with --creator")
	}
	db, err := a.OpenDB(ctx, args...)
	if err != nil {
		return err
	}
	defer db.Close()
	var tasks []*store.Task
	for _, arg := range args {
		t, err := a.Task(ctx, db, arg)
		if err == nil && (t.Result == nil || t.State == store.Running) {
			err = fmt.Errorf("task %d has no result to publish: it needs a window (wattmark trim)", t.ID)
		}
		if err != nil {
			return err
		}
		tasks = append(tasks, t)
	}
	a.Keep("no dataset was written")
	err = cli.WriteWhole(f.output, func(part string) error {
		if err := os.Mkdir(part, 0o777); err != nil {
			return err
		}
		ids := lists.Map(tasks, func(t *store.Task) store.TaskID { return t.ID })
		if _, err := db.Detach(ctx, filepath.Join(part, datasetTasks), ids, nil); err != nil {
			return err
		}
		if err := writeTables(ctx, a, part, db, tasks); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(part, "recompute.sql"), recomputeSQL, 0o666); err != nil {
			return err
		}
		for _, path := range f.certificates { // none replaces another, or a table
			b, err := os.ReadFile(path)
			if err == nil {
				err = auth.WriteNew(filepath.Join(part, filepath.Base(path)), b, 0o666)
			}
			if err != nil {
				return fmt.Errorf("--certificate %s: %w", path, err)
			}
		}
		return writeCrate(part, tasks, f)
	})
	if err != nil {
		return err
	}
	return printExported(a, tasks, exportFlags{format: "dataset", output: f.output})
}

// writeTables writes the tables of all tasks, and a folder task-N for each.
func writeTables(ctx context.Context, a *cli.App, dir string, db *store.DB, tasks []*store.Task) error {
	results, budgets, losses, columns := []resultRow{}, []budgetRow{}, []lossRow{}, []columnRow{}
	from := newCounted(a, db, "writing the dataset", tasks)
	defer from.bar.End()
	for _, t := range tasks {
		r, id := t.Result, int64(t.ID)
		verdict, _ := t.Verdict()
		var square float64
		for _, x := range r.Budget {
			square += float64(x.U * x.U)
			budgets = append(budgets, budgetRow{id, x.Source, float64(x.U), x.Systematic})
		}
		// Where a noise was seen in few readings, k is more than 2: the budget's lines alone do not give it.
		results = append(results, resultRow{
			id, t.Name, float64(r.From), float64(r.To), float64(r.Total.Energy), float64(r.Total.U),
			float64(r.Total.U) / math.Sqrt(square), int64(r.Samples), int64(r.Lost), int64(r.Gaps),
			verdict.Level.String(),
		})
		for _, e := range t.Events {
			losses = append(losses, lossRow{id, e.Kind.String(), int64(e.FirstScan), int64(e.Scans), e.Exact, e.Detail})
		}
		powers, err := writeTaskTables(ctx, filepath.Join(dir, fmt.Sprintf("task-%d", id)), from, t)
		if err != nil {
			return fmt.Errorf("task %d: %w", id, err)
		}
		for _, c := range powers {
			columns = append(columns, columnRow{id, c.Name, float64(c.Behind)})
		}
	}
	return errors.Join(parquet.WriteFile(filepath.Join(dir, "results.parquet"), results),
		parquet.WriteFile(filepath.Join(dir, "budget.parquet"), budgets),
		parquet.WriteFile(filepath.Join(dir, "columns.parquet"), columns),
		parquet.WriteFile(filepath.Join(dir, "losses.parquet"), losses))
}

// writeTaskTables writes a task's rails, readings, kernels and calibration. It returns the columns of the rails'
// powers.
func writeTaskTables(ctx context.Context, dir string, db *counted, t *store.Task) (powers []exchange.Column, err error) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return nil, err
	}
	tab, err := tableOf(ctx, db, t, exportFlags{format: "parquet", all: true, hostTime: true})
	if err != nil {
		return nil, err
	}
	powers = lists.Filter(tab.Columns, func(c *exchange.Column) bool { return c.Unit == "W" && c.Name != "power_w" })
	readings, err := db.Readings(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	kernels, err := db.Kernels(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return powers, errors.Join(
		cli.WriteFile(filepath.Join(dir, "rails.parquet"), func(w io.Writer) error { return parquetfile.Write(w, tab) }),
		parquet.WriteFile(filepath.Join(dir, "readings.parquet"), lists.Map(readings, func(r store.Reading) readingRow {
			return readingRow{r.Method, r.At.UnixNano(), r.Value}
		})),
		parquet.WriteFile(filepath.Join(dir, "kernels.parquet"), lists.Map(kernels, func(k store.Kernel) kernelRow {
			return kernelRow{k.Name, k.Start.UnixNano(), k.End.UnixNano()}
		})),
		writeJSON(filepath.Join(dir, "calibration.json"), exchange.NewMeta(t, madeBy()), 0o666))
}

// datasetKinds are the media types of a dataset's files by their endings.
var datasetKinds = map[string]string{
	".parquet": "application/vnd.apache.parquet", ".json": "application/json", ".sql": "application/sql",
	".db": "application/vnd.sqlite3",
}

// writeCrate writes the metadata: an RO-Crate 1.1 with the size and SHA-256 of each file.
func writeCrate(dir string, tasks []*store.Task, f publishFlags) error {
	names := lists.Map(tasks, func(t *store.Task) string { return t.Name })
	oldest := slices.MinFunc(tasks, func(a, b *store.Task) int { return a.Launched.Compare(b.Launched) })
	type entity map[string]any // of the graph
	ref := func(id string) entity { return entity{"@id": id} }
	var parts []entity
	graph := []entity{
		{"@id": crateFile, "@type": "CreativeWork", "about": ref("./"), "conformsTo": ref("https://w3id.org/ro/crate/1.1")},
		{"@id": "#creator", "@type": "Organization", "name": f.creator},
		{"@id": f.license, "@type": "CreativeWork", "name": "licence"},
	}
	sums, err := fileSums(dir)
	if err != nil {
		return err
	}
	for _, x := range sums {
		parts = append(parts, ref(x.name))
		graph = append(graph, entity{
			"@id": x.name, "@type": "File", "contentSize": fmt.Sprint(x.size), "sha256": x.sum,
			"encodingFormat": datasetKinds[filepath.Ext(x.name)],
		})
	}
	graph = append(graph, entity{
		"@id": "./", "@type": "Dataset", "name": f.title, "creator": ref("#creator"), "license": ref(f.license),
		"description":   cmp.Or(f.text, "Power of a GPU's rails with uncertainty: "+strings.Join(names, ", ")),
		"datePublished": time.Now().UTC().Format(time.DateOnly), "hasPart": parts,
		"temporalCoverage": oldest.Launched.UTC().Format(time.RFC3339) + "/..",
	})
	crate := map[string]any{"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}
	return writeJSON(filepath.Join(dir, crateFile), crate, 0o666)
}

// fileSum is a file's name within a dataset, its size and SHA-256.
type fileSum struct {
	name string
	size int64
	sum  string
}

// fileSums hashes the files of a dataset but for its metadata, in the order of their names.
func fileSums(dir string) (list []fileSum, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == crateFile {
			return err
		}
		x, err := cli.ReadFile(filepath.Join(dir, path), sumOf)
		x.name = path
		list = append(list, x)
		return err
	})
	return list, err
}

// sumOf returns the size and sum of what a reader has.
func sumOf(r io.Reader, name string) (fileSum, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return fileSum{name, n, hex.EncodeToString(h.Sum(nil))}, err
}

func importDatasetCmd(a *cli.App) *cobra.Command {
	return a.JSONFlag(cli.Command("dataset DIR", "Take back tasks that wattmark publish packed", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error { return importDataset(ctx, a, args[0]) }))
}

// importDataset compares each file with the dataset's metadata, then copies its tasks. A
// task that is there already is not copied again.
func importDataset(ctx context.Context, a *cli.App, dir string) (err error) {
	b, err := os.ReadFile(filepath.Join(dir, crateFile))
	var crate struct {
		Graph []struct {
			ID     string `json:"@id"`
			SHA256 string `json:"sha256"`
		} `json:"@graph"`
	}
	if err == nil {
		err = json.Unmarshal(b, &crate)
	}
	if err != nil {
		return fmt.Errorf("%s: not a dataset of wattmark publish: %w", dir, err)
	}
	want := map[string]string{}
	for _, x := range crate.Graph {
		if x.SHA256 != "" {
			want[x.ID] = x.SHA256
		}
	}
	sums, err := fileSums(dir)
	if err != nil {
		return err
	}
	for _, x := range sums {
		if w := want[x.name]; w != x.sum {
			return fmt.Errorf("%s: %s has SHA-256 %s, not %s as published: fetch the dataset again", dir, x.name, x.sum,
				cmp.Or(w, "none"))
		}
		delete(want, x.name)
	}
	for name := range want {
		return fmt.Errorf("%s: %s is missing: fetch the dataset again", dir, name)
	}
	from, err := store.OpenSource(ctx, filepath.Join(dir, datasetTasks))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	db, err := store.Open(ctx, a.DB)
	if err != nil {
		return err
	}
	defer db.Close()
	in, err := db.Import(ctx, from, store.ImportOptions{})
	if err != nil {
		return err
	}
	return a.Print(map[string]any{"tasks": in.Tasks}, func(w io.Writer) {
		for _, t := range in.Tasks {
			fmt.Fprintf(w, "Task %d of the dataset is task %d of %s%s\n", t.From, t.To, a.DB,
				map[bool]string{true: ", as before"}[t.Known])
		}
	})
}
