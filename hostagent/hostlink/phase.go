package hostlink

import (
	"slices"

	"wattmark/api/wattmarkv1"
	"wattmark/hostagent/measurement"
)

// phases are the steps in the order of their numbers on the wire, from 1 on.
var phases = []measurement.Phase{
	measurement.PhaseBench, measurement.PhaseCapture, measurement.PhaseWarmUp, measurement.PhaseMarker, measurement.PhaseWork,
	measurement.PhaseStop, measurement.PhaseTransfer, measurement.PhaseAnalysis, measurement.PhaseDone,
}

// phase converts a step; one that is not known is not stated.
func phase(p measurement.Phase) wattmarkv1.MeasurePhase {
	return wattmarkv1.MeasurePhase(slices.Index(phases, p) + 1)
}

// parsePhase converts a step; one of a newer daemon is named so.
func parsePhase(p wattmarkv1.MeasurePhase) measurement.Phase {
	if p < 1 || int(p) > len(phases) {
		return "a step of another version"
	}
	return phases[p-1]
}
