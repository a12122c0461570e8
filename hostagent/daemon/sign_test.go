package daemon

import (
	"testing"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
)

// A task is the caller's, whatever the program says, unless the caller may speak for
// others.
func TestWhoseTaskItIs(t *testing.T) {
	for _, c := range []struct {
		who                    *auth.Identity
		user, holder           string
		wantUser, wantedHolder string
	}{
		{nil, "lab", "lab@gpu", "lab", "lab@gpu"},
		{&auth.Identity{Name: "root", Role: auth.Admin}, "lab", "lab@gpu", "lab", "lab@gpu"},
		{&auth.Identity{Name: "op", Role: auth.Operator}, "lab", "lab@gpu", "lab", "lab@gpu"},
		{&auth.Identity{Name: "ada", Role: auth.Measurer}, "ada", "ada@gpu", "ada", "ada@gpu"},
		{&auth.Identity{Name: "ada", Role: auth.Measurer}, "bob", "bob@gpu", "ada", "ada@gpu"},
		{&auth.Identity{Name: "ada", Role: auth.Measurer}, "", "", "ada", "ada"},
	} {
		ctx := t.Context()
		if c.who != nil {
			ctx = auth.With(ctx, *c.who)
		}
		p := &pb.OpenMeasurement{User: c.user, Holder: c.holder}
		NewServer(Config{}).sign(ctx, p)
		if p.User != c.wantUser || p.Holder != c.wantedHolder {
			t.Errorf("%+v: user %q, holder %q", c, p.User, p.Holder)
		}
	}
}
