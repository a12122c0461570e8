package validate

import (
	"context"

	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/study/stored"
	"github.com/wattmark/wattmark/store"
)

// FilesReport names the files and the stored analysis that the command wrote.
type FilesReport struct {
	SVG   string `json:"svg,omitempty"`
	HTML  string `json:"html,omitempty"`
	Saved string `json:"saved,omitempty"`
}

// json returns the value to marshal: one report with the files, or several in a list with
// their summary and the refused subjects.
func (v *validation) json() any {
	files := FilesReport{v.svg, v.html, v.saved}
	if len(v.reports) == 1 && len(v.refused) == 0 {
		return struct {
			*validate.Report
			FilesReport
		}{v.reports[0], files}
	}
	type refused struct {
		Name   string `json:"name"`
		Reason string `json:"reason"`
	}
	out := struct {
		Subjects []*validate.Report     `json:"subjects"`
		Summary  []validate.SummaryLine `json:"summary"`
		Refused  []refused              `json:"refused,omitempty"`
		FilesReport
	}{v.reports, v.summary.Lines, nil, files}
	// The key is an empty list, never null: readers iterate over it.
	if out.Summary == nil {
		out.Summary = []validate.SummaryLine{}
	}
	for _, x := range v.refused {
		out.Refused = append(out.Refused, refused{x.name, x.err.Error()})
	}
	return out
}

// ValidationKind is the kind of the analyses that --save stores.
const ValidationKind = "validation"

// saveValidation stores the validation under name, as a new version where the name
// exists. It creates the database where there is none.
func saveValidation(a *cli.App, ctx context.Context, v *validation, name string, tasks []store.TaskID) (err error) {
	_, err = stored.Kind{Kind: ValidationKind}.Keep(a, ctx, name, v.json(), tasks)
	v.saved = name
	return err
}
