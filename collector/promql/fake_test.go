package promql

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/collector/series"
)

// noon is when the first round is of.
var noon = time.Unix(1796040000, 0).UTC()

// engine is as much of a Prometheus as the questions of a Reader need.
type engine struct {
	samples map[string][]point // by labels, as JSON
	asked   []string           // queries
	meets   func(w http.ResponseWriter, r *http.Request, query string) bool
	tail    string // of each answer, after data
}

func (e *engine) add(at time.Time, v float64, labels ...string) {
	var parts []string
	for l := range slices.Chunk(labels, 2) {
		parts = append(parts, strconv.Quote(l[0])+":"+strconv.Quote(l[1]))
	}
	key := "{" + strings.Join(parts, ",") + "}"
	if e.samples == nil {
		e.samples = map[string][]point{}
	}
	e.samples[key] = append(e.samples[key], point{at.UnixMilli(), v})
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.FormValue("query")
	e.asked = append(e.asked, r.URL.Path+" "+query)
	if e.meets != nil && e.meets(w, r, query) {
		return
	}
	var out []string
	if strings.HasSuffix(r.URL.Path, "/values") {
		for key := range e.samples {
			if name := nameOf(key); !slices.Contains(out, strconv.Quote(name)) {
				out = append(out, strconv.Quote(name))
			}
		}
		fmt.Fprintf(w, `{"status":"success","data":[%s]}`, strings.Join(out, ","))
		return
	}
	at, err := strconv.ParseFloat(r.FormValue("time"), 64)
	names, window, ok := strings.Cut(query, "}[")
	if err != nil || !ok {
		http.Error(w, `{"status":"error","errorType":"bad_data","error":"not a range selector"}`, http.StatusBadRequest)
		return
	}
	names = names[strings.Index(names, `__name__`):]
	ms, err := strconv.ParseInt(strings.TrimSuffix(window, "ms]"), 10, 64)
	if err != nil {
		panic(err)
	}
	until := int64(at * 1000)
	for key, points := range e.samples {
		if !slices.Contains(strings.Split(strings.Trim(names[strings.Index(names, `"`):], `"`), "|"), nameOf(key)) {
			continue
		}
		var values []string
		for _, p := range points {
			if p.at > until-ms && p.at <= until {
				values = append(values, fmt.Sprintf(`[%.3f,"%v"]`, float64(p.at)/1000, p.value))
			}
		}
		if len(values) > 0 {
			out = append(out, `{"metric":`+key+`,"values":[`+strings.Join(values, ",")+`]}`)
		}
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}%s}`, strings.Join(out, ","), e.tail)
}

func nameOf(key string) string {
	_, rest, _ := strings.Cut(key, `"__name__":"`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

// reading returns a reader of the engine.
func reading(t *testing.T, e *engine, change func(*Config)) *Reader {
	t.Helper()
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	cfg := Config{Address: page.Address{URL: server.URL}, Interval: 30 * time.Second, Assembler: series.New(series.Config{}), Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// gpu adds a sample of a GPU's power, as dcgm-exporter has it.
func (e *engine) gpu(at time.Time, uuid string, watts float64) {
	e.add(at, watts, "__name__", "DCGM_FI_DEV_POWER_USAGE", "gpu", "0", "UUID", uuid, "Hostname", "gpu-1", "instance", "gpu-1:9400", "job", "dcgm")
}
