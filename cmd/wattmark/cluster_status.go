package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/store/relay"
)

// askCluster is how long the commands that look wait for a cluster.
const askCluster = 15 * time.Second

const serversUsage = "nodes of the cluster, with commas between them (also WATTMARK_CLUSTER)"

func (a *app) clusterStatusCmd() *cobra.Command {
	var f clusterFlags
	c := &cobra.Command{
		Use: "status", Short: "Show leaders, replicas, and how far the stores are", Args: cobra.NoArgs,
		Long: `Show each stream with the node that leads it, the other replicas and how many
messages they lag behind, what it holds, and how many tasks each store has still to
take; and the tasks that could not be stored, with the reasons. It exits with 1 where a stream has no leader or a replica is away.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), askCluster)
			defer cancel()
			b, err := f.dial(ctx, "status", slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer b.Close()
			return a.showStatus(b.Status(ctx))
		},
	}
	f.register(c.Flags(), "servers", serversUsage, usualServers())
	return a.jsonFlag(c)
}

func (a *app) showStatus(list []relay.StreamStatus) error {
	bad := 0
	t := newTable(a.out)
	t.AppendHeader(table.Row{"stream", "leader", "replicas", "tasks", "aside", "bytes", "stores"})
	for _, s := range list {
		var replicas, stores []string
		ill := s.Trouble != ""
		for _, r := range s.Replicas {
			text := r.Node
			switch {
			case r.Offline:
				text += " (away)"
			case !r.Current:
				text += fmt.Sprintf(" (%d behind)", r.Lag)
			}
			ill = ill || r.Offline || !r.Current
			replicas = append(replicas, text)
		}
		for _, c := range s.Stores {
			stores = append(stores, fmt.Sprintf("%s: %d waiting", c.Name, c.Waiting+uint64(c.Working)))
		}
		if ill {
			bad++
		}
		size := sizeText(s.Bytes)
		if s.MaxBytes > 0 {
			size += " of " + sizeText(s.MaxBytes)
		}
		t.AppendRow(table.Row{s.Stream, firstOf(s.Leader, s.Trouble), strings.Join(replicas, ", "), s.Tasks, s.Aside, size, strings.Join(stores, ", ")})
	}
	if a.json {
		if err := a.printJSON(list); err != nil {
			return err
		}
	} else {
		t.Render()
		a.showAside(list)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d streams are not whole", bad, len(list))
	}
	return nil
}

// showAside says which tasks the stores could not take, and why.
func (a *app) showAside(list []relay.StreamStatus) {
	total := 0
	var some []relay.Aside
	for _, s := range list {
		total += s.Aside
		some = append(some, s.SetAside...)
	}
	if total == 0 {
		return
	}
	fmt.Fprintf(a.out, "\n%d tasks could not be stored and were set aside; the others go on. Offer one again when its cause is mended, with wattmark cluster aside --again TASK,\nor remove it with --drop TASK: the database of its host keeps it.\n", total)
	a.asideTable(some)
	if total > len(some) {
		fmt.Fprintf(a.out, "%d more: wattmark cluster aside\n", total-len(some))
	}
}

func (a *app) asideTable(list []relay.Aside) {
	t := newTable(a.out)
	t.AppendHeader(table.Row{"task", "user", "name", "store", "when", "why"})
	for _, x := range list {
		t.AppendRow(table.Row{x.Key, x.User, x.Name, x.Store, x.At.Local().Format(time.DateTime), x.Why})
	}
	t.Render()
}

func (a *app) clusterAsideCmd() *cobra.Command {
	var f clusterFlags
	var again, drop string
	c := &cobra.Command{
		Use: "aside", Short: "Show tasks that stores could not take, offer them again, or drop them", Args: cobra.NoArgs,
		Long: `A task that a store can never take – its messages are damaged, gone or another user's, or its
host's program is newer than the store's – is set aside with the reason, and the store goes
on with the next. Its messages stay in the stream until it is offered again and taken,
or dropped. The host's own database has it in any case.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), askCluster)
			defer cancel()
			if again != "" && drop != "" {
				return withCode(exitUsage, errors.New("either --again or --drop"))
			}
			b, err := f.dial(ctx, "aside", slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer b.Close()
			if key := firstOf(again, drop); key != "" {
				if err := b.Again(ctx, relay.Key(key), drop != ""); errors.Is(err, relay.ErrNotAside) {
					return withCode(exitNotFound, err)
				} else if err != nil {
					return err
				}
			}
			list, err := b.Asides(ctx)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			a.asideTable(list)
			return nil
		},
	}
	f.register(c.Flags(), "servers", serversUsage, usualServers())
	c.Flags().StringVar(&again, "again", "", "offer this task to all stores anew")
	c.Flags().StringVar(&drop, "drop", "", "remove this task from the cluster")
	return a.jsonFlag(c)
}
