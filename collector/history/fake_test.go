package history

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/page"
	"gpuvigil/collector/series"
)

// noon is when the tests' past begins.
var noon = time.Unix(1796040000, 0).UTC()

// server is as much of a Prometheus as range selectors need.
type server struct {
	mu      sync.Mutex
	names   []string
	nodes   int
	every   time.Duration // between samples
	from    time.Time     // of the first
	to      time.Time     // of the last
	most    int           // samples of one answer, 0: no limit
	meets   func(w http.ResponseWriter, r *http.Request) bool
	queries []string
}

func newServer(t testing.TB, s *server) (*server, page.Address) {
	t.Helper()
	at := httptest.NewServer(s)
	t.Cleanup(at.Close)
	return s, page.Address{URL: at.URL}
}

// power is what the sample of a node's GPU at a time is.
func power(node int, at time.Time) float64 { return float64(100*node) + float64(at.Unix()%7919)/100 }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meets != nil && s.meets(w, r) {
		return
	}
	if strings.HasSuffix(r.URL.Path, "/values") {
		fmt.Fprintf(w, `{"status":"success","data":["up","%s"]}`, strings.Join(s.names, `","`))
		return
	}
	query := r.FormValue("query")
	s.queries = append(s.queries, query)
	until, err := strconv.ParseFloat(r.FormValue("time"), 64)
	of, window, _ := strings.Cut(query, "}[")
	ms, err2 := strconv.ParseInt(strings.TrimSuffix(window, "ms]"), 10, 64)
	if err != nil || err2 != nil || r.Method != http.MethodPost {
		http.Error(w, `{"status":"error","errorType":"bad_data","error":"no range selector"}`, http.StatusBadRequest)
		return
	}
	end := time.UnixMilli(int64(until * 1000))
	begin := end.Add(-time.Duration(ms) * time.Millisecond)
	var out strings.Builder
	samples := 0
	for _, name := range s.names {
		if !slices.Contains(strings.Split(strings.Split(of, `"`)[1], "|"), name) {
			continue
		}
		for node := range s.nodes {
			fmt.Fprintf(&out, `%s{"metric":{"__name__":%q,"Hostname":"n%d","UUID":"GPU-%d","gpu":"0","instance":"n%d:9400","job":"dcgm","pod":"a\"\u0062"},"values":[`, comma(samples), name, node, node, node)
			first := true
			for at := s.from; !at.After(s.to); at = at.Add(s.every) {
				if at.After(begin) && !at.After(end) {
					fmt.Fprintf(&out, `%s[%s,"%v"]`, comma(b2i(!first)), strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', -1, 64), power(node, at))
					samples, first = samples+1, false
				}
			}
			out.WriteString("]}")
			samples++
		}
	}
	if s.most > 0 && samples > s.most {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}`)
		return
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]},"warnings":["a, [b"],"stats":{"x":[1,-2.5e3,null,{"y":true}]}}`, out.String())
}

func comma(n int) string {
	if n > 0 {
		return ","
	}
	return ""
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// look is what one round of snapshots had of a GPU.
type look struct {
	At    time.Time
	Node  string
	Power float64
}

func looks(into *[]look) func(time.Time, []*collector.Snapshot) error {
	return func(now time.Time, nodes []*collector.Snapshot) error {
		for _, s := range nodes {
			for i := range s.GPUs {
				*into = append(*into, look{now, s.Node.Name, powerOf(&s.GPUs[i])})
			}
		}
		return nil
	}
}

func assembler() *series.Assembler { return series.New(series.Config{}) }
