package client_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/api/internal/testdb"
	"github.com/wattmark/wattmark/measure"
)

// The newest task of a user, and its mean power a tenth of a second at a time.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "wattmark")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address, stop, err := testdb.Serve(ctx, dir) // yours is where "wattmark host" listens
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	c, err := client.Dial(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for task, err := range c.Tasks(ctx, client.Query{User: "ada"}) {
		if err != nil {
			log.Fatal(err)
		}
		w := task.Window
		fmt.Printf("task %d, %s: %v ± %v in %v, %d gap\n", task.ID, task.Name, w.Energy.Energy, w.Energy.U, w.Duration, w.Gaps)
		show(ctx, c, task.ID)
		break
	}
	// Output:
	// task 2, axpy: 103 J ± 1.985 J in 800 ms, 1 gap
	// gap: 100 samples
	// 7901 samples, 128.7 W
}

func show(ctx context.Context, c *client.Client, id int64) {
	sum, n := 0.0, 0
	for item, err := range c.Samples(ctx, id, client.Range{}) {
		if err != nil {
			log.Fatal(err)
		}
		if item.Event != nil {
			fmt.Printf("%v: %d samples\n", item.Event.Kind, item.Event.Scans)
			continue
		}
		for _, p := range item.Batch.Power {
			sum += float64(p)
			n++
		}
	}
	fmt.Printf("%d samples, %.1f W\n", n, sum/float64(n))
}

// lab serves a small database and returns a client of it.
func lab() (c *client.Client, close func()) {
	dir, err := os.MkdirTemp("", "wattmark")
	if err != nil {
		log.Fatal(err)
	}
	address, stop, err := testdb.Serve(context.Background(), dir) // yours is where "wattmark host" listens
	if err != nil {
		log.Fatal(err)
	}
	if c, err = client.Dial(address); err != nil {
		log.Fatal(err)
	}
	return c, func() {
		_ = c.Close()
		stop()
		_ = os.RemoveAll(dir)
	}
}

// The tasks of one GPU whose name has an m in it, the greatest energy first, and
// what they come to.
func ExampleClient_Tasks() {
	c, close := lab()
	defer close()
	q := client.Query{Name: "*m*", GPU: "h200", MinDuration: 0.5, Order: client.ByEnergy}
	for task, err := range c.Tasks(context.Background(), q) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(task.ID, task.User, task.Window.Energy.Energy)
	}
	sum, err := c.Totals(context.Background(), q)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum.Tasks, "tasks:", sum.Energy.Energy, "±", sum.Energy.U)
	// Output:
	// 3 bob 103 J
	// 1 ada 103 J
	// 2 tasks: 205.9 J ± 3.952 J
}

func ExampleClient_Aggregate() {
	c, close := lab()
	defer close()
	rows, err := c.Aggregate(context.Background(), client.Query{}, client.PerUser)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range rows {
		fmt.Println(r.Key, r.Energy.Energy, r.Tasks)
	}
	// Output:
	// ada 205.9 J 2
	// bob 103 J 1
}

// The energy between two cursors, and what the power did there.
func ExampleClient_Energy() {
	c, close := lab()
	defer close()
	span := client.Span{From: 0.2, To: 0.3}
	r, err := c.Energy(context.Background(), 1, span)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Total.Energy, "±", r.Total.U, "in", r.Samples, "samples")
	e, err := c.Envelope(context.Background(), 1, span, 2, "slot")
	if err != nil {
		log.Fatal(err)
	}
	for _, x := range e.Series[0].Columns {
		fmt.Println(x.Number, x.Min, x.Mean, x.Max)
	}
	// Output:
	// 12.87 J ± 247.7 mJ in 1001 samples
	// 0 1 W 5.75 W 10.5 W
	// 1 1 W 5.703 W 10.5 W
}

func ExampleClient_Timeline() {
	c, close := lab()
	defer close()
	t, err := c.Timeline(context.Background(), 1, client.Span{From: 0.1, To: 0.9}, 100)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Kernels, "kernels in", len(t.Slices), "slices; merged:", t.Merged)
	// Output:
	// 0 kernels in 0 slices; merged: false
}

// What the GPU's own sensor said between a quarter and half of a second, beside what it drew.
func ExampleClient_Readings() {
	c, close := lab()
	defer close()
	span := client.Span{From: 0.25, To: 0.5}
	truth, err := c.Energy(context.Background(), 3, span)
	if err != nil {
		log.Fatal(err)
	}
	r, err := c.Readings(context.Background(), 3, span, 0, "nvml.instant")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the card drew", truth.Mean, "and there are readings of", r.Methods)
	for _, x := range r.Traces[0].Readings { // the first one still held when the span began
		fmt.Printf("%v: %v\n", x.At, measure.Watt(x.Value))
	}
	// Output:
	// the card drew 128.7 W and there are readings of [gpu.temperature_c nvml.instant]
	// 200 ms: 120 W
	// 300 ms: 130 W
	// 400 ms: 140 W
}

// What becomes of tasks while one looks on.
func ExampleClient_Watch() {
	c, close := lab()
	defer close()
	for event, err := range c.Watch(context.Background(), client.Watch{User: "ada"}) {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Kind {
		case client.Watching: // from now on nothing is missed
			if err := c.Delete(context.Background(), 2); err != nil {
				log.Fatal(err)
			}
		case client.Deleted:
			fmt.Println("task", event.Task.ID, "was deleted")
			return
		}
	}
	// Output:
	// task 2 was deleted
}

// Tags set and taken away, a remark, and the tasks that bear a tag.
func ExampleClient_SetTags() {
	c, close := lab()
	defer close()
	ctx := context.Background()
	if _, err := c.SetTags(ctx, 1, map[string]string{"node": "a3", "cooler": "air"}); err != nil {
		log.Fatal(err)
	}
	task, err := c.SetTags(ctx, 1, map[string]string{"cooler": "water"}, "node")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.Tags)
	note, err := c.AddNote(ctx, 1, "fan at 40 %")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("note", note.Number)
	for task, err := range c.Tasks(ctx, client.Query{Tags: []string{"cooler=water"}, Search: "fan"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("task", task.ID)
	}
	// Output:
	// map[cooler:water]
	// note 1
	// task 1
}

func ExampleClient_AggregateByTag() {
	c, close := lab()
	defer close()
	ctx := context.Background()
	if _, err := c.SetTags(ctx, 2, map[string]string{"node": "a3"}); err != nil {
		log.Fatal(err)
	}
	rows, err := c.AggregateByTag(ctx, client.Query{}, "node")
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range rows {
		fmt.Printf("%q %v %d\n", r.Key, r.Energy.Energy, r.Tasks)
	}
	// Output:
	// "" 205.9 J 2
	// "a3" 103 J 1
}
