package backtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/metric"
)

// MapFile is the file in the directory of series that says what they are; it may be
// missing.
const MapFile = "series.json"

// mapping is what MapFile says of the files whose path begins with a prefix.
type mapping struct {
	Reading string `json:"reading"` // the catalogue's name for it; empty: an unknown gauge
	Peers   string `json:"peers"`   // files with the same name here are peers; empty: those of one directory

	def *metric.Def
}

// mappings are in the order of their prefixes, the longest last.
type mappings struct {
	prefixes []string
	of       map[string]mapping
}

func readMap(dir string) (mappings, error) {
	var m mappings
	name := filepath.Join(dir, MapFile)
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read what the series are: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(&m.of); err != nil {
		return m, fmt.Errorf(`read what the series are: %s: %w; it looks like {"node1/": {"reading": "vigil_gpu_memory_used_bytes", "peers": "job7"}}`, name, err)
	}
	for prefix, e := range m.of {
		if e.Reading != "" {
			if e.def, err = metric.ByName(e.Reading); err != nil {
				return m, fmt.Errorf("read what the series are: %s: %q: %w", name, prefix, err)
			}
			m.of[prefix] = e
		}
		m.prefixes = append(m.prefixes, prefix)
	}
	slices.SortFunc(m.prefixes, func(a, b string) int { return len(a) - len(b) })
	return m, nil
}

// find returns what is known of a file: the longest prefix counts.
func (m mappings) find(file string) mapping {
	for _, prefix := range slices.Backward(m.prefixes) {
		if strings.HasPrefix(file, prefix) {
			return m.of[prefix]
		}
	}
	return mapping{}
}

// peers returns the name of the group that the file belongs to.
func (m mappings) peers(file string) string {
	if p := m.find(file).Peers; p != "" {
		return "group " + p
	}
	return "directory " + path.Dir(file)
}

// input turns what a file says into what a detector sees of such a reading.
type input struct {
	def  *metric.Def
	last float64
	at   time.Time
}

// has reports whether there is a value that the reading can have.
func (in *input) has(x float64) bool {
	return !math.IsNaN(x) && (in.def == nil || in.def.Plausible(x))
}

// take returns what the detector sees of a value; NaN for the first of a counter, or
// one that went back, which has no rate.
func (in *input) take(at time.Time, x float64) (seen float64) {
	if in.def == nil || in.def.Kind != metric.Counter {
		return x
	}
	rate, dt := math.NaN(), at.Sub(in.at)
	if !in.at.IsZero() && dt > 0 && x >= in.last {
		rate = (x - in.last) / dt.Seconds()
	}
	in.last, in.at = x, at
	return rate
}
