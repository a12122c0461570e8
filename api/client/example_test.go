package client_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"wattmark/api/client"
	"wattmark/api/internal/testdb"
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
	// task 2, axpy: 103 J ± 1.971 J in 800 ms, 1 gap
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
