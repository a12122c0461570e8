package convert

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/client"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/live"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

var update = flag.Bool("update", false, "write the files conversions.go")

// of makes a pair of D and M in a folder.
func of[D, M any](folder, build, read, parse, rules string) pair {
	return pair{
		folder: folder, domain: reflect.TypeFor[D](), message: reflect.TypeFor[M](), build: build, read: read, parse: parse,
		rules: rules, parseByHand: read != "" || parse == "",
	}
}

// byHand makes a pair whose functions are written by hand.
func byHand[D, M any](folder, build, parse string) pair {
	p := of[D, M](folder, build, "", parse, "")
	p.byHand = true
	return p
}

// pairs are all of them. Fields of a type are converted by the functions of its first pair.
func pairs() []pair {
	const wire, client_, service, reports = "api/wire", "api/client", "api", "api/reports"
	// Words to select by go as they are: the service refuses those that cannot be.
	const words = "~User ~Name ~Job ~GPU ~Tags ~WithoutTags ~Search"
	// A task's outcome, which its state decides over.
	const outcome = "-samples -gaps -lost -duration_s -energy -mean_w -peak_w -nvml -window"
	// A span on the host's clock.
	const span = ".Span Span.Start=start_ns Span.End=end_ns"
	// The fields of a task beside its outcome.
	const labels = "-task_id -name -user -state -reason -launched -gpu -nvml -tags -pinned -job -gpu_uuid -stored -group_id " +
		"-window -verdict"
	setup := of[measure.Setup, pb.Setup](wire, "Setup", "", "ParseSetup", "")
	setup.parseByHand = true
	return []pair{
		byHand[*measure.Window, pb.Window](wire, "Window", "ParseWindow"),
		byHand[[]measure.Contribution, []*pb.Contribution](wire, "Budget", "ParseBudget"),
		byHand[[]session.Waiting, []*pb.Waiting](wire, "Waiting", ""),
		byHand[[]session.RailValue, []*pb.RailValue](wire, "RailValues", ""),
		byHand[*clock.Fit, pb.Clock](wire, "", "ParseClock"),
		byHand[measure.Channel, pb.Channel](wire, "Channel", "ParseChannel"),
		byHand[measure.Role, pb.Role](wire, "", "ParseRole"),
		byHand[measure.Wiring, pb.Wiring](wire, "", "ParseWiring"),
		setup,
		of[measure.Estimate, pb.Energy](wire, "Energy", "energyOf", "ParseEnergy", ""),
		of[measure.Contribution, pb.Contribution](wire, "contribution", "contributionOf", "parseContribution", ""),
		of[measure.RailResult, pb.RailResult](wire, "RailResult", "railResultOf", "ParseRailResult", "-Role"),
		of[clock.Fit, pb.Clock](wire, "clockMessage", "clockOf", "", "-Jitter -Knots -u_s"),
		of[marker.Spec, pb.MarkerSpec](wire, "MarkerSpec", "markerSpecOf", "ParseMarkerSpec", "Guard=guard_chips"),
		of[marker.Edge, pb.Edge](wire, "edge", "edgeOf", "parseEdge", ""),
		of[marker.Found, pb.Marker](wire, "Marker", "markerOf", "ParseMarker", ""),
		of[measure.Timebase, pb.Timebase](wire, "Timebase", "timebaseOf", "ParseTimebase", "UTickHz=u_tick_rel"),
		of[measure.Channel, pb.Channel](wire, "channelMessage", "channelOf", "", "-Unit -unit -Drift"),
		of[measure.Rail, pb.Rail](wire, "Rail", "railOf", "", "-Drift"),
		of[measure.Response, pb.Response](wire, "Response", "responseOf", "ParseResponse", "-Delay -Centred"),
		of[measure.CalibrationRecord, pb.CalibrationRecord](wire, "record", "", "", "~Text"),
		of[measure.Identity, pb.Instrument](wire, "Instrument", "instrumentOf", "ParseInstrument", ""),
		of[measure.Event, pb.Event](wire, "Event", "eventOf", "ParseEvent", ""),

		of[session.Protocol, pb.Protocol](wire, "Protocol", "protocolOf", "", ""),
		of[session.Waiting, pb.Waiting](wire, "waiting", "", "", ""),
		of[session.Request, pb.StartCaptureRequest](wire, "startRequest", "", "ParseStartRequest", "~Holder ~TaskName -Owner "+
			"-protocol -version"),
		of[session.Bench, pb.GetBenchResponse](wire, "benchMessage", "benchOf", "",
			"-Setup -setup -Nominal -nominal -Bridged >GPU >Protocol >Waiting ^Notes ^SetAside"),
		of[session.Started, pb.StartCaptureResponse](wire, "Started", "", "ParseStarted", ""),
		of[session.Capture, pb.CaptureInfo](wire, "Capture", "", "ParseCapture", "-Released"),
		of[session.Summary, pb.Summary](wire, "Summary", "", "ParseSummary", ""),
		of[session.Opening, pb.Header](wire, "Opening", "openingOf", "", "-Owner -Created GPU=gpu_uuid >GPU >Marker"),
		of[session.Trailer, pb.Trailer](wire, "Trailer", "", "ParseTrailer", ""),
		of[session.RailValue, pb.RailValue](wire, "railValue", "railValueOf", "parseRailValue", "^Rail"),
		of[session.Moment, pb.WatchRailsResponse](wire, "Moment", "momentOf", "", "Step=wave_step_s ^Trouble"),

		of[client.Totals, pb.Totals](client_, "", "", "parseTotals", ""),
		of[client.Row, pb.AggregateRow](client_, "", "", "parseRow", "Totals=totals"),
		of[client.Task, pb.Task](client_, "", "taskOf", "parseTask", "ID=task_id Group=group_id -Window -NVML "+outcome),
		of[client.Window, pb.Task](client_, "", "windowOf", "", "-From -To "+labels),
		of[client.Detail, pb.GetTaskResponse](client_, "", "detailOf", "",
			"Task=task >Task >Setup -From -To -window -extent -nvml_method"),
		of[client.Result, pb.TaskResult](client_, "", "", "parseResult", ""),
		of[client.Note, pb.Note](client_, "", "", "parseNote", ""),
		of[client.Query, pb.ListTasksRequest](client_, "listRequest", "", "", words+" Group=group_id Before=before_task_id -Page "+
			"-page_size -page_token -with_totals -read_mask"),
		of[client.Query, pb.AggregateRequest](client_, "aggregateRequest", "", "", words+" Group=group_id -Verdicts -Order "+
			"-Ascending -Before -Page -by -limit -utc_offset_min -tag_key"),
		of[client.Watch, pb.WatchTasksRequest](client_, "watchRequest", "", "", "Resume=resume_token ~User ~Name ~Job ~Tags "+
			"~WithoutTags ~Resume"),
		of[client.Slice, pb.TimelineSlice](client_, "", "", "parseSlice", ""),
		of[client.Timeline, pb.ReadTimelineResponse](client_, "", "", "parseTimeline", ""),
		of[measure.Result, pb.ReadEnergyResponse](client_, "", "", "parseEnergy", "Total=energy -FirstScan -nvml -nvml_method -wall -rest -wall_trouble"),

		of[store.Brief, pb.Task](service, "briefMessage", "", "",
			"ID=task_id Group=group_id Scans=stored -Tags -tags -NVML -Result -verdict "+outcome),
		of[store.Filter, pb.ListTasksRequest](service, "", "filterOf", "", "Group=group_id -Since -Until -since -until -States "+
			"-states -Tags -tags -Without -without_tags -page_size -page_token -verdicts -order -ascending -with_totals "+
			"-read_mask -before_task_id"),
		of[store.Totals, pb.Totals](service, "totals", "", "", ""),
		of[store.Note, pb.Note](service, "noteMessage", "", "", ""),
		of[*store.Provenance, pb.Provenance](service, "provenanceMessage", "", "", ""),
		of[store.ResultInfo, pb.TaskResult](service, "resultMessage", "", "", "Estimate=energy"),
		of[measure.Result, pb.ReadEnergyResponse](service, "energyMessage", "", "",
			"Total=energy -FirstScan -nvml -nvml_method -wall -rest -wall_trouble"),
		of[api.KernelLine, pb.KernelLine](service, "lineMessage", "", "",
			"Estimate=energy ~Class ~Name ~Method ~Together -Members ?Mean ?PerCall"),
		of[api.Kernels, pb.ReadKernelsResponse](service, "kernelsMessage", "", "", "-result ~Warnings ?Sum"),
		of[store.RangeEnergy, pb.RangeEnergy](service, "rangeMessage", "", "", "Estimate=energy"),
		of[store.RangeSpan, pb.RangeSpan](service, "spanMessage", "", "", "Estimate=energy"),
		of[store.Trace, pb.ReadingTrace](service, "traceMessage", "", "", "At=t_s"),

		of[store.AggregateRow, pb.AggregateRow](service, "rowMessage", "", "", "Totals=totals"),
		of[store.UserTasks, pb.User](service, "userMessage", "", "", ""),
		of[store.CopiedTask, pb.StoredTask](service, "storedMessage", "", "", "From=file_task_id To=task_id -Differs -Updated "+
			"-Resumed -Chunks -Scans -Rows"),
		of[store.Task, pb.GetTaskResponse](service, "detailMessage", "", "", "ResultNumber=result -ID -Name -User -Job -Launched "+
			"-Monitor -CaptureID -GPU -GPUUUID -Driver -Marker -Owner -Partial -Group -Tags -Note -Bench -BenchGPU -Setup "+
			"-CalibrationID -State -Reason -Failure -Clock -Result -NVML -Clipped -Chunks -Scans -Pinned -Cold -task -reasons "+
			"-setup -rails -budget -clock -window -first_scan -extent"),
		byHand[quality.Level, pb.Verdict](service, "level", ""),
		of[quality.Reason, pb.VerdictReason](service, "reasonMessage", "", "", "Level=verdict -Count -Share"),
		of[store.Slice, pb.TimelineSlice](service, "sliceMessage", "", "", "~Name"),
		of[store.Timeline, pb.ReadTimelineResponse](service, "timelineMessage", "", "", "-from_s -to_s"),
		of[store.Traces, pb.ReadReadingsResponse](service, "readingsMessage", "", "", "-from_s -to_s"),
		of[store.Ranges, pb.ReadRangesResponse](service, "rangesMessage", "", "", ""),
		of[serving.Window, pb.ServedWindow](service, "servedMessage", "windowOf", "", "-Marks -Settled -Share -energy"),
		of[serving.Per, pb.EnergyPer](service, "perMessage", "", "", "Estimate=energy ~Unit"),
		of[serving.Line, pb.WindowSum](service, "sumMessage", "", "", "Estimate=energy ?P50 ?P90 ?P99"),

		byHand[validate.Truth, pb.Energy](reports, "energy", ""),
		of[validate.MissingRail, pb.UnseenRail](reports, "unseenMessage", "", "", ""),
		of[validate.Report, pb.ReadValidationResponse](reports, "validationMessage", "", "", "Origin=started Truth=energy "+
			"Missing=unseen MissingPower=unseen_w -Work -Duration -duration_s -Clock -clock -clock_u_s -Alternation -Swing "+
			"-Methods -methods -Kernels -kernels -NoKernel -no_kernel -KernelSum -kernel_sum -other_kernels -more_kernels "+
			"-Unmeasured -Trace -trace_from_s -trace_to_s -trace_t_s -trace_mean_w -trace_min_w -trace_max_w "+
			"-task_id -result -made"),
		of[validate.MethodReport, pb.ValidatedMethod](reports, "validatedMethod", "", "", "Own=own_rule -U -energy_u_j -EndsPct "+
			"-Interval -lo_pct -hi_pct -Agreement -agreement -Block -Correlation -Points -point_t_s -point_w"),
		of[validate.KernelReport, pb.ValidatedKernel](reports, "validatedKernel", "", "", "Truth=energy -Methods -errors"),
		of[sensor.Profile, pb.SensorProfile](reports, "profileMessage", "", "", "-Model -model -Window -UWindow -Tau -UTau "+
			"-constant_s -constant_u_s -DelayLow -DelayHigh -Residual -Evidence -updates -version -made -maker -task_ids"),

		of[store.Analysis, pb.SavedValidation](reports, "analysisMessage", "", "", "Tasks=task_ids -Kind -Content -verdicts"),

		of[store.Provenance, pb.Provenance]("hostagent/daemon", "provenanceMessage", "provenanceOf", "", "-MonitorVersion "+
			"-monitor_version -Command -command -TraceID -trace_id"),
		of[store.Brief, pb.Task]("hostagent/daemon", "outcomeMessage", "outcomeOf", "", "ID=task_id Scans=stored >Launched "+
			"-Job -job -GPUUUID -gpu_uuid -Group -group_id -Tags -tags -Pinned -pinned -NVML -Result -verdict "+outcome),
		of[measure.Result, pb.Task]("hostagent/daemon", "", "resultOf", "", "Total=energy -From -To -FirstScan -Rails -Budget "+
			"-duration_s "+labels),
		of[gpu.PlayedEdge, pb.HostPlayedEdge]("hostagent/daemon", "edgeMessage", "edgeOf", "", "At=at_ns"),
		of[gpu.Played, pb.PlayedMarker]("hostagent/daemon", "played", "playedOf", "", "-Kind "+span),
		of[gpu.Kernel, pb.WorkPart]("hostagent/daemon", "part", "partOf", "", "^Name "+span),
		of[gpu.Info, pb.Gpu]("hostagent/daemon", "gpuMessage", "gpuOf", "", "^Name ^UUID ^PCIBusID ^Driver"),

		of[live.Capture, pb.BenchCapture]("hostagent/live", "captureMessage", "", "", "Capture=capture Task=task_id"),
		of[live.Moment, pb.LiveMoment]("hostagent/live", "momentMessage", "", "", "Step=wave_step_s -Trouble"),
		of[live.State, pb.BenchState]("hostagent/live", "benchMessage", "", "", ".Bench -Bench.Setup -Bench.Nominal "+
			"-Bench.SetAside -Bench.Protocol -protocol Address=bench Why=away -Unwatched -Last -last -sample_rate_hz -rails "+
			"-missing -records -task_name -task_id"),
	}
}

// TestConversionsAreCurrent: each field has its partner, and the files are those that the table gives.
func TestConversionsAreCurrent(t *testing.T) {
	all := pairs()
	done := map[string]bool{}
	for _, p := range all {
		if done[p.folder] {
			continue
		}
		done[p.folder] = true
		want, err := source(p.folder, all)
		if err != nil {
			t.Error(err)
			continue
		}
		path := "../../../" + p.folder + "/conversions.go"
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s/conversions.go differs from the generator: run go generate ./api/wire (%v)", p.folder, err)
		}
	}
}

// TestFieldWithoutAPartner: a field that either side has alone is refused, and so is a rule for a field that is
// not there.
func TestFieldWithoutAPartner(t *testing.T) {
	type less struct{ From measure.Seconds }
	type more struct{ From, To, Middle measure.Seconds }
	type same struct{ From, To measure.Seconds }
	for name, p := range map[string]pair{
		"Window.to_s has no partner":     of[less, pb.Window]("x", "build", "", "", ""),
		"more.Middle has no partner":     of[more, pb.Window]("x", "build", "", "", ""),
		"rules of fields that are not":   of[same, pb.Window]("x", "build", "", "", "-Middle"),
		"same.To has no partner":         of[same, pb.Window]("x", "build", "", "", "From=to_s -from_s"),
		"From: no way from string to fl": of[struct{ From, To string }, pb.Window]("x", "build", "", "", ""),
		`by the rules "-From -from_s"`:   of[struct{ From, To string }, pb.Window]("x", "build", "", "", ""),
	} {
		if _, err := source("x", []pair{p}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}
