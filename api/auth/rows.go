package auth

// Row says who may make a call.
type Row struct {
	Role Role
	// Changes: the call changes something, and is kept in the audit log also where it
	// was allowed. What is refused is kept always.
	Changes bool
	// Reads: the call hands out what was measured, and is kept where Config.Reads asks
	// for it.
	Reads bool
}

const (
	monitorService = "/wattmark.v1.MonitorService/"
	taskService    = "/wattmark.v1.TaskService/"
	hostService    = "/wattmark.v1.HostService/"
	benchService   = "/wattmark.v1.BenchService/"
	reportService  = "/wattmark.v1.ReportService/"
	healthService  = "/grpc.health.v1.Health/"
)

// Rows is who may make which call, by its full name. Whose a capture or a task is, is
// asked where it is known: see Own.
var Rows = map[string]Row{
	monitorService + "GetBench":       {Role: Viewer},
	monitorService + "ListCaptures":   {Role: Viewer, Reads: true},
	monitorService + "WatchRails":     {Role: Viewer, Reads: true},
	monitorService + "ReadCapture":    {Role: Viewer, Reads: true},
	monitorService + "StartCapture":   {Role: Measurer, Changes: true},
	monitorService + "RenewLease":     {Role: Measurer},                // of others: operator
	monitorService + "StopCapture":    {Role: Measurer, Changes: true}, // of others: operator
	monitorService + "EndCapture":     {Role: Operator, Changes: true},
	monitorService + "ReleaseCapture": {Role: Measurer, Changes: true}, // of others: operator

	taskService + "ListTasks":    {Role: Viewer, Reads: true},
	taskService + "GetTask":      {Role: Viewer, Reads: true},
	taskService + "ListUsers":    {Role: Viewer},
	taskService + "ReadSamples":  {Role: Viewer, Reads: true},
	taskService + "ReadEnvelope": {Role: Viewer, Reads: true},
	taskService + "ReadEnergy":   {Role: Viewer, Reads: true},
	taskService + "ReadTimeline": {Role: Viewer, Reads: true},
	taskService + "ReadReadings": {Role: Viewer, Reads: true},
	taskService + "Aggregate":    {Role: Viewer, Reads: true},
	taskService + "WatchTasks":   {Role: Viewer, Reads: true},
	taskService + "DeleteTasks":  {Role: Measurer, Changes: true}, // of others: admin
	taskService + "UpdateTask":   {Role: Measurer, Changes: true}, // of others: operator
	taskService + "CreateNote":   {Role: Measurer, Changes: true}, // of others: operator
	taskService + "DeleteNote":   {Role: Measurer, Changes: true}, // of others: operator

	benchService + "ListBenches":  {Role: Viewer},
	benchService + "ReadBench":    {Role: Viewer, Reads: true},
	benchService + "WatchBenches": {Role: Viewer, Reads: true},

	reportService + "ListSensors":      {Role: Viewer},
	reportService + "ListSensorErrors": {Role: Viewer},
	reportService + "ReadValidation":   {Role: Viewer, Reads: true},
	reportService + "ListValidations":  {Role: Viewer, Reads: true},

	hostService + "Describe": {Role: Viewer},
	hostService + "Measure":  {Role: Measurer, Changes: true},

	// Who watches over a service need not be let in.
	healthService + "Check": {Role: Nobody},
	healthService + "List":  {Role: Viewer},
	healthService + "Watch": {Role: Viewer},

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {Role: Viewer},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {Role: Viewer},
}
