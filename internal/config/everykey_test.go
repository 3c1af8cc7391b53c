package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
)

// leaf is a key of the configuration with the way to it: names, "[]" for an element of a
// list, and "*" for a key that the user chooses.
type leaf struct {
	way    []string
	typ    reflect.Type
	limits limits
}

// leaves are all keys, those of routes within routes once.
func leaves() []leaf {
	var out []leaf
	within := map[reflect.Type]bool{}
	var walk func(way []string, typ reflect.Type, l limits)
	walk = func(way []string, typ reflect.Type, l limits) {
		out = append(out, leaf{slices.Clone(way), typ, l})
		if readsItself(typ) {
			return
		}
		switch typ.Kind() {
		case reflect.Pointer:
			out = out[:len(out)-1]
			walk(way, typ.Elem(), l)
		case reflect.Slice:
			walk(append(way, "[]"), typ.Elem(), l)
		case reflect.Map:
			walk(append(way, "*"), typ.Elem(), l)
		case reflect.Struct:
			if within[typ] {
				return
			}
			within[typ] = true
			for key, f := range fieldsOf(reflect.New(typ).Elem(), map[string]field{}) {
				walk(append(slices.Clone(way), key), f.Type(), f.limits)
			}
			delete(within, typ)
		}
	}
	walk(nil, reflect.TypeFor[Config](), limits{})
	return out[1:]
}

func readsItself(typ reflect.Type) bool {
	p := reflect.PointerTo(typ)
	return p.Implements(textUnmarshaler) || p.Implements(reflect.TypeFor[unmarshaler]())
}

// yaml writes a file in which the key has the value, and returns the key as errors call it,
// and its line.
func (l *leaf) yaml(value string) (text, key string, line int) {
	text = "# a comment\n"
	line = 1
	indent, dash := "", ""
	for i, step := range l.way {
		if step == "[]" {
			dash += "- "
			key += "[0]"
			if i == len(l.way)-1 {
				text, line = text+indent+dash+value+"\n", line+1
			}
			continue
		}
		if step == "*" {
			step = "chosen"
			if l.way[0] == "rules" {
				step = "xid"
			}
		}
		text += indent + dash + step + ":"
		line++
		indent += strings.Repeat(" ", len(dash)+2)
		dash, key = "", join(key, step)
		if i == len(l.way)-1 {
			text += " " + value
		}
		text += "\n"
	}
	return text, key, line
}

// wrong are values that a key of the kind cannot have.
func (l *leaf) wrong() []string {
	bell := `"a\u0007b"`
	switch kind := l.typ.Kind(); {
	case l.typ == reflect.TypeFor[Duration]():
		return []string{"99999h", "-5m", "soon", "[1m]", bell}
	case readsItself(l.typ) && kind != reflect.Struct:
		return []string{bell, "{a: 1}"}
	case readsItself(l.typ):
		return []string{bell, "[1, 2]"}
	case kind == reflect.Struct:
		return []string{"7", "[a]", bell}
	case kind == reflect.Map:
		return []string{"7", "[a]", bell}
	case kind == reflect.Slice:
		return []string{"7", "{a: 1}", bell}
	case kind == reflect.Bool:
		return []string{"maybe", "1", "[true]", bell}
	case kind == reflect.Int:
		return []string{"-987654321987", "987654321987", "many", "1.5", "[1]", bell}
	case kind == reflect.Float64:
		return []string{"-987654321987", "987654321987", "much", ".nan", ".inf", "[1]", bell}
	default:
		return []string{bell, `"a\nb"`, "[a]", "{a: 1}"}
	}
}

// Bad configuration names file, line, key, the value found and those allowed, and stops the
// start: of every key there is.
func TestEveryKeySaysWhatIsWrongWithIt(t *testing.T) {
	says := regexp.MustCompile(`\bfound .*allowed: .`)
	all := leaves()
	for _, l := range all {
		for _, value := range l.wrong() {
			text, key, line := l.yaml(value)
			_, err := Parse("gpuvigil.yml", []byte(text))
			if err == nil {
				t.Errorf("%s: %s is accepted, whatever it may be", key, value)
				continue
			}
			begin := fmt.Sprintf("gpuvigil.yml:%d: %s", line, key)
			if !slices.ContainsFunc(strings.Split(err.Error(), "\n"), func(e string) bool { return strings.HasPrefix(e, begin) && says.MatchString(e) }) {
				t.Errorf("%s: %s: no error begins with %q and says what was found and what is allowed:\n%v", key, value, begin, err)
			}
		}
	}
	if len(all) < 250 {
		t.Errorf("there are %d keys: they are no longer all looked at", len(all))
	}
}

// A number or a length of time without bounds lets a slip of the pen through that switches
// something off for years.
func TestEveryNumberIsBounded(t *testing.T) {
	for _, l := range leaves() {
		kind := l.typ.Kind()
		if l.typ != reflect.TypeFor[Duration]() && kind != reflect.Int && kind != reflect.Float64 {
			continue
		}
		_, key, _ := l.yaml("")
		low, high := quantity(l.limits.low), quantity(l.limits.high)
		if !(low < high) || low < 0 {
			t.Errorf("%s has no bounds that can be read: %q to %q", key, l.limits.low, l.limits.high)
			continue
		}
		for _, bound := range []string{l.limits.low, l.limits.high} {
			text, key, _ := l.yaml(bound)
			if _, err := Parse("gpuvigil.yml", []byte(text)); err != nil && strings.Contains(err.Error(), key+": found "+bound+", allowed: "+l.limits.words()) {
				t.Errorf("%s: its own bound %s is refused: %v", key, bound, err)
			}
			if _, err := strconv.ParseFloat(bound, 64); err != nil {
				if _, err := model.ParseDuration(bound); err != nil {
					t.Errorf("%s: the bound %q is neither a number nor a length of time", key, bound)
				}
			}
		}
	}
}

// What stands in a list and says nothing, a slip of the pen, is not taken for everything.
func TestEmptyEntriesOfListsAreRefused(t *testing.T) {
	for _, l := range leaves() {
		if l.way[len(l.way)-1] != "[]" || l.typ.Kind() != reflect.String {
			continue
		}
		text, key, line := l.yaml(`""`)
		_, err := Parse("gpuvigil.yml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("gpuvigil.yml:%d: %s: ", line, key)) || !strings.Contains(err.Error(), "allowed: ") {
			t.Errorf("%s: an empty entry gives %v, want an error in line %d that says what is allowed", key, err, line)
		}
	}
}
