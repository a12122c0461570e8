package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// Filter selects tasks. The zero Filter selects all.
type Filter struct {
	User string // exact
	// Name is a pattern: * is any text, ? any one character, \* and \? are themselves.
	Name         string
	Job          string // exact
	Since, Until time.Time
	GPU          string // a UUID, or a part of the model's name in either case
	States       []State
	Group        GroupID // 0 for all
	// Limits of the energy and of the length of the window, both ends included; 0 for
	// none. With one of them, only tasks that have a window are selected.
	MinEnergy, MaxEnergy     measure.Joule
	MinDuration, MaxDuration measure.Seconds
	// With all of Tags and none of Without, and with all of the words, or beginnings of
	// words, of Search in name, notes or tags.
	Tags, Without []Tag
	Search        string
}

// Check refuses a pattern that cannot be; errors wrap ErrPattern.
func (f *Filter) Check() error {
	_, err := parsePattern(f.Name)
	return err
}

// names reads the pattern for names.
func (f *Filter) names() (namePattern, error) {
	p, err := parsePattern(f.Name)
	if err != nil {
		return p, fmt.Errorf("name %q: %w", f.Name, err)
	}
	return p, nil
}

// conditions are ANDed, with their arguments.
type conditions struct {
	where []string
	args  []any
}

// add adds a condition with the arguments of its parameters, in order.
func (c *conditions) add(cond string, args ...any) {
	c.where, c.args = append(c.where, cond), append(c.args, args...)
}

// sql is the conditions as a WHERE clause with a blank behind it.
func (c *conditions) sql() string {
	if len(c.where) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(c.where, " AND ") + " "
}

// durationSQL is the length of the window.
const durationSQL = "(t.to_s-t.from_s)"

// byUser is the condition that a task is of a user.
const byUser = "t.user_id=(SELECT user_id FROM \"user\" WHERE login=?)"

// conditions are those on a row t of task; names is the parsed pattern, with the ends
// that placeNames chose.
func (f *Filter) conditions(names namePattern) *conditions {
	c := &conditions{}
	if f.User != "" {
		c.add(byUser, f.User)
	}
	if f.Name != "" {
		names.where(c)
	}
	if f.Job != "" {
		c.add("t.job=?", f.Job)
	}
	if !f.Since.IsZero() {
		c.add("t.launched_ns>=?", f.Since.UnixNano())
	}
	if !f.Until.IsZero() {
		c.add("t.launched_ns<?", f.Until.UnixNano())
	}
	if f.GPU != "" {
		c.add("(t.gpu_uuid=? OR t.bench_gpu=? OR instr(lower(t.gpu), lower(?))>0)", f.GPU, f.GPU, f.GPU)
	}
	if len(f.States) > 0 {
		states := lists.Map(f.States, func(s State) any { return int64(s) })
		if !slices.Contains(f.States, Complete) {
			c.add("t.state<>2") // there is an index of those
		}
		c.add("t.state IN (?"+strings.Repeat(",?", len(states)-1)+")", states...)
	}
	if f.Group != 0 {
		c.add("t.task_id IN (SELECT task_id FROM group_member WHERE group_id=?)", int64(f.Group))
	}
	for _, t := range f.Tags {
		c.tagged("IN", t)
	}
	for _, t := range f.Without {
		c.tagged("NOT IN", t)
	}
	// All of the words, each as the beginning of a word: quoted, signs have no meaning of their own.
	if words := strings.Fields(f.Search); len(words) > 0 {
		for i, w := range words {
			words[i] = `"` + strings.ReplaceAll(w, `"`, `""`) + `"*`
		}
		c.add("t.task_id IN (SELECT rowid FROM task_text WHERE task_text MATCH ?)", strings.Join(words, " "))
	}
	f.limits(c)
	return c
}

// limits adds the conditions on energy and duration.
func (f *Filter) limits(c *conditions) {
	for _, l := range []struct {
		cond  string
		value float64
	}{
		{"t.energy_j>=?", float64(f.MinEnergy)},
		{"t.energy_j<=?", float64(f.MaxEnergy)},
		{durationSQL + ">=?", float64(f.MinDuration)},
		{durationSQL + "<=?", float64(f.MaxDuration)},
	} {
		if l.value != 0 {
			c.add(l.cond, l.value)
		}
	}
}

// Tag is a tag that tasks are selected by: of this value, or of any where Value is empty.
type Tag struct{ Key, Value string }

// ParseTag reads key=value, or key alone for any value.
func ParseTag(s string) (Tag, error) {
	k, v, some := strings.Cut(s, "=")
	if some && v == "" {
		return Tag{}, fmt.Errorf("tag %q: write key=value, or key alone for any value", s)
	}
	return Tag{k, v}, CheckTags(map[string]string{k: v})
}

// maxWords bounds how long a search may take.
const maxWords = 32

// CheckSearch refuses words to search for that cannot be.
func CheckSearch(words string) error {
	if !utf8.ValidString(words) ||
		strings.ContainsFunc(words, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }) {
		return fmt.Errorf("%q: search for printable words in UTF-8", words)
	}
	if n := len(strings.Fields(words)); n > maxWords {
		return fmt.Errorf("%d words: at most %d", n, maxWords)
	}
	return nil
}

// tagged adds the condition that a task t has a tag, or has not.
func (c *conditions) tagged(in string, t Tag) {
	if t.Value == "" {
		c.add("t.task_id "+in+" (SELECT task_id FROM task_tag WHERE key=?)", t.Key)
		return
	}
	c.add("t.task_id "+in+" (SELECT task_id FROM task_tag WHERE key=? AND value=?)", t.Key, t.Value)
}

// ErrPattern: a pattern for names cannot be.
var ErrPattern = errors.New("bad pattern")

// maxStars bounds how long a pattern may take over a name.
const maxStars = 16

// lastRune sorts after every character: a prefix followed by it ends the range of all names
// with the prefix.
const lastRune = "\U0010FFFF"

// namePattern is a parsed pattern for names.
type namePattern struct {
	exact bool
	text  string // the whole name, where exact
	// prefix is the text before the first wildcard, glob the pattern in the form of SQLite's GLOB;
	// empty where the prefix alone decides.
	prefix, glob string
	// noLow and noHigh: that end of the prefix's range is a condition, but no bound of an index.
	noLow, noHigh bool
	few           []string // all names with the prefix, which the query binds one by one; nil for the conditions below
}

// parsePattern reads a pattern: * is any text, ? any one character; behind a backslash, * and ? and the
// backslash are themselves. Any other backslash, and every other character, is itself.
func parsePattern(s string) (p namePattern, err error) {
	var text, glob strings.Builder // text: up to the first wildcard
	wild, stars, runes := false, 0, []rune(s)
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; {
		case r == '\\' && i+1 < len(runes) && strings.ContainsRune(`*?\`, runes[i+1]):
			i++
			plain(&text, &glob, runes[i], wild)
		case r == '*' && i > 0 && runes[i-1] == '*' && strings.HasSuffix(glob.String(), "*"):
			// Two stars are one.
		case r == '*' || r == '?':
			if r == '*' {
				stars++
			}
			wild = true
			glob.WriteRune(r)
		default:
			plain(&text, &glob, r, wild)
		}
	}
	if stars > maxStars {
		return p, fmt.Errorf("%w: %d stars: at most %d", ErrPattern, stars, maxStars)
	}
	p = namePattern{exact: !wild, text: text.String(), prefix: text.String(), glob: glob.String()}
	if rest := strings.TrimPrefix(p.glob, globOf(p.prefix)); rest == "*" {
		p.glob = ""
	}
	return p, nil
}

// plain appends a character that stands for itself.
func plain(text, glob *strings.Builder, r rune, wild bool) {
	if !wild {
		text.WriteRune(r)
	}
	glob.WriteString(globOf(string(r)))
}

// NamePattern returns the pattern of a Query's name: a trailing * alone stands for any text, other signs for themselves.
func NamePattern(name string) string {
	head, prefix := strings.CutSuffix(name, "*")
	head = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(head)
	if prefix {
		head += "*"
	}
	return head
}

// globOf is a text as GLOB takes it for itself: a set of one where it would stand for more.
func globOf(text string) string {
	return strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]").Replace(text)
}

// where adds the conditions on a name.
func (p namePattern) where(c *conditions) {
	if p.exact {
		c.add("t.name=?", p.text)
		return
	}
	if p.few != nil {
		p.prefix = "" // the names have it
	}
	for _, end := range []struct {
		without     bool
		bound, test string // as the bound of an index, and so that no database takes it for one
		name        string
	}{
		{p.noLow, "t.name>=?", "(t.name<?) IS NOT TRUE", p.prefix},
		{p.noHigh, "t.name<?", "(t.name>=?) IS NOT TRUE", p.prefix + lastRune},
	} {
		switch {
		case p.prefix == "":
		case end.without:
			c.add(end.test, end.name)
		default:
			c.add(end.bound, end.name)
		}
	}
	if p.glob != "" {
		c.add("glob(?, t.name)", p.glob)
	}
}

// Note is a remark on a task.
type Note struct {
	// Number counts from 1 in the order of entry; never used again while later ones are there.
	Number int       `json:"number"`
	At     time.Time `json:"at"`
	Text   string    `json:"text"`
}

// maxKey is how long a tag's key may be, maxText a value or a note; maxTags and
// maxNotes how many of them a task may have, so that one task fits in one message.
const (
	maxKey   = 64
	maxText  = 4096
	maxTags  = 256
	maxNotes = 512
)

// CheckTags refuses tags that cannot be stored: a key is not empty, has no
// space and no "=", and does not begin with "-".
func CheckTags(tags map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		switch {
		case k == "" || len(k) > maxKey || strings.ContainsAny(k, "= \t") || strings.HasPrefix(k, "-"):
			return fmt.Errorf("tag %q: a key has 1 to %d bytes, no space and no =, and does not begin with -",
				measure.Printable(k), maxKey)
		case len(tags[k]) > maxText:
			return fmt.Errorf("tag %s: a value has at most %d bytes", measure.Printable(k), maxText)
		}
		if err := errors.Join(measure.CheckText("tag", k), measure.CheckText("value of tag "+k, tags[k])); err != nil {
			return err
		}
	}
	return nil
}

// Relabelling is a change of a task's labels.
type Relabelling struct {
	Set    map[string]string // tags
	Remove []string          // tags by key; one that is not there is no error
	Only   bool              // remove all tags but those of Set
	Pinned *bool             // nil leaves it
}

// SetTags sets tags of a task and removes others, in one transaction. Removing
// one that is not there is no error. Errors wrap ErrNotFound.
func (d *DB) SetTags(ctx context.Context, id TaskID, set map[string]string, remove []string) error {
	return d.Relabel(ctx, id, Relabelling{Set: set, Remove: remove})
}

// Relabel changes a task's tags and whether it is pinned, in one transaction. Errors wrap ErrNotFound.
func (d *DB) Relabel(ctx context.Context, id TaskID, r Relabelling) error {
	return d.write(ctx, fmt.Sprintf("label task %d", id), func(s *session) {
		s.fail(CheckTags(r.Set))
		s.must(`UPDATE task AS t SET pinned=coalesce(?,pinned) WHERE task_id=?`+d.unlessMine(id), r.Pinned, id)
		remove := r.Remove
		if r.Only {
			remove = slices.Collect(maps.Keys(readTags(s, id)))
		}
		for _, k := range remove {
			if _, stays := r.Set[k]; !stays {
				s.exec(`DELETE FROM task_tag WHERE task_id=? AND key=?`, id, k)
			}
		}
		putTags(s, id, r.Set)
		few(s, "task_tag", "a task's tags", id, maxTags)
	})
}

// few fails with ErrConflict where a task has more rows in a table than allowed.
func few(s *session, table, what string, id TaskID, most int) {
	if n := one[int](s, `SELECT count(*) FROM `+table+` WHERE task_id=?`, id); n > most {
		s.fail(fmt.Errorf("%w: %d of %s, at most %d: remove some first", ErrConflict, n, what, most))
	}
}

// putTags stores tags, in place of the values of the same keys.
func putTags(s *session, id TaskID, set map[string]string) {
	for k, v := range set {
		s.exec(upsert("task_tag", "task_id,key", "value"), id, k, v)
	}
}

// AddNote adds a remark to a task and returns its number. Errors wrap ErrNotFound.
func (d *DB) AddNote(ctx context.Context, id TaskID, at time.Time, text string) (number int, err error) {
	err = d.write(ctx, fmt.Sprintf("note on task %d", id), func(s *session) {
		s.fail(CheckNote(text))
		s.must(`UPDATE task AS t SET state=state WHERE task_id=?`+d.unlessMine(id), id)
		number = putNote(s, id, at, text)
		few(s, "task_note", "a task's notes", id, maxNotes)
	})
	return number, err
}

// CheckNote refuses a remark that cannot be stored.
func CheckNote(text string) error {
	if strings.TrimSpace(text) == "" || len(text) > maxText {
		return fmt.Errorf("a note has 1 to %d bytes, and more than spaces", maxText)
	}
	return measure.CheckText("note", text)
}

// putNote appends a note and returns its number, one above the greatest.
func putNote(s *session, id TaskID, at time.Time, text string) int {
	return one[int](s, `INSERT INTO task_note SELECT ?1, coalesce(max(number),0)+1, ?2, ?3 FROM task_note
		WHERE task_id=?1 RETURNING number`, id, at.UnixNano(), text)
}

// RemoveNote removes a remark. Errors wrap ErrNotFound.
func (d *DB) RemoveNote(ctx context.Context, id TaskID, number int) error {
	return d.write(ctx, fmt.Sprintf("remove note %d of task %d", number, id), func(s *session) {
		s.must(`DELETE FROM task_note WHERE task_id=? AND number=?`, id, number)
	})
}

// Pin keeps a task from Retain, or no longer. Errors wrap ErrNotFound.
func (d *DB) Pin(ctx context.Context, id TaskID, pinned bool) error {
	return d.Relabel(ctx, id, Relabelling{Pinned: &pinned})
}

// readTags returns nil where a task has none.
func readTags(s *session, id TaskID) (out map[string]string) {
	for rows := range s.rows(`SELECT key, value FROM task_tag WHERE task_id=?`, id) {
		var k, v string
		s.fail(rows.Scan((*text)(&k), (*text)(&v)))
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}
