package measurement

import (
	"errors"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
)

func cardInfo(name, uuid, pci string) gpu.Info {
	return gpu.Info{Name: name, UUID: "GPU-" + uuid, PCIBusID: pci}
}

var (
	a = cardInfo("H200", "aa", "0000:3b:00.0")
	b = cardInfo("H200", "bb", "0000:65:00.0")
	c = cardInfo("A100", "cc", "0000:86:00.0")
)

// card is a GPU as NVML writes it.
func card(g gpu.Info, cut bool) nvml.Card {
	g.PCIBusID = "0000" + g.PCIBusID
	return nvml.Card{Info: g, Cut: cut}
}

func TestSelect(t *testing.T) {
	// Programs see c before a, and not b.
	visible := []gpu.Info{c, a}
	cards := []nvml.Card{card(a, false), card(b, false), card(c, false)}
	for _, x := range []struct {
		list string
		want []gpu.Info
		fail string
	}{
		{"all", []gpu.Info{c, a}, ""},
		{" ALL ", []gpu.Info{c, a}, ""},
		{"0", []gpu.Info{c}, ""},
		{"1, 0", []gpu.Info{a, c}, ""},
		{"gpu-AA,3B:00.0", nil, "gpu-AA and 3B:00.0 are one GPU (GPU-aa): name it once"},
		{"1,GPU-aa", nil, "1 and GPU-aa are one GPU"},
		{"00000000:86:00.0,GPU-aa", []gpu.Info{c, a}, ""},
		{"", nil, "empty entry"},
		{"0,,1", nil, "empty entry"},
		{"0,all", nil, "all stands alone"},
		{"2", nil, "index 2; CUDA sees 0: A100 GPU-cc; 1: H200 GPU-aa"},
		{"-1", nil, "index -1"},
		{"first", nil, `"first": want all, an index, a UUID`},
		{"GPU-bb", nil, "GPU-bb is in this machine, and hidden from programs: look at CUDA_VISIBLE_DEVICES"},
		{"GPU-dd", nil, "GPU-dd; CUDA sees 0: A100"},
	} {
		got, err := SelectGPUs(x.list, visible, cards)
		if x.fail != "" {
			if !errors.Is(err, ErrSelection) || !strings.Contains(err.Error(), x.fail) {
				t.Errorf("%q: got %v, want %s", x.list, err, x.fail)
			}
			continue
		}
		if err != nil || len(got) != len(x.want) {
			t.Errorf("%q: got %v, %v", x.list, got, err)
			continue
		}
		for i := range got {
			if got[i] != x.want[i] {
				t.Errorf("%q: GPU %d: got %v, want %v", x.list, i, got[i], x.want[i])
			}
		}
	}
}

// MIG devices are refused however they are come by.
func TestSelectRefusesMIG(t *testing.T) {
	part := cardInfo("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "7f", "0000:86:00.0")
	for name, x := range map[string]struct {
		list    string
		visible []gpu.Info
		cards   []nvml.Card
	}{
		"named":             {"MIG-7f", []gpu.Info{a}, nil},
		"called so by CUDA": {"all", []gpu.Info{a, part}, nil},
		"cut, NVML says":    {"0", []gpu.Info{cardInfo("A100", "7f", "0000:86:00.0")}, []nvml.Card{card(c, true)}},
		"the card of a device": {
			"GPU-cc",
			[]gpu.Info{cardInfo("A100", "7f", "0000:99:00.0")},
			[]nvml.Card{card(c, true)},
		},
	} {
		if got, err := SelectGPUs(x.list, x.visible, x.cards); !errors.Is(err, gpu.ErrMIG) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if _, err := SelectGPUs("all", []gpu.Info{a, c},
		[]nvml.Card{card(a, false), card(c, false), card(b, true)}); err != nil {
		t.Errorf("another card that is cut: %v", err)
	}
}

// What NVML and the environment tell of which GPU is meant, without the driver.
func TestLocate(t *testing.T) {
	card := func(name, uuid, bus string) nvml.Card {
		return nvml.Card{Info: gpu.Info{Name: name, UUID: uuid, PCIBusID: bus}}
	}
	same := []nvml.Card{card("H200", "GPU-aa", "0000:01:00.0"), card("H200", "GPU-bb", "0000:02:00.0")}
	mixed := []nvml.Card{card("T4", "GPU-aa", "0000:01:00.0"), card("H200", "GPU-bb", "0000:02:00.0")}
	cut := []nvml.Card{{Info: same[0].Info, Cut: true}, same[1]}
	for _, tc := range []struct {
		list, visible, order string
		cards                []nvml.Card
		want                 string // UUIDs; empty where only the driver knows
		fails                bool
	}{
		{list: "0", cards: same, want: "GPU-aa"},
		{list: "1", cards: same, want: "GPU-bb"},
		{list: "all", cards: mixed, want: "GPU-aa GPU-bb"},
		{list: "0", cards: mixed},
		{list: "0", order: "PCI_BUS_ID", cards: mixed, want: "GPU-aa"},
		{list: "gpu-BB", cards: mixed, want: "GPU-bb"},
		{list: "0000:02:00.0", cards: mixed, want: "GPU-bb"},
		{list: "0", visible: "1", cards: same, want: "GPU-bb"},
		{list: "0", visible: "1", cards: mixed},
		{list: "0", visible: "GPU-b", cards: mixed, want: "GPU-bb"},
		{list: "1", visible: "GPU-b,GPU-a", cards: mixed, want: "GPU-aa"},
		{list: "0", visible: "-1", cards: same},
		{list: "0", visible: "MIG-1", cards: same},
		{list: "0", cards: cut},
		{list: "7", cards: same, fails: true},
		{list: "GPU-cc", cards: same, fails: true},
	} {
		env := func(name string) (string, bool) {
			v := map[string]string{"CUDA_VISIBLE_DEVICES": tc.visible, "CUDA_DEVICE_ORDER": tc.order}[name]
			return v, v != ""
		}
		found, ok, err := locateGPUs(tc.list, tc.cards, env)
		var got []string
		for _, g := range found {
			got = append(got, g.UUID)
		}
		if strings.Join(got, " ") != tc.want || ok != (tc.want != "") || (err != nil) != tc.fails {
			t.Errorf("%+v: %v, %v, %v", tc, got, ok, err)
		}
	}
}
