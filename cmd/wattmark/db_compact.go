package main

import "github.com/spf13/cobra"

func (a *app) dbCompactCmd() *cobra.Command { return &cobra.Command{Use: "compact"} }
func (a *app) dbExpandCmd() *cobra.Command  { return &cobra.Command{Use: "expand"} }
