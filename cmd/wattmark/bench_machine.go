package main

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// machineReport says where figures come from.
type machineReport struct {
	OS         string  `json:"os"`
	Arch       string  `json:"arch"`
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	Go         string  `json:"go"`
	FileSystem string  `json:"file_system,omitempty"`
	Load1      float64 `json:"load_1m"` // before the benchmark
}

func describeMachine(dir string) machineReport {
	return machineReport{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), Cores: runtime.GOMAXPROCS(0),
		Go: runtime.Version(), FileSystem: fileSystem(dir), Load1: loadAverage(),
	}
}

// cpuModel is the processor's name where the system tells it in /proc.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// loadAverage is the last minute's; 0 where the system does not tell.
func loadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return v
}

// fileSystem names the file system of a directory: the longest mount point
// that is a prefix of it.
func fileSystem(dir string) string {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	best, kind := "", ""
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		at := strings.TrimSuffix(f[1], "/") + "/"
		if strings.HasPrefix(dir+"/", at) && len(at) >= len(best) {
			best, kind = at, f[2]
		}
	}
	return kind
}
