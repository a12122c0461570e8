package cli

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/charmbracelet/x/ansi"
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
	drawn = "─━┤┼│╭╰═|" // lines of tables and plots keep their form
	// A number stays with its unit and its uncertainty.
	together = regexp.MustCompile(`(\d) (±|%|[A-Za-zµΩ·²]{1,5}\b)`)
	// The text behind a key keeps its column.
	keyed = regexp.MustCompile(`^ *\S+ {2,}`)
)

// wrapped breaks a line between words where it is wider than columns. Continuations are
// indented as the text behind a key, else by two columns more than an indented line.
func wrapped(line string, columns int) string {
	text := strings.TrimRight(line, " \n")
	if ansi.StringWidth(text) <= columns || strings.ContainsAny(text, drawn) {
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

var asciiOf = strings.NewReplacer("─", "-", "━", "-", "│", "|", "┤", "|", "┼", "+", "╭", ".", "╮", ".", "╰", "'", "╯", "'",
	"═", "=", "■", "*", "±", "+-", "…", "..", "–", "-", "−", "-", "×", "x", "·", ".", "²", "2", "³", "3", "⁻", "-", "¹", "1",
	"µ", "u", "Ω", "Ohm", "→", "->", "≤", "<=", "≥", ">=", "✓", "ok", "✕", "x", "°", "deg ", "σ", "sigma", "τ", "tau",
	"◐", "o", "≈", "~", "√", "sqrt ", "\u00a0", " ")

// ToASCII replaces the signs of the program's output by ASCII. Names of users' stay as they are.
func ToASCII(text string) string { return asciiOf.Replace(text) }

// wantsASCII reports whether the locale has another encoding than UTF-8. An unset locale is
// taken for UTF-8, as terminals of today have it.
func wantsASCII() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			upper := strings.ToUpper(v)
			return !slices.ContainsFunc([]string{"UTF-8", "UTF8"}, func(u string) bool { return strings.Contains(upper, u) })
		}
	}
	return false
}
