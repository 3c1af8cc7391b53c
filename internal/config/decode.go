package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/prometheus/alertmanager/timeinterval"

	"gpuvigil/rules"
)

// decoder fills a struct from YAML and says of everything that does not fit
// where it stands, what was found and what is allowed. It never quotes the
// source around a mistake: a secret that was written in the wrong place must not
// reach a log.
type decoder struct {
	file    string
	anchors map[string]ast.Node
	lines   lines
	limits  limits // of the field that is read
	errs    []mistake
}

// lines is where each key of the source stands.
type lines map[string]int

// of returns the line of a key, or that of what it is missing in; 0 for what the
// source does not have.
func (l lines) of(path string) int {
	for path != "" && l[path] == 0 {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return l[path]
}

// place names a line of the file; 0 is none.
func place(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// maxDepth bounds nesting, and with it what an alias that names itself can cost.
const maxDepth = 32

// decode reads source into the struct that into points to. Fields that the
// source does not name keep their value. It returns where each key stands, nil if the
// source is no YAML, and every mistake, not only the first.
func decode(file string, source []byte, into any) (lines, []mistake) {
	d := &decoder{file: file, anchors: map[string]ast.Node{}, lines: lines{}}
	tree, err := parser.ParseBytes(source, 0)
	if err != nil {
		return nil, []mistake{{text: fmt.Sprintf("%s: not valid YAML: %s", file, firstLine(yaml.FormatError(err, false, false)))}}
	}
	documents := 0
	for _, doc := range tree.Docs {
		if doc.Body == nil {
			continue
		}
		if documents++; documents > 1 {
			d.fail(doc.Body, "", "found a second YAML document, allowed: one")
			break
		}
		d.value(doc.Body, reflect.ValueOf(into).Elem(), "", 0)
	}
	return d.lines, d.errs
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func (d *decoder) fail(n ast.Node, path, format string, args ...any) {
	line, shown := lineOf(n), cmp.Or(path, "top level")
	d.errs = append(d.errs, mistake{line, path, fmt.Sprintf("%s: %s: %s", place(d.file, line), shown, fmt.Sprintf(format, args...))})
}

// lineOf returns where a node begins; 0 if that is not known.
func lineOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return lineOf(m.Values[0])
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		return lineOf(m.Key)
	}
	if tok := n.GetToken(); tok != nil && tok.Position != nil {
		return tok.Position.Line
	}
	return 0
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// unmarshaler is what Alertmanager's types read themselves with.
type unmarshaler interface {
	UnmarshalYAML(unmarshal func(any) error) error
}

// value decodes one node into v.
func (d *decoder) value(n ast.Node, v reflect.Value, path string, depth int) {
	n = d.resolve(n, path)
	if n == nil {
		return
	}
	if depth > maxDepth {
		d.fail(n, path, "found more than %d levels, allowed: at most so many within each other", maxDepth)
		return
	}
	if _, null := n.(*ast.NullNode); null {
		return // a key without a value keeps the default
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.value(n, v.Elem(), path, depth)
		return
	}
	if v.CanAddr() && v.Addr().Type().Implements(textUnmarshaler) {
		d.text(n, v, path)
		return
	}
	if v.CanAddr() {
		if u, ok := v.Addr().Interface().(unmarshaler); ok {
			d.foreign(n, u, path, depth)
			return
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, path, func(key string, at, child ast.Node) { d.field(at, child, v, path, key, depth) })
	case reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		d.mapping(n, path, func(key string, _, child ast.Node) {
			elem := reflect.New(v.Type().Elem()).Elem()
			if old := v.MapIndex(reflect.ValueOf(key).Convert(v.Type().Key())); old.IsValid() {
				elem.Set(old)
			}
			d.value(child, elem, join(path, key), depth+1)
			v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), elem)
		})
	case reflect.Slice:
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			d.fail(n, path, "found %s, allowed: a list", describe(n))
			return
		}
		list := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
		for i, item := range seq.Values {
			at := fmt.Sprintf("%s[%d]", path, i)
			d.lines[at] = lineOf(item)
			d.value(item, list.Index(i), at, depth+1)
		}
		v.Set(list)
	default:
		d.scalar(n, v, path)
	}
}

// foreign lets a value read itself from what the decoder makes of the node.
func (d *decoder) foreign(n ast.Node, u unmarshaler, path string, depth int) {
	said := len(d.errs)
	err := u.UnmarshalYAML(func(into any) error {
		d.value(n, reflect.ValueOf(into).Elem(), path, depth+1)
		return nil
	})
	switch {
	case err == nil || len(d.errs) > said:
	case maySecret(err.Error()):
		d.fail(n, path, "found %s, allowed: %s", describe(n), intervalWords(u))
	default:
		d.fail(n, path, "found %s, allowed: %s (%v)", describe(n), intervalWords(u), err)
	}
}

// resolve follows anchors, aliases and tags to the node that holds the value.
func (d *decoder) resolve(n ast.Node, path string) ast.Node {
	for range maxDepth {
		switch t := n.(type) {
		case *ast.AnchorNode:
			d.anchors[t.Name.String()] = t.Value
			n = t.Value
		case *ast.AliasNode:
			target, ok := d.anchors[t.Value.String()]
			if !ok {
				d.fail(n, path, "found alias *%s, allowed: the name of an anchor that stands before it", t.Value)
				return nil
			}
			n = target
		case *ast.TagNode:
			d.fail(n, path, "found a YAML tag, allowed: plain values without one")
			return nil
		default:
			return n
		}
	}
	d.fail(n, path, "found aliases that go in a circle, allowed: those of values that stand before them")
	return nil
}

func (d *decoder) mapping(n ast.Node, path string, each func(key string, at, child ast.Node)) {
	var pairs []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		pairs = m.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{m}
	default:
		d.fail(n, path, "found %s, allowed: keys with values", describe(n))
		return
	}
	seen := map[string]bool{}
	for _, p := range pairs {
		key, ok := d.key(p)
		switch {
		case !ok:
			d.fail(p.Key, path, "found a key that is not a plain word, allowed: plain words")
		case seen[key]:
			d.fail(p.Key, join(path, clean(key)), "found a second time, allowed: each key once; the first is in line %d", d.lines[join(path, key)])
		default:
			seen[key] = true
			d.lines[join(path, key)] = lineOf(p.Key)
			each(key, p.Key, p.Value)
		}
	}
}

func (d *decoder) key(p *ast.MappingValueNode) (string, bool) {
	if s, ok := p.Key.(*ast.StringNode); ok {
		return s.Value, printable(s.Value)
	}
	return "", false
}

func (d *decoder) field(at, child ast.Node, v reflect.Value, path, key string, depth int) {
	fields := fieldsOf(v, map[string]field{})
	if f, ok := fields[key]; ok {
		outer := d.limits
		d.limits = f.limits
		d.value(child, f.Value, join(path, key), depth+1)
		d.limits = outer
		return
	}
	keys := slices.Sorted(maps.Keys(fields))
	d.fail(at, join(path, clean(key)), "found an unknown key, allowed: %s", strings.Join(keys, ", "))
}

// field is a field of a struct with the limits of what it may hold.
type field struct {
	reflect.Value
	limits limits
}

// fieldsOf returns a struct's fields by their keys; those of an embedded one are its own.
func fieldsOf(v reflect.Value, into map[string]field) map[string]field {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" {
			into[name] = field{v.Field(i), limitsOf(f.Tag)}
		} else if f.Anonymous {
			fieldsOf(v.Field(i), into)
		}
	}
	return into
}

func (d *decoder) text(n ast.Node, v reflect.Value, path string) {
	s, ok := scalarText(n)
	if !ok {
		d.fail(n, path, "found %s, allowed: one value", describe(n))
		return
	}
	into := v.Addr().Interface().(encoding.TextUnmarshaler)
	err := into.UnmarshalText([]byte(s))
	length, timed := into.(*Duration)
	_, severity := into.(*rules.Severity)
	switch {
	case err != nil && severity:
		d.fail(n, path, "found %q, allowed: %s, %s, %s", clean(s), rules.Info, rules.Ticket, rules.Page)
	case err != nil && timed:
		d.fail(n, path, "found %q, allowed: %s", clean(s), d.limits.of("a length of time such as 500ms, 15s, 1h30m or 7d,"))
	case err != nil:
		d.fail(n, path, "%v", err)
	case timed && !d.limits.allow(length.seconds()):
		d.fail(n, path, "found %s, allowed: %s", s, d.limits.words())
	}
}

// number refuses what is beyond the limits of its field.
func (d *decoder) number(n ast.Node, x float64, text, path string) {
	if !d.limits.allow(x) {
		d.fail(n, path, "found %s, allowed: %s", text, d.limits.words())
	}
}

func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) {
	s, ok := scalarText(n)
	if !ok {
		d.fail(n, path, "found %s, allowed: %s", describe(n), d.limits.of(kindWords(v.Kind())))
		return
	}
	wrong := func() { d.fail(n, path, "found %q, allowed: %s", clean(s), d.limits.of(kindWords(v.Kind()))) }
	switch v.Kind() {
	case reflect.String:
		if !printable(s) {
			d.fail(n, path, "found control characters in %q, allowed: a text in one line without them", clean(s))
			return
		}
		v.SetString(s)
	case reflect.Bool:
		b, isBool := n.(*ast.BoolNode)
		if !isBool {
			wrong()
			return
		}
		v.SetBool(b.Value)
	case reflect.Int:
		i, err := strconv.ParseInt(s, 10, 0)
		if err != nil {
			wrong()
			return
		}
		v.SetInt(i)
		d.number(n, float64(i), s, path)
	case reflect.Float64:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f != f || f > 1e300 || f < -1e300 {
			wrong()
			return
		}
		v.SetFloat(f)
		d.number(n, f, s, path)
	default:
		panic("BUG: configuration field " + path + " has a type that the decoder does not know: " + v.Type().String())
	}
}

// scalarText returns the text of a scalar as it stands in the file.
func scalarText(n ast.Node) (string, bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		return t.Value, true
	case *ast.LiteralNode:
		return t.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// intervalWords says what a part of Alertmanager's time intervals may be.
func intervalWords(u unmarshaler) string {
	switch u.(type) {
	case *timeinterval.Location:
		return "a name such as UTC or Europe/Berlin that this machine's time zone database has"
	case *timeinterval.WeekdayRange:
		return "a day or a range of days, such as saturday or monday:friday"
	case *timeinterval.DayOfMonthRange:
		return "a day of the month or a range, such as 1:7, from 1 to 31, or from the end: -1 to -31"
	case *timeinterval.MonthRange:
		return "a month or a range, such as january or 3:5, from 1 to 12"
	case *timeinterval.YearRange:
		return "a year or a range, such as 2026 or 2026:2027"
	case *timeinterval.TimeRange:
		return "start_time and end_time from 00:00 to 24:00, the end after the start"
	}
	return "what Alertmanager reads there"
}

func kindWords(k reflect.Kind) string {
	switch k {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	default:
		return "a text"
	}
}

func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys with values"
	case *ast.SequenceNode:
		return "a list"
	}
	if s, ok := scalarText(n); ok {
		return strconv.Quote(clean(s))
	}
	return "something else"
}

// clean shortens what is quoted back, and does not quote what looks like a
// secret in the wrong place.
func clean(s string) string {
	if maySecret(s) {
		return "[a value that may be secret]"
	}
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}

// maySecret reports whether a value looks like a token or a URL, which may hold one.
func maySecret(s string) bool {
	return slices.ContainsFunc([]string{"xox", "xapp-", "://", "Bearer "}, func(mark string) bool { return strings.Contains(s, mark) })
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
