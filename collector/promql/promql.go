// Package promql reads what a PromQL API has of nodes: that of Prometheus,
// VictoriaMetrics, Thanos, Mimir, or whatever else answers like them. Each interval a
// few queries bring the samples of all series that something is made of, and an
// Assembler makes snapshots of nodes of them.
//
// What is asked are range selectors at an instant: {__name__=~"a|b"}[1m]. Their answer
// has the samples as they were scraped, with their times, which no instant vector has.
// It costs the engine the same: it reads the newest chunk of each series for both.
package promql

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/collector/series"
)

// Config says what is asked. Address, Assembler and Log are required; of another field
// that is zero the default stands beside it.
type Config struct {
	Address page.Address // its URL is without /api/v1
	Headers []Header
	Match   []string // matchers that each series must have, such as cluster="a"

	Interval time.Duration // of the rounds, which are aligned to it; 30 s
	Timeout  time.Duration // of one query; 20 s
	Lookback time.Duration // how far back the first round looks, and one after a gap; 5 min
	Discover time.Duration // how often the names are listed; 5 min

	MaxBytes  int // of one answer; 128 MiB
	MaxSeries int // of one answer; 500,000

	// Found is told the names that there are and that a reader understands, in order, when
	// they are others than before; nil: nobody is.
	Found func(names []string)

	Assembler *series.Assembler
	Log       *slog.Logger

	match []string // Match, as written anew
}

func (c *Config) complete() error {
	for d, def := range map[*time.Duration]time.Duration{&c.Interval: 30 * time.Second, &c.Timeout: 20 * time.Second, &c.Lookback: 5 * time.Minute, &c.Discover: 5 * time.Minute} {
		if *d <= 0 {
			*d = def
		}
	}
	c.MaxBytes = cmp.Or(c.MaxBytes, 128<<20)
	c.MaxSeries = cmp.Or(c.MaxSeries, 500_000)
	for _, m := range c.Match {
		written, err := Matcher(m)
		if err != nil {
			return err
		}
		c.match = append(c.match, written)
	}
	for _, h := range c.Headers {
		if !headerName.MatchString(h.Name) || http.CanonicalHeaderKey(h.Name) == "Authorization" {
			return fmt.Errorf("header %.80q: it is no name of a header, or is Authorization, which comes of a token or of a user and password", h.Name)
		}
	}
	return nil
}

var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)
	matcher    = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*")\s*$`)
)

// Matcher reads a matcher of one label and writes it anew, so that what is asked stays
// one selector.
func Matcher(m string) (string, error) {
	parts := matcher.FindStringSubmatch(m)
	if parts == nil {
		return "", fmt.Errorf("%.80q is no matcher of one label: write it as cluster=\"a\", with =, !=, =~ or !~", m)
	}
	if parts[1] == "__name__" {
		return "", errors.New("a matcher of __name__ would leave out what is asked for: match another label")
	}
	value, err := strconv.Unquote(parts[3])
	if err != nil {
		return "", fmt.Errorf("%.80q: its value is not quoted as PromQL has it: %w", m, err)
	}
	return parts[1] + parts[2] + strconv.Quote(value), nil
}
