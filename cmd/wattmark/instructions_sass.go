package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/hostagent/instructions"
)

func (a *app) instructionsSASSCmd() *cobra.Command {
	var capability, steps int
	var show bool
	c := &cobra.Command{
		Use: "sass [INSTRUCTION...]", Short: "Check in machine code what the compiler made of the instructions",
		Long: `Assemble the programs with NVIDIA's ptxas and count what their blocks became, with
cuobjdump: a PTX instruction may be one machine instruction, several, a call, or
half of one that does two. --ptx prints a program's text instead. Needs the CUDA
toolkit, but no GPU.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := instructions.Find(args...)
			if err != nil {
				return withCode(exitUsage, err)
			}
			if show {
				return a.showPTX(list, instructions.Kernel{Steps: steps, Block: true, Capability: capability})
			}
			return a.instructionsSASS(cmd.Context(), list, steps, capability)
		},
	}
	c.Flags().IntVar(&capability, "capability", 90, "compute capability, as 90 for 9.0")
	c.Flags().IntVar(&steps, "steps", 5, "steps of the loop")
	c.Flags().BoolVar(&show, "ptx", false, "print the programs' PTX text")
	return a.jsonFlag(c)
}

func (a *app) showPTX(list []instructions.Instruction, k instructions.Kernel) error {
	for _, i := range list {
		text, err := i.PTX(k)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "// %s\n%s\n", i.Name, strings.TrimRight(string(text), "\x00"))
	}
	return nil
}

func (a *app) instructionsSASS(ctx context.Context, list []instructions.Instruction, steps, capability int) error {
	tools, err := instructions.FindToolkit()
	if err != nil {
		return err
	}
	var rows []instructions.SASS
	t := newTable(a.out)
	t.AppendHeader(table.Row{"instruction", "level", "machine a PTX", "opcodes that the block added"})
	for _, i := range list {
		for _, level := range []int{3, 0} {
			if capability < i.Least {
				continue
			}
			s, err := tools.Inspect(ctx, i, instructions.Setting{Level: level, Steps: steps}, capability)
			if err != nil {
				return fmt.Errorf("%s at -O%d: %w", i.Name, level, err)
			}
			rows = append(rows, s)
			calls := ""
			if s.Calls {
				calls = " (and the routine that is called)"
			}
			t.AppendRow(table.Row{s.Instruction, fmt.Sprintf("-O%d", s.Level), fmt.Sprintf("%.2f", s.PerOp), strings.Join(s.Opcodes, " ") + calls})
		}
	}
	if a.json {
		return a.printJSON(rows)
	}
	t.Render()
	return nil
}
