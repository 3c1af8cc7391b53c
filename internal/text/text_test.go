package text

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		max  int
		want string
	}{
		"nothing to do":            {"café 70B, 東京", 20, "café 70B, 東京"},
		"white space":              {" \ta \u00a0\u3000b\r\n", 20, "a b"},
		"a line is one line":       {"a\nb\u2028c\u2029d\u0085e\vf", 20, "a b c d e f"},
		"C0, DEL":                  {"a\x00b\x1b[31mc\x7fd", 20, "a b [31mc d"},
		"C1, a terminal's CSI":     {"a\u009b31mb\u0080c", 20, "a 31mb c"},
		"bidi overrides":           {"\u202egpj.exe\u202c\u200f\u061c", 20, "gpj.exe"},
		"bidi isolates":            {"a\u2066b\u2067c\u2068d\u2069e", 20, "abcde"},
		"joiners and no width":     {"ro\u200bo\u200ct\u200d\u2060\ufeff", 20, "root"},
		"soft hyphen":              {"ro\u00adot", 20, "root"},
		"tags, an unseen alphabet": {"a\U000e0061\U000e0001b", 20, "ab"},
		"fillers and selectors":    {"a\u3164b\u115f\uffa0c\ufe0fd\u034f", 20, "abcd"},
		"private use":              {"a\ue000\U000f0000b", 20, "ab"},
		"noncharacters":            {"a\uffff\ufdd0b", 20, "ab"},
		"not UTF-8":                {"caf\xe9\xff x", 20, "caf\uFFFD x"},
		"cut at runes":             {"éééé", 3, "éé…"},
		"fits exactly":             {"éééé", 4, "éééé"},
		"no space before the cut":  {"ab cdef", 4, "ab…"},
		"unseen does not count":    {"a\u200b\u200b\u200bb", 2, "ab"},
		"one":                      {"ab", 1, "…"},
		"no room":                  {"ab", 0, ""},
		"less than no room":        {"ab", -3, ""},
		"empty":                    {"", -1, ""},
	} {
		if got := Clean(tc.in, tc.max); got != tc.want {
			t.Errorf("%s: Clean(%q, %d) = %q, want %q", name, tc.in, tc.max, got, tc.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\nb\u202ec\xff \u009b31m", 5)
	f.Add(strings.Repeat("é ", 50), 7)
	f.Fuzz(func(t *testing.T, in string, limit int) {
		got := Clean(in, limit)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > max(limit, 0) {
			t.Errorf("Clean(%q, %d) = %q: not valid, or too long", in, limit, got)
		}
		for _, r := range got {
			if r != ' ' && (unicode.IsSpace(r) || unicode.IsControl(r)) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Variation_Selector) {
				t.Errorf("Clean(%q) has %U", in, r)
			}
		}
		if strings.Contains(got, "  ") || strings.TrimSpace(got) != got {
			t.Errorf("Clean(%q) = %q: its white space is not folded", in, got)
		}
		if again := Clean(got, limit); again != got {
			t.Errorf("Clean(%q) = %q, which cleaned again is %q", in, got, again)
		}
	})
}
