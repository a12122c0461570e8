package smilog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// told lists the readings of a log, column by column.
func told(l *Log) (out []string) {
	for _, f := range l.Fields() {
		for _, r := range l.Columns[f] {
			out = append(out, fmt.Sprintf("%s %s %g", l.Method(f), r.At.Format("15:04:05.000"), float64(r.Power)))
		}
	}
	return out
}

func TestLogsOfOthers(t *testing.T) {
	for _, c := range []struct {
		name, in string
		absolute bool
		want     []string
	}{
		{
			"amd-smi with its line about Ctrl-C and a heading again",
			"'CTRL' + 'C' to stop watching output:\ntimestamp,gpu,socket_power,gfx_voltage\n1785881113,0,238,780\ntimestamp,gpu,socket_power,gfx_voltage\n1785881114,0,400,N/A\n1785881115,0,N/A,1\n", true,
			[]string{"amd-smi socket_power 22:05:13.000 238", "amd-smi socket_power 22:05:14.000 400"},
		},
		{
			"amd-smi with units", "timestamp,gpu,power_usage\n1785881113.5,1,238 W\n1785881114.5,1,240 W\n", true,
			[]string{"amd-smi power_usage 22:05:13.500 238", "amd-smi power_usage 22:05:14.500 240"},
		},
		{
			"xpu-smi", "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)\n2024-05-06T05:47:53.671,    0, 0.00, 42.99\n2024-05-06T05:47:54.671,    0, 0.00, 43.10\n", false,
			[]string{"xpu-smi GPU Power 05:47:53.671 42.99", "xpu-smi GPU Power 05:47:54.671 43.1"},
		},
		{
			"tegrastats, two lines a second", `04-27-2026 15:00:54 RAM 779/7620MB (lfb 2x4MB) CPU [0%@1344] GR3D_FREQ 0% gpu@50.5C VDD_IN 6626mW/6625mW VDD_SOC 2380mW/2380mW
04-27-2026 15:00:54 RAM 779/7620MB (lfb 2x4MB) CPU [0%@1344] GR3D_FREQ 0% gpu@50.5C VDD_IN 7000mW/6625mW VDD_SOC 2400mW/2380mW
04-27-2026 15:00:55 RAM 779/7620MB (lfb 2x4MB) VDD_IN 3902/3611 VDD_SOC 997/941
`, false,
			[]string{
				"tegrastats VDD_IN 15:00:54.000 6.626", "tegrastats VDD_IN 15:00:54.500 7", "tegrastats VDD_IN 15:00:55.000 3.902",
				"tegrastats VDD_SOC 15:00:54.000 2.38", "tegrastats VDD_SOC 15:00:54.500 2.4", "tegrastats VDD_SOC 15:00:55.000 0.997",
			},
		},
		{
			"zeus, windows within windows", "start_time,window_name,elapsed_time,gpu0_energy\n1785881114,step,1,300\n1785881113.5,epoch,4,1200.5\n1785881118,eval,0.5,50\n", true,
			[]string{
				"zeus gpu0_energy 22:05:13.500 300.125", "zeus gpu0_energy 22:05:17.500 300.125", "zeus gpu0_energy 22:05:18.000 100",
				"zeus gpu0_energy 22:05:18.500 100",
			},
		},
		{
			"codecarbon, rows of a run add up", "timestamp,project_name,run_id,duration,gpu_energy,codecarbon_version,gpu_count\n2026-04-11T07:53:50,x,A,50,0.001,3.3.0,1\n2026-04-11T07:54:40,x,A,100,0.006,3.3.0,1\n2026-04-11T08:00:00,x,B,36,0.001,3.3.0,1\n", false,
			[]string{
				"codecarbon gpu_energy 07:53:00.000 72", "codecarbon gpu_energy 07:53:50.000 72",
				"codecarbon gpu_energy 07:53:50.000 360", "codecarbon gpu_energy 07:54:40.000 360",
				"codecarbon gpu_energy 07:59:24.000 100", "codecarbon gpu_energy 08:00:00.000 100",
			},
		},
		{
			"nvidia-smi as before", "timestamp, power.draw [W]\n2023/07/14 10:10:26.905, 56.38 W\n", false,
			[]string{"nvidia-smi power.draw 10:10:26.905 56.38"},
		},
	} {
		l, err := Parse(strings.NewReader(c.in), 0)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, told(l)); diff != "" || l.Absolute != c.absolute {
			t.Errorf("%s: absolute %v\n%s", c.name, l.Absolute, diff)
		}
	}
}

const codecarbon = "timestamp,run_id,duration,gpu_energy,codecarbon_version,gpu_count\n"

func TestLogsOfOthersRefused(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"two GPUs", "timestamp,gpu,socket_power\n1785881113,0,238\n1785881113,1,240\n", "a reading of GPU 1 behind those of GPU 0"},
		{"no time", "RAM 779/7620MB (lfb 2x4MB) VDD_IN 1mW/1mW\n", "tegrastats wrote no time"},
		{"no rails", "04-27-2026 15:00:54 RAM 779/7620MB (lfb)\n", "no rail"},
		{"a broken date", "04-47-2026 15:00:54 RAM 779/7620MB VDD_IN 1mW/1mW\n", "line 1"},
		{"a word for a power", "timestamp,gpu,socket_power\n1785881113,0,much\n1785881114,0,240\n", "line 2"},
		{"codecarbon of two GPUs", codecarbon + "2026-04-11T07:53:50,A,50,0.001,3.3.0,2\n", "line 2: gpu_count: the energy is of 2 GPUs"},
		{"codecarbon without end", codecarbon + "2026-04-11T07:53:50,A,50,0.001,3,1\n2026-04-11T07:54:50,A,90,0.0009,3,1\n", "line 3: duration: a total of"},
		{"zeus without a length", "start_time,window_name,elapsed_time,gpu0_energy\n1785881113.5,epoch,0,12\n", `line 2: elapsed_time: "0" is no length`},
		{"zeus of two GPUs", "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n1785881113.5,epoch,1,2,3\n", "energies of 2 GPUs"},
		{"zeus without a row", "start_time,window_name,elapsed_time,gpu0_energy\n", "no energy"},
		{"zeus without a GPU", "start_time,window_name,elapsed_time\n1785881113.5,epoch,1\n", "energies of 0 GPUs"},
		{"broken in lists", "timestamp,gpu,socket_power\n1785881113,0,[1, 2],3\n1785881114,0,240\n", "line 2: 5 fields, the heading has 3"},
	} {
		if _, err := Parse(strings.NewReader(c.in), 0); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestCutTool(t *testing.T) {
	for name, want := range map[string][2]string{
		"nvidia-smi power.draw": {NvidiaSmi, "power.draw"}, "xpu-smi GPU Power": {XPUSmi, "GPU Power"},
	} {
		if tool, field, ok := CutTool(name); !ok || tool != want[0] || field != want[1] {
			t.Errorf("%s: %s, %s, %v", name, tool, field, ok)
		}
	}
	if _, _, ok := CutTool("sma corrected"); ok {
		t.Error("sma is no program")
	}
}

func FuzzParseOthers(f *testing.F) {
	f.Add("timestamp,gpu,socket_power\n1785881113,0,238\n")
	f.Add("04-27-2026 15:00:54 RAM 779/7620MB (lfb 2x4MB) VDD_IN 6626mW/6625mW\n")
	f.Fuzz(func(t *testing.T, in string) {
		l, err := Parse(strings.NewReader(in), time.Hour)
		if err == nil && len(l.Fields()) == 0 {
			t.Fatal("a log without a column")
		}
	})
}
