package main

import "github.com/spf13/cobra"

func (a *app) replayCmd() *cobra.Command { return &cobra.Command{Use: "replay"} }
