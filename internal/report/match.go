package report

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gpuvigil/internal/metric"
)

var matcher = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)(=~|!~|!=|=)("(?:[^"\\\n]|\\.)*")$`)

// matchers joins matchers of labels as PromQL writes them. Each is read and written
// anew, so that what is asked stays one selector.
func matchers(list []string) (string, error) {
	var out []string
	for _, m := range list {
		parts := matcher.FindStringSubmatch(m)
		if parts == nil {
			return "", fmt.Errorf("--prometheus.match=%.80q is no matcher of one label: write it as cluster=\"a\", with =, !=, =~ or !~", m)
		}
		value, err := strconv.Unquote(parts[3])
		if err != nil {
			return "", fmt.Errorf("--prometheus.match=%.80q: its value is not quoted as PromQL has it: %w", m, err)
		}
		out = append(out, parts[1]+parts[2]+strconv.Quote(value))
	}
	return strings.Join(out, ","), nil
}

// of returns the selector of a metric's series that are meant.
func (a *api) of(d *metric.Def, further ...string) string {
	if a.match != "" {
		further = append(further, a.match)
	}
	if len(further) == 0 {
		return d.Name
	}
	return d.Name + "{" + strings.Join(further, ",") + "}"
}
