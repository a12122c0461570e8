package main

import (
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"wattmark/hostagent/monitorclient"
)

// topScreen shows the picture on a terminal until the user has seen enough.
func (a *app) topScreen(ctx context.Context, c *monitorclient.Client, f topFlags) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	model := &topModel{
		state: newTopState(c.Address()),
		view:  topView{width: terminalWidth(a.out), height: 24, look: colours()},
	}
	p := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(a.in), tea.WithOutput(a.out), tea.WithoutSignalHandler())
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

// colours gives the parts of the picture theirs; bubbletea leaves out what the
// terminal does not know, and all of them with NO_COLOR.
func colours() topLook {
	style := func(s lipgloss.Style) func(string) string {
		return func(text string) string { return s.Render(text) }
	}
	return topLook{
		title: style(lipgloss.NewStyle().Bold(true)),
		label: style(lipgloss.NewStyle().Faint(true)),
		// The terminal's own palette: it is readable on light and on dark.
		course: style(lipgloss.NewStyle().Foreground(lipgloss.Blue)),
		total:  style(lipgloss.NewStyle().Bold(true)),
		warn:   style(lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)),
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
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "p", "space":
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
func (m *topModel) View() tea.View {
	text := m.held
	if text == "" {
		v := m.view
		v.now = time.Now()
		text = v.picture(m.state)
	}
	view := tea.NewView(text)
	view.AltScreen = true
	return view
}
