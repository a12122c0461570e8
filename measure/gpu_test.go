package measure

import (
	"strings"
	"testing"
)

func TestParseGPUUUID(t *testing.T) {
	const want = "GPU-8f6e1f2a-0b1c-2d3e-4f50-6172839405af"
	for _, s := range []string{want, strings.ToUpper(want), "gpu-8F6E1F2A-0b1c-2d3e-4f50-6172839405af"} {
		if got, err := ParseGPUUUID(s); got != want || err != nil {
			t.Errorf("%s: got %q, %v", s, got, err)
		}
	}
	for s, why := range map[string]string{
		"":                   "not the UUID",
		"0":                  "not the UUID",
		"GPU-8f6e1f2a":       "not the UUID",
		want + "0":           "not the UUID",
		want + "\n":          "not the UUID",
		"MIG-8f6e1f2a/7/0":   "MIG",
		"mig-GPU-8f6e1f2a/1": "MIG",
	} {
		if got, err := ParseGPUUUID(s); got != "" || err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %q, %v", s, got, err)
		}
	}
	if !SameGPU("GPU-AB", "gpu-ab") || SameGPU("", "") || SameGPU("GPU-a", "GPU-b") {
		t.Error("SameGPU")
	}
}
