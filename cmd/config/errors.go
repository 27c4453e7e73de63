package config

import (
	"fmt"
	"slices"
	"strings"
)

// An Error is something wrong with what the user wrote.
type Error struct {
	Where  string // the option as the user wrote it: "--vram", or "card.yaml:3:8: card.vram"
	Value  string // the value that the user gave; "" if none
	Reason string // what is wrong, and what would be accepted
}

func (e *Error) Error() string {
	if e.Value == "" {
		return e.Where + ": " + e.Reason
	}
	return fmt.Sprintf("%s: %s: %s", e.Where, e.Value, e.Reason)
}

// refusal is the error of a value, whose reason may begin with it.
func refusal(where, value, reason string) *Error {
	if rest, ok := strings.CutPrefix(reason, value+": "); ok && value != "" {
		return &Error{where, value, rest}
	}
	return &Error{Where: where, Reason: reason}
}

// plain is a name with the same sign between all its words.
func plain(name string) string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(strings.ToLower(name))
}

// meant finds the known key that a wrong one may stand for: the same words with other signs
// between them, the same last word, or the nearest spelling. It returns "" if there is none.
func meant(key string, known []string) string {
	last := func(path string) string { return path[strings.LastIndex(path, ".")+1:] }
	for _, same := range []func(k string) bool{
		func(k string) bool { return plain(k) == plain(key) },
		func(k string) bool { return plain(last(k)) == plain(key) || last(key) == k },
	} {
		if i := slices.IndexFunc(known, same); i >= 0 && !slices.ContainsFunc(known[i+1:], same) {
			return known[i]
		}
	}
	best, least := "", max(1, len(key)/2)+1
	for _, k := range known {
		if d := distance(strings.ToLower(key), strings.ToLower(k)); d < least && d < len(key) {
			best, least = k, d
		}
	}
	return best
}

// Known lists the words that a name could have been, for an error about a name that is none of
// them. It says first which one may be meant.
func Known(name string, words []string) string {
	list := strings.Join(words, ", ")
	if m := meant(name, words); m != "" {
		return fmt.Sprintf("did you mean %q? There are %s", m, list)
	}
	return "there are " + list
}

// distance counts the insertions, deletions and changes between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			if a[i] != b[j] {
				diagonal++
			}
			diagonal, row[j+1] = row[j+1], min(diagonal, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// either lists words of which one is to be taken.
func either(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
