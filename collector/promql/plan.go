package promql

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxNames and maxExpr bound one selector: VictoriaMetrics takes 16 KiB.
const (
	maxNames = 32
	maxExpr  = 6 << 10
)

// group is names that are asked for together.
type group struct {
	names []string
	until time.Time // up to when it was answered
}

// plan makes groups of names. Groups that there were stay as they are as far as they are
// still wanted: they may have been halved.
func plan(old []*group, names []string, source func(string) string) []*group {
	var out []*group
	known := map[string]bool{}
	for _, g := range old {
		g.names = slices.DeleteFunc(g.names, func(n string) bool {
			_, wanted := slices.BinarySearch(names, n)
			known[n] = true
			return !wanted
		})
		if len(g.names) > 0 {
			out = append(out, g)
		}
	}
	fresh := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return known[n] })
	slices.SortFunc(fresh, func(a, b string) int { return cmp.Or(cmp.Compare(source(a), source(b)), cmp.Compare(a, b)) })
	var last *group
	size := 0
	for i, n := range fresh {
		if last == nil || len(last.names) >= maxNames || size+len(n) > maxExpr || source(n) != source(fresh[i-1]) {
			last, size = &group{}, 0
			out = append(out, last)
		}
		last.names = append(last.names, n)
		size += len(n) + 1
	}
	return out
}

// halves returns the two halves of the group; one name has none.
func (g *group) halves() []*group {
	if len(g.names) < 2 {
		return nil
	}
	half := len(g.names) / 2
	return []*group{{g.names[:half:half], g.until}, {g.names[half:], g.until}}
}

// selector returns the selector of the names' series.
func (c *Config) selector(names ...string) string {
	matchers := slices.Clone(c.match)
	if len(names) == 1 {
		matchers = append(matchers, "__name__="+strconv.Quote(names[0]))
	} else {
		matchers = append(matchers, "__name__=~"+strconv.Quote(strings.Join(names, "|")))
	}
	return "{" + strings.Join(matchers, ",") + "}"
}

// expr returns what is asked for the group's samples in the time before.
func (c *Config) expr(g *group, window time.Duration) string {
	return c.selector(g.names...) + "[" + strconv.FormatInt(window.Milliseconds(), 10) + "ms]"
}
