package store

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tag is a tag that tasks are selected by: of this value, or of any where Value
// is empty.
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
	if !utf8.ValidString(words) || strings.ContainsFunc(words, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }) {
		return fmt.Errorf("%q: search for printable words in UTF-8", words)
	}
	if n := len(strings.Fields(words)); n > maxWords {
		return fmt.Errorf("%d words: at most %d", n, maxWords)
	}
	return nil
}

// labelled adds the conditions that a task t has all of some tags, none of others,
// and all of some words in its name, notes or tags.
func (c *conditions) labelled(all, none []Tag, search string) {
	for _, t := range all {
		c.tagged("IN", t)
	}
	for _, t := range none {
		c.tagged("NOT IN", t)
	}
	if m := matchText(search); m != "" {
		c.add("t.task_id IN (SELECT rowid FROM task_text WHERE task_text MATCH ?)", m)
	}
}

func (c *conditions) tagged(in string, t Tag) {
	if t.Value == "" {
		c.add("t.task_id "+in+" (SELECT task_id FROM task_tag WHERE key=?)", t.Key)
		return
	}
	c.add("t.task_id "+in+" (SELECT task_id FROM task_tag WHERE key=? AND value=?)", t.Key, t.Value)
}
