package main

import "github.com/spf13/cobra"

func (a *app) predictSweepCmd() *cobra.Command { return &cobra.Command{Use: "sweep"} }
