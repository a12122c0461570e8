package cupti

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// names of the library, the newest first; the plain one is the toolkit's link.
var names = []string{"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"}

// EnvLibrary names the library to use, and no other.
const EnvLibrary = "WATTMARK_CUPTI"

// Candidates lists where CUPTI may be, in the order in which it is tried: the
// file that WATTMARK_CUPTI names alone, or by its names through the linker's own
// paths, in the toolkits that CUDA_HOME and CUDA_PATH name, in those below
// /usr/local, and in the wheel of the Python environment that the program runs
// in. glob is filepath.Glob.
func Candidates(getenv func(string) string, glob func(string) ([]string, error)) []string {
	if lib := getenv(EnvLibrary); lib != "" {
		return []string{lib}
	}
	out := slices.Clone(names)
	in := func(dir string) {
		for _, n := range names {
			found, err := glob(filepath.Join(dir, n))
			if err == nil {
				slices.SortFunc(found, func(a, b string) int { return cmp.Compare(b, a) }) // newest first
				out = append(out, found...)
			}
		}
	}
	for _, env := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if home := getenv(env); home != "" {
			in(filepath.Join(home, "lib64"))
			in(filepath.Join(home, "extras/CUPTI/lib64"))
		}
	}
	for _, venv := range pythons(getenv) {
		in(filepath.Join(venv, "lib/python3*/site-packages/nvidia/cu13/lib"))
		in(filepath.Join(venv, "lib/python3*/site-packages/nvidia/cuda_cupti/lib"))
	}
	in("/usr/local/cuda*/lib64")
	in("/usr/local/cuda*/extras/CUPTI/lib64")
	for _, dir := range []string{"/usr/local", "/usr", getenv("HOME") + "/.local"} {
		in(filepath.Join(dir, "lib/python3*/*-packages/nvidia/cu13/lib"))
		in(filepath.Join(dir, "lib/python3*/*-packages/nvidia/cuda_cupti/lib"))
	}
	return out
}

// mapped returns the paths of the libcupti that the process has loaded already, out of
// the text of /proc/self/maps: a second copy beside the program's would share nothing
// with it but the driver.
func mapped(maps string) (out []string) {
	for line := range strings.Lines(maps) {
		_, path, ok := strings.Cut(strings.TrimSpace(line), "/")
		if path = "/" + path; ok && strings.HasPrefix(filepath.Base(path), "libcupti.so") && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}

// pythons are the folders of Python environments: the active one, and that of the
// interpreter which this process runs, if it is one.
func pythons(getenv func(string) string) (out []string) {
	for _, env := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if dir := getenv(env); dir != "" {
			out = append(out, dir)
		}
	}
	// A virtual environment's interpreter is a link: /proc/self/exe points at its
	// target, the command line at itself.
	line, _ := os.ReadFile("/proc/self/cmdline")
	first, _, _ := strings.Cut(string(line), "\x00")
	exe, _ := os.Executable()
	for _, path := range []string{first, exe} {
		if strings.Contains(filepath.Base(path), "python") && filepath.IsAbs(path) {
			out = append(out, filepath.Dir(filepath.Dir(path)))
		}
	}
	return out
}
