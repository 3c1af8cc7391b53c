package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A stand-in for a database that answers at once, so that what asks is measured and not
// what answers: the role's own questions about a generated fleet, as Prometheus writes answers.
type standIn struct {
	fleet *generated
	step  time.Duration // between scrapes
}

var asksFor = regexp.MustCompile(`^\{__name__=~?"([^"]+)"\}\[(\d+)ms\]$`)

func startStandIn(t *testing.T, fleet *generated, step time.Duration) string {
	t.Helper()
	s := httptest.NewServer(&standIn{fleet, step})
	t.Cleanup(s.Close)
	return s.URL
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/label/__name__/values") {
		if err := json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": s.fleet.names}); err != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	asked := asksFor.FindStringSubmatch(r.FormValue("query"))
	seconds, err := strconv.ParseFloat(r.FormValue("time"), 64)
	if asked == nil || err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"status": "error", "errorType": "bad_data", "error": "it stands in for %s alone"}`, asksFor)
		return
	}
	window, err := strconv.Atoi(asked[2])
	if err != nil {
		panic(err) // the expression has it be a number
	}
	s.answer(w, strings.Split(asked[1], "|"), time.UnixMilli(int64(seconds*1e3)), time.Duration(window)*time.Millisecond)
}

// answer writes the samples of a window, as of each scrape.
func (s *standIn) answer(to http.ResponseWriter, names []string, until time.Time, window time.Duration) {
	w := bufio.NewWriterSize(to, 1<<20)
	w.WriteString(`{"status":"success","data":{"resultType":"matrix","result":[`)
	comma := ""
	for node := range s.fleet.nodes {
		host := generatedNode(node)
		for gpu := range 8 {
			for _, name := range names {
				fmt.Fprintf(w, `%s{"metric":{"__name__":"%s","DCGM_FI_DRIVER_VERSION":"570.124.06","Hostname":"%s","UUID":"GPU-%08x-0000-4000-8000-%012d","container":"trainer","device":"nvidia%d","gpu":"%d","instance":"%s:9400","job":"dcgm-exporter","modelName":"NVIDIA H100 80GB HBM3","namespace":"vision","pci_bus_id":"00000000:%02X:00.0","pod":"train-%d"},"values":[`,
					comma, name, host, node, gpu, gpu, gpu, host, 16+gpu, node)
				comma = ""
				for at := until.Add(-window).Truncate(s.step).Add(s.step); !at.After(until); at = at.Add(s.step) {
					if v := s.fleet.value(name, node, gpu, at); !math.IsNaN(v) {
						fmt.Fprintf(w, `%s[%d,"%s"]`, comma, at.Unix(), strconv.FormatFloat(v, 'g', -1, 64))
						comma = ","
					}
				}
				w.WriteString("]}")
				comma = ","
			}
		}
	}
	w.WriteString("]}}")
	if err := w.Flush(); err != nil {
		panic(http.ErrAbortHandler) // who asked has gone
	}
}
