package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/wattmark/wattmark/internal/backoff"
	"golang.org/x/term"
)

// Screen writes text for people to a stream. On a terminal it wraps lines between words at
// the terminal's width; in ASCII it replaces what is not. The beginning of a line is written
// at once, as prompts need it, and is not broken by what follows. It is safe for concurrent use.
type Screen struct {
	w        io.Writer
	Terminal bool
	Columns  int  // to wrap at; 0 for no limit
	ASCII    bool // for terminals and locales without UTF-8

	mu    sync.Mutex
	begun string // the line that has no end yet, as written
}

// NewScreen returns a screen on a stream. wide lets lines be as long as they are, ascii
// writes ASCII alone.
func NewScreen(w io.Writer, wide, ascii bool) *Screen {
	s := &Screen{w: w, ASCII: ascii}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.Terminal = true
	if !wide {
		s.Columns = s.Width()
	}
	return s
}

// Raw returns the stream below a screen, for data and for the output of programs; any other
// writer is returned as it is.
func Raw(w io.Writer) io.Writer {
	if s, ok := w.(*Screen); ok {
		return s.w
	}
	return w
}

// Width returns the number of columns of the terminal; 80 if it is unknown.
func (s *Screen) Width() int {
	if f, ok := s.w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// Write writes text; the count is of p, whatever it became.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := string(p)
	if s.ASCII {
		text = ToASCII(text)
	}
	if s.Columns > 0 {
		lines := strings.SplitAfter(text, "\n")
		for i, l := range lines {
			whole := wrapped(s.begun+l, s.Columns)
			if rest, ok := strings.CutPrefix(whole, s.begun); ok {
				lines[i] = rest
			} else if rest, ok = strings.CutPrefix(whole, strings.TrimRight(s.begun, " ")); ok {
				lines[i] = rest
			}
			if s.begun += lines[i]; strings.HasSuffix(l, "\n") {
				s.begun = ""
			}
		}
		text = strings.Join(lines, "")
	}
	if _, err := io.WriteString(s.w, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

var (
	// Lines of tables and plots keep their form.
	drawn = regexp.MustCompile(`[─━┤┼│╭╰═]|(^| )\||\|( |$)`)
	// A number stays with its unit and its uncertainty.
	together = regexp.MustCompile(`(\d) (±|%|[A-Za-zµΩ·²]{1,5}\b)`)
	// The text behind a key keeps its column.
	keyed = regexp.MustCompile(`^ *\S+ {2,}`)
)

// wrapped breaks a line between words where it is wider than columns. Continuations are
// indented as the text behind a key, else by two columns more than an indented line.
func wrapped(line string, columns int) string {
	text := strings.TrimRight(line, " \n")
	if ansi.StringWidth(text) <= columns || drawn.MatchString(text) {
		return line
	}
	end := line[len(text):] // the space behind a prompt stays
	hang := len(text) - len(strings.TrimLeft(text, " "))
	if key := keyed.FindString(text); key != "" {
		hang = ansi.StringWidth(key)
	} else if hang > 0 {
		hang += 2
	}
	if hang > columns/2 {
		hang = 2
	}
	const joint = "\u00a0"
	var b strings.Builder
	at := 0
	text = strings.ReplaceAll(together.ReplaceAllString(text, "$1"+joint+"$2"), "± ", "±"+joint)
	for i, word := range strings.Split(text, " ") {
		w := ansi.StringWidth(word)
		switch {
		case i == 0:
		case at+1+w > columns && at > hang:
			b.WriteString("\n" + strings.Repeat(" ", hang))
			at = hang
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += w
	}
	return strings.ReplaceAll(b.String(), joint, " ") + end
}

// joined returns a text of help with the lines of each paragraph, and those of the text behind a key, joined into one,
// for a screen that wraps it. Lists and other indented lines stay.
func joined(text string) string {
	var lines []string
	hang := 0
	for line := range strings.SplitSeq(text, "\n") {
		plain := strings.TrimLeft(line, " ")
		last := len(lines) - 1
		if last >= 0 && lines[last] != "" && plain != "" && len(line)-len(plain) == hang &&
			(hang > 0 || lines[last][0] != ' ') && plain[:1] != "*" && !strings.HasPrefix(plain, "- ") {
			lines[last] += " " + plain
			continue
		}
		lines, hang = append(lines, line), ansi.StringWidth(keyed.FindString(line))
	}
	return strings.Join(lines, "\n")
}

var asciiOf = strings.NewReplacer("─", "-", "━", "-", "│", "|", "┤", "|", "┼", "+", "╭", ".", "╮", ".", "╰", "'", "╯", "'",
	"═", "=", "■", "*", "±", "+-", "…", "..", "–", "-", "−", "-", "×", "x", "·", ".", "²", "2", "³", "3", "⁻", "-", "¹", "1",
	"µ", "u", "Ω", "Ohm", "→", "->", "≤", "<=", "≥", ">=", "✓", "ok", "✕", "x", "°", "deg ", "σ", "sigma", "τ", "tau",
	"◐", "o", "≈", "~", "√", "sqrt ", "▁", "_", "▂", ".", "▃", ":", "▄", "-", "▅", "=", "▆", "+", "▇", "*", "█", "#", "\u00a0", " ")

// ToASCII replaces the signs of the program's output by ASCII. Names of users' stay as they are.
func ToASCII(text string) string { return asciiOf.Replace(text) }

// wantsASCII reports whether the locale has another encoding than UTF-8. An unset locale is
// taken for UTF-8, as terminals of today have it.
func wantsASCII() bool {
	locale := strings.ToUpper(cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")))
	return locale != "" && !strings.Contains(locale, "UTF-8") && !strings.Contains(locale, "UTF8")
}

const (
	progressAfter = 2 * time.Second        // what ends sooner shows nothing
	progressEvery = 250 * time.Millisecond // between two drawings
)

// Progress shows on a terminal's line how far a command is, and the time that is left at the pace so far. It
// appears after two seconds and is removed by End. The methods of nil do nothing. It is safe for concurrent use.
type Progress struct {
	w    io.Writer
	what string
	wide int // columns

	mu       sync.Mutex
	note     string
	done, of int
	begin    time.Time
	drawn    bool

	ended   chan struct{}
	end     sync.Once
	stopped sync.WaitGroup
}

// Progress begins to show the progress of what. It returns nil where standard error is no terminal, and with
// --quiet or --json.
func (a *App) Progress(what string) *Progress {
	s, ok := a.Err.(*Screen)
	if !ok {
		s = NewScreen(a.Err, false, a.ASCII || wantsASCII())
	}
	if !s.Terminal || a.Quiet || a.JSON {
		return nil
	}
	p := &Progress{w: Raw(s), what: what, wide: s.Width(), begin: time.Now(), ended: make(chan struct{})}
	p.stopped.Go(p.draw)
	return p
}

// Set notes that done of the units in all are done, as the callbacks of package store report them. A total that
// is not known is 0.
func (p *Progress) Set(done, of int) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done, p.of = min(done, of), of
	}
}

// Note shows a text behind the figures: the step that runs.
func (p *Progress) Note(text string) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.note = text
	}
}

// End removes the line; later calls do nothing.
func (p *Progress) End() {
	if p == nil {
		return
	}
	p.end.Do(func() {
		close(p.ended)
		p.stopped.Wait()
		if p.drawn {
			fmt.Fprint(p.w, "\r\x1b[K")
		}
	})
}

func (p *Progress) draw() {
	for range backoff.Every(p.ended, progressEvery) {
		if time.Since(p.begin) >= progressAfter {
			p.drawn = true
			fmt.Fprint(p.w, "\r\x1b[K"+ansi.Truncate(p.line(), p.wide-1, "~"))
		}
	}
}

// line returns what the line says: with a known total, percent and the time left, else the time taken.
func (p *Progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, taken := p.what, time.Since(p.begin)
	if p.done > 0 {
		share := float64(p.done) / float64(p.of)
		left := time.Duration(float64(taken) * (1 - share) / share)
		text += fmt.Sprintf(": %d %%, %v left", int(100*share), left.Round(time.Second))
	} else {
		text += fmt.Sprintf(": %v", taken.Round(time.Second))
	}
	if p.note != "" {
		text += ", " + p.note
	}
	return text
}
