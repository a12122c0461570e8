package main

import (
	"github.com/spf13/cobra"
)

func (a *app) sensorCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "sensor", Short: "Find out what a GPU's built-in power sensor does, and measure well with it alone",
		Long: `A GPU's own power sensor renews its value now and then, and the value is a mean
over a stretch of time that may be much longer than the time between renewals, or
much shorter: then most of the time is not seen at all. Identify finds the period,
the window (or the lag), the delay, and the static gain and offset, from readings
and a load that is known; profiles are kept by GPU and field. Plan and run measure
with the sensor alone as well as it can. See docs/sensor.md.`,
	}
	c.AddCommand(a.sensorIdentifyCmd(), a.sensorLoadCmd(), a.sensorPlanCmd(), a.sensorRunCmd(), a.sensorShowCmd(), a.sensorListCmd(), a.sensorDeleteCmd())
	return c
}
