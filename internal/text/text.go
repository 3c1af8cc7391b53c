// Package text makes text that anybody may have written (the name of a process, a
// pod or a model, a line of a library, the answer of a server) safe to show.
package text

import (
	"strings"
	"unicode"
)

// unseen are the characters that are dropped: they do not show, or not the same
// everywhere, and can make a text look like another one: directions of writing,
// joiners, variants, fillers, private characters.
var unseen = []*unicode.RangeTable{
	unicode.Cf, unicode.Co, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point,
}

// Clean returns s as one line of valid UTF-8 of at most max runes. Control
// characters (C0, DEL, C1) and line separators count as white space; white space
// is folded into single spaces and trimmed; characters that are not seen are
// dropped; bytes that are not UTF-8 become U+FFFD. What is cut off is marked with
// an ellipsis, which counts. A clean text stays as it is.
func Clean(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), unicode.IsSpace(r):
			return ' '
		case unicode.In(r, unseen...):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= max {
		return s
	}
	runes := []rune(s)
	switch {
	case len(runes) <= max:
		return s
	case max <= 0:
		return ""
	}
	return strings.TrimRight(string(runes[:max-1]), " ") + "…"
}
