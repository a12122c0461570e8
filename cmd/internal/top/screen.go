// Package top shows a bench live on a terminal: messages of the monitor change a state, the
// state makes a view, and the view is drawn when it changed.
package top

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure/session"
)

// topFlags are the flags of top. every is the averaging time of a value; idle also
// samples a bench without a holder.
type topFlags struct {
	monitor string
	every   time.Duration
	once    bool
	idle    bool
	plain   bool
}

// topPoll is the period of requests for the bench and its captures, and of lines.
const topPoll = time.Second

// topCmd returns top: a screen on a terminal, else a line a second; with --json or --once one picture.
func topCmd(a *cli.App) *cobra.Command {
	var f topFlags
	c := cli.Command("top", "Watch a monitor's rails and captures live", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if f.every < 10*time.Millisecond || f.every > 10*time.Second {
				return cli.Usagef("--every %v: want 10ms to 10s", f.every)
			}
			return top(ctx, a, f)
		})
	fl := c.Flags()
	cli.MonitorFlag(fl, &f.monitor, "address of the monitor")
	fl.DurationVar(&f.every, "every", 50*time.Millisecond, "distance of the values, each an average")
	fl.BoolVar(&f.once, "once", false, "print one picture and end")
	fl.BoolVar(&f.idle, "sample-idle", true, "also sample a bench that nobody holds")
	fl.BoolVar(&f.plain, "plain", false, "print a line a second, on a terminal too")
	return a.JSONFlag(c)
}

// top connects and shows one picture, lines, or the screen, by flags and terminal.
func top(ctx context.Context, a *cli.App, f topFlags) error {
	client, err := cli.DialMeter(ctx, f.monitor, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		return err
	}
	defer client.Close()
	switch {
	case !f.once && !a.JSON && !f.plain && out.IsTerminal(a.Out):
		return topScreen(ctx, a, client, f)
	case !f.once && !a.JSON:
		return topLines(ctx, a, client, f)
	}
	s, err := snapshot(ctx, client, f)
	if err != nil {
		return err
	}
	return a.Print(s.report(), func(w io.Writer) {
		fmt.Fprintln(w, TopView{Width: out.TerminalWidth(a.Out), Now: time.Now(), Look: out.PlainLook()}.Picture(s))
	})
}

// topMessage changes the state. The caller holds the lock of the state, or is the goroutine that owns it.
type topMessage func(*topState)

// feedTop sends messages of a monitor to send until ctx ends, from two goroutines:
// one polls the bench, one watches its values. Failures are sent as messages and
// retried after topPoll, so that a viewer outlives a restart of the monitor.
func feedTop(ctx context.Context, c *monitorclient.Client, f topFlags, send func(topMessage)) {
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() {
		for range backoff.Rounds(ctx.Done(), topPoll) {
			send(askBench(ctx, c))
		}
	})
	for range backoff.Rounds(ctx.Done(), topPoll) {
		o := session.WatchOptions{Every: f.every, Idle: f.idle}
		err := c.Watch(ctx, o, func(m session.Moment) error {
			send(func(s *topState) { s.takeMoment(m) })
			return ctx.Err()
		})
		if err != nil && ctx.Err() == nil {
			send(func(s *topState) { s.TakeFailure(err) })
		}
	}
}

// askBench requests the bench and the list of its captures, and returns the change of the state by them or by the error.
func askBench(ctx context.Context, c *monitorclient.Client) topMessage {
	b, err := c.GetBench(ctx)
	var list []session.Capture
	if err == nil {
		list, err = c.Captures(ctx)
	}
	if err != nil {
		return func(s *topState) { s.TakeFailure(err) }
	}
	return func(s *topState) { s.TakeBench(b, list) }
}

// snapshot waits for a complete state: the bench and, unless it is idle and --sample-idle
// is off, two averages. It fails after 10 s.
func snapshot(ctx context.Context, c *monitorclient.Client, f topFlags) (*topState, error) {
	s := NewTopState(c.Address())
	askBench(ctx, c)(s)
	if s.err != nil || !f.idle && s.bench.Holder == "" {
		return s, s.err
	}
	watching, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	enough := errors.New("enough")
	err := c.Watch(watching, session.WatchOptions{Every: f.every, Idle: f.idle}, func(m session.Moment) error {
		s.takeMoment(m)
		// The first average may have begun before this viewer did.
		if m.Trouble != "" || s.seen > 1 {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return nil, err
	}
	// What the look at a free bench changed: the instrument's trouble, the calibration in force.
	askBench(ctx, c)(s)
	return s, s.err
}

// topLines prints a line every topPoll until ctx ends. All messages between two
// lines are applied, so a line shows the newest state.
func topLines(ctx context.Context, a *cli.App, c *monitorclient.Client, f topFlags) error {
	s, err := snapshot(ctx, c, f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex // of the state
	var feeding sync.WaitGroup
	feeding.Go(func() {
		feedTop(ctx, c, f, func(m topMessage) {
			mu.Lock()
			defer mu.Unlock()
			m(s)
		})
	})
	// Cancel before waiting: the feeding goroutine ends with ctx.
	defer func() { cancel(); feeding.Wait() }()
	for range backoff.Rounds(ctx.Done(), topPoll) {
		mu.Lock()
		line := TopLine(s, time.Now())
		mu.Unlock()
		if _, err := fmt.Fprintln(a.Out, line); err != nil {
			return err
		}
	}
	return nil
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	return cli.In(cli.Machines, help, topCmd(a))
}

// topScreen shows the picture on the alternate screen until a key or a signal ends
// it. The terminal is restored on return.
func topScreen(ctx context.Context, a *cli.App, c *monitorclient.Client, f topFlags) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	model := &topModel{
		state: NewTopState(c.Address()), view: TopView{Width: out.TerminalWidth(a.Out), height: 24, Look: out.Colours()},
	}
	if s, ok := a.Out.(*cli.Screen); ok {
		model.ascii = s.ASCII
	}
	keys := a.In
	if !out.IsTerminal(keys) {
		keys = nil // a file or /dev/null has none; a signal ends it
	}
	p := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(keys), tea.WithOutput(cli.Raw(a.Out)),
		tea.WithoutSignalHandler())
	var feeding sync.WaitGroup
	feeding.Go(func() { feedTop(ctx, c, f, func(m topMessage) { p.Send(m) }) })
	_, err := p.Run()
	cancel()
	feeding.Wait()
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, context.Canceled) {
		return nil // ended by a signal
	}
	return err
}

// topModel implements tea.Model. Its methods run on bubbletea's goroutine only.
type topModel struct {
	state *topState
	view  TopView
	// held is the frozen picture, "" while the picture moves.
	held  string
	ascii bool // the terminal has no UTF-8
}

// tickNews redraws the ages in the picture when nothing else changes.
type tickNews struct{}

// tickTop schedules the next tickNews.
func tickTop() tea.Cmd {
	return tea.Tick(topPoll, func(time.Time) tea.Msg { return tickNews{} })
}

func (m *topModel) Init() tea.Cmd { return tickTop() }

// Update applies messages, keys and sizes. A changed size releases a frozen
// picture, which was drawn for the old one.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case topMessage:
		msg(m.state)
	case tickNews:
		return m, tickTop()
	case tea.WindowSizeMsg:
		m.view.Width, m.view.height = msg.Width, msg.Height
		m.held = ""
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "p", "space":
			if m.held != "" {
				m.held = ""
			} else {
				m.held = m.picture(true)
			}
		}
	}
	return m, nil
}

// picture draws the present state, with the keys of a frozen picture where held.
func (m *topModel) picture(held bool) string {
	v := m.view
	v.Now, v.held = time.Now(), held
	return v.Picture(m.state)
}

// View draws the frozen picture, or the present state.
func (m *topModel) View() tea.View {
	text := cmp.Or(m.held, m.picture(false))
	if m.ascii {
		text = cli.ToASCII(text)
	}
	view := tea.NewView(text)
	view.AltScreen = true
	return view
}
