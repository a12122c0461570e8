package main

// unrunLine is the beginning of a line of a page that TestCommandsOfPagesRun leaves out; TestLinesOfPagesAreRight
// reads it all the same.
type unrunLine struct{ page, line, reason string }

const (
	needsGPU        = "needs a CUDA GPU"
	needsGPUs       = "needs several GPUs"
	needsRecordings = "needs the public recordings"
	needsRoot       = "installs packages and starts services of this machine"
	takesHours      = "takes hours"
	aForm           = "a form, with words left out"
	takesAMinute    = "takes a minute or more in real time; a test of its own runs it shorter"
)

// unrun lists these lines, each with its reason.
var unrun = []unrunLine{
	{"README.md", "go run ./cmd/wattmark demo", "links the program once more; the demo itself is run"},
	{"README.md", "make test", "runs this test"},
	{"c-api.md", "pip install", "TestPythonPackage makes the wheel and installs it in a venv"},
	{"c-api.md", "python3 -c", "wants the wheel; tests of the library run the same program"},
	{"calibration.md", "go test -tags slow", takesHours},
	{"calibration.md", "wattmark calibrate gain …", aForm},
	{"calibration.md", "wattmark calibrate gain --monitor", "wants a hand between its steps; a test stands for it"},
	{"compare.md", "wattmark run --times 50 --until-u", "takes many minutes: as many pairs as U needs"},
	{"export.md", "wattmark import pmd --shift", needsRecordings},
	{"export.md", "wattmark import csv FILE", aForm},
	{"export.md", "wattmark import pmd DIR", aForm},
	{"export.md", "wattmark import powersensor3 FILE", aForm},
	{"export.md", "wattmark import nvidia-smi FILE", aForm},
	{"export.md", "wattmark import dataset DIR", aForm},
	{"export.md", "wattmark import recording DIR", aForm},
	{"export.md", "wattmark annotate 42", "needs a trace of the task's program by a profiler"},
	{"export.md", "cd gemm-set && duckdb", "needs DuckDB"},
	{"host.md", "python3 -m grpc_tools.protoc", "needs a Python package that Debian does not have"},
	{"kernels.md", "wattmark tiny --scheme fold", takesAMinute},
	{"kernels.md", "wattmark tiny --ptx", needsGPU},
	{"kernels.md", "wattmark instructions run", needsGPU},
	{"models.md", "wattmark roofline sweep --duration 3s", takesAMinute},
	{"models.md", "wattmark predict sweep", takesAMinute},
	{"models.md", "wattmark predict calibrate 3 5 8", "needs tasks of three sizes of one kernel"},
	{"models.md", "wattmark predict check 9 12", "needs tasks of that kernel"},
	{"operations.md", "make deb", "builds for two minutes; TestDebianPackage does it"},
	{"operations.md", "sudo ", needsRoot},
	{"operations.md", "sudoedit ", needsRoot},
	{"performance.md", "go test", takesHours},
	{"reliability.md", "go test", takesHours},
	{"run.md", "wattmark run --gpus all", needsGPUs},
	{"run.md", "wattmark show --group 1", needsGPUs},
	{"run.md", "WATTMARK_JOB=train-7 wattmark run --gpus all", needsGPUs},
	{"run.md", "wattmark show 7 --ranges", "needs a program that names ranges"},
	{"run.md", "wattmark run --auto --kernel", needsGPU},
	{"scale.md", "wattmark relay --db host.db", "waits on a loaded machine for the trial's streams; tests of relays run it"},
	{"scale.md", "wattmark cluster node --name a", "needs three machines"},
	{"scale.md", "wattmark relay --db /var/lib", aForm},
	{"scale.md", "wattmark store --db postgres", aForm},
	{"scale.md", "wattmark monitor --cluster nats://10.0.0.1", aForm},
	{"scale.md", "wattmark host --cluster nats://10.0.0.1", aForm},
	{"scale.md", "wattmark run --cluster nats://10.0.0.1", aForm},
	{"sensor.md", "wattmark sensor load", takesAMinute},
	{"sensor.md", "wattmark sensor run", takesAMinute},
	{"sensor.md", "wattmark sensor identify --recording", needsRecordings},
	{"sensor.md", "wattmark correct 42 --profile 'GPU-…", aForm},
	{"validate.md", "wattmark validate --recording", needsRecordings},
}
