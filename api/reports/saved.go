package reports

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/store"
)

// ListValidations returns what was kept, newest first.
func (s *Service) ListValidations(ctx context.Context, q *wattmarkv1.ListValidationsRequest) (*wattmarkv1.ListValidationsResponse, error) {
	n := int(q.GetPageSize())
	switch {
	case n < 0:
		return nil, status.Errorf(codes.InvalidArgument, "page_size: %d: want 0 or more", n)
	case n == 0:
		n = 100
	}
	n = min(n, 1000)
	list, err := s.cfg.DB.Analyses(ctx, s.cfg.ValidationKind)
	if err != nil {
		return nil, toStatus("list validations", err)
	}
	slices.SortStableFunc(list, func(a, b store.Analysis) int {
		return cmp.Or(b.Made.Compare(a.Made), cmp.Compare(b.Version, a.Version))
	})
	r := &wattmarkv1.ListValidationsResponse{More: len(list) > n}
	for i := range list[:min(n, len(list))] {
		r.Validations = append(r.Validations, saved(&list[i]))
	}
	return r, nil
}

// said is what is read of a kept validation: one subject, or several in a list.
type said struct {
	subject
	Subjects []subject `json:"subjects"`
}

type subject struct {
	Name    string `json:"name"`
	GPU     string `json:"gpu"`
	Driver  string `json:"driver"`
	Verdict string `json:"verdict"`
}

func saved(a *store.Analysis) *wattmarkv1.SavedValidation {
	m := &wattmarkv1.SavedValidation{Name: wire.Text(a.Name), Version: uint32(a.Version), Made: wire.Time(a.Made), Maker: wire.Text(a.Maker)}
	for _, t := range a.Tasks {
		m.TaskIds = append(m.TaskIds, int64(t))
	}
	var x said
	if json.Unmarshal(a.Content, &x) != nil { // of another program: its name is all there is
		return m
	}
	if x.Verdict != "" {
		x.Subjects = append(x.Subjects, x.subject)
	}
	for _, v := range x.Subjects {
		m.Verdicts = append(m.Verdicts, &wattmarkv1.SavedVerdict{
			Name: wire.Text(v.Name), Gpu: wire.Text(v.GPU), Driver: wire.Text(v.Driver), Verdict: wire.Text(v.Verdict),
		})
	}
	return m
}
