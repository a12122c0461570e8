package board

import "testing"

func TestConnect(t *testing.T) {
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	card := b.At(0)
	before, _ := b.Energy(0, 1e9)
	if err := b.Connect("aux_12v_1", &Reading{V: 12, I: 5}); err != nil {
		t.Fatal(err)
	}
	if err := b.Connect("pcie_12v", &Reading{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Connect("none", nil); err == nil {
		t.Error("a rail that is not there")
	}
	now := b.At(0)
	if now[2] != (Reading{V: 12, I: 5, P: 60}) || now[1] != (Reading{}) || now[0] != card[0] || now[3] != card[3] {
		t.Errorf("%+v", now)
	}
	if after, _ := b.Energy(0, 1e9); after.Total != before.Total {
		t.Error("the card draws otherwise because its meter is elsewhere")
	}
	for _, r := range []string{"aux_12v_1", "pcie_12v"} {
		if err := b.Connect(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	if again := b.At(0); again[1] != card[1] || again[2] != card[2] {
		t.Errorf("%+v", again)
	}
}
