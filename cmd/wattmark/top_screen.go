package main

import (
	"context"
	"errors"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"wattmark/hostagent/monitorclient"
)

// topScreen shows the picture on a terminal until the user has seen enough.
func (a *app) topScreen(ctx context.Context, c *monitorclient.Client, f topFlags) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	model := &topModel{
		state: newTopState(c.Address()),
		view:  topView{width: terminalWidth(a.out), height: 24, look: colours(lipgloss.NewRenderer(a.out))},
	}
	p := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(a.in), tea.WithOutput(a.out), tea.WithAltScreen(), tea.WithoutSignalHandler())
	done := make(chan struct{})
	go func() {
		defer close(done)
		feedTop(ctx, c, f, func(m topMessage) { p.Send(m) })
	}()
	_, err := p.Run()
	cancel()
	<-done
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, context.Canceled) {
		return nil // asked to by a signal
	}
	return err
}

// colours gives the parts of the picture theirs, as far as the terminal has any.
func colours(r *lipgloss.Renderer) topLook {
	style := func(s lipgloss.Style) func(string) string {
		return func(text string) string { return s.Render(text) }
	}
	return topLook{
		title: style(r.NewStyle().Bold(true)),
		label: style(r.NewStyle().Faint(true)),
		// The terminal's own palette: it is readable on light and on dark.
		course: style(r.NewStyle().Foreground(lipgloss.Color("4"))),
		total:  style(r.NewStyle().Bold(true)),
		warn:   style(r.NewStyle().Foreground(lipgloss.Color("1")).Bold(true)),
	}
}

// topModel is the picture as bubbletea runs it.
type topModel struct {
	state *topState
	view  topView
	held  string // the picture that is held; empty for none
}

// tickNews renews the ages in the picture.
type tickNews struct{}

func tickTop() tea.Cmd {
	return tea.Tick(topPoll, func(time.Time) tea.Msg { return tickNews{} })
}

// Init begins to tick.
func (m *topModel) Init() tea.Cmd { return tickTop() }

// Update takes news, keys and sizes.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case topMessage:
		msg.apply(m.state)
	case tickNews:
		return m, tickTop()
	case tea.WindowSizeMsg:
		m.view.width, m.view.height = msg.Width, msg.Height
		m.held = ""
	case tea.KeyMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "p", " ":
			if m.held != "" {
				m.held = ""
				return m, nil
			}
			v := m.view
			v.now, v.held = time.Now(), true
			m.held = v.picture(m.state)
		}
	}
	return m, nil
}

// View draws.
func (m *topModel) View() string {
	if m.held != "" {
		return m.held
	}
	v := m.view
	v.now = time.Now()
	return v.picture(m.state)
}
