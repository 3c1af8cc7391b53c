package report

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/internal/metric"
)

const nothing = `{"status":"success","data":{"resultType":"matrix","result":[]}}`

// TestHowADatabaseIsAsked holds what is sent: who asks, for whom, and that nothing is
// left out of the answer or moved.
func TestHowADatabaseIsAsked(t *testing.T) {
	var got *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		got = r
		fmt.Fprint(w, nothing)
	}))
	defer s.Close()
	told := func(text string) func() (string, error) { return func() (string, error) { return text, nil } }
	for want, cfg := range map[string]EngineConfig{
		"Basic dTpwdw==": {User: "u", Password: told("pw")},
		"Bearer tok":     {Bearer: told("tok"), Tenant: "team-a"},
		"":               {},
	} {
		cfg.URL = s.URL + "/prefix/"
		e, err := NewEngine(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Costs(t.Context(), time.Time{}, noon); err == nil || !strings.Contains(err.Error(), "no sample") {
			t.Errorf("an empty database: %v, want it said", err)
		}
		if got.Header.Get("Authorization") != want || got.Header.Get("X-Scope-OrgID") != cfg.Tenant || got.URL.Path != "/prefix/api/v1/query_range" {
			t.Errorf("asked as %q for tenant %q at %s, want %q", got.Header.Get("Authorization"), got.Header.Get("X-Scope-OrgID"), got.URL.Path, want)
		}
		if got.Form.Get("nocache") != "1" || got.Form.Get("partial_response") != "false" {
			t.Errorf("asked with %v, want no moved steps and no partial answer", got.Form)
		}
	}
}

// TestOneClusterOfSeveral holds that each question is of the cluster that is meant: one
// without it would add up the money of all of them.
func TestOneClusterOfSeveral(t *testing.T) {
	const want = `cluster="a\"b",region!~"eu-.*"}`
	asked := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		expr := r.Form.Get("query")
		asked[expr] = true
		fmt.Fprint(w, nothing)
	}))
	defer s.Close()
	e, err := NewEngine(EngineConfig{URL: s.URL, Match: []string{`cluster="a\"b"`, `region!~"eu-.*"`}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Costs(t.Context(), time.Time{}, noon); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("nothing of the cluster: %v, want it to say which series were looked for", err)
	}
	step := span{noon, noon.Add(time.Hour)}
	at := standing{}
	if _, err := e.api.growth(t.Context(), metric.OwnerCost, 1e9, byGPU, []span{step}); err != nil {
		t.Error(err)
	}
	if _, err := e.api.replay(t.Context(), metric.OwnerCost, 1e9, []string{"gpu"}, model.Metric{"gpu": "0"}, step, &at); err != nil {
		t.Error(err)
	}
	for expr := range asked {
		if !strings.Contains(expr, want) {
			t.Errorf("asked for %s, which is of all clusters", expr)
		}
	}
	if len(asked) < 4 {
		t.Errorf("only %d questions were seen: the test would prove nothing", len(asked))
	}
	for _, bad := range []string{`cluster=a`, `cluster="a"} or vector(1)`, `{cluster="a"}`, `cluster="a",b="c"`, "", `cluster="a\z"`, `cluster=="a"`} {
		if _, err := NewEngine(EngineConfig{URL: s.URL, Match: []string{bad}}); err == nil || !strings.Contains(err.Error(), "--prometheus.match") {
			t.Errorf("the matcher %s: %v, want it refused", bad, err)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect to another host is followed, with the token")
	}))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		code int
		body string
		want string
	}{
		"error":    {422, `{"status":"error","error":"query processing would load too many samples"}`, "too many samples"},
		"warnings": {200, `{"status":"success","warnings":["store-2 is down"],"data":{"resultType":"matrix","result":[]}}`, "incomplete: store-2"},
		"login":    {200, `<html>log in</html>`, "JSON"},
		"refused":  {401, "who are you?", "401 Unauthorized: who are you?"},
		"vector":   {200, `{"status":"success","data":{"resultType":"vector","result":[]}}`, "not with a matrix"},
		"redirect": {302, elsewhere.URL, "redirects elsewhere"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.code == 302 {
				w.Header().Set("Location", c.body)
			}
			w.WriteHeader(c.code)
			fmt.Fprint(w, c.body)
		}))
		e, err := NewEngine(EngineConfig{URL: s.URL, Bearer: func() (string, error) { return "hunter2", nil }})
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Costs(t.Context(), noon.Add(-time.Hour), noon)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want it to say %q and no token", name, err, c.want)
		}
		s.Close()
	}
}

func TestWhereADatabaseCannotBe(t *testing.T) {
	failing := func() (string, error) { return "", errors.New("is empty") }
	for _, cfg := range []EngineConfig{
		{URL: "http://me:hunter2@db"}, {URL: "http://db/?token=hunter2"}, {URL: "ftp://db"}, {URL: "db:9090"}, {URL: "http://db/%zzhunter2"},
		{URL: "http://db", User: "u"}, {URL: "http://db", Password: failing}, {URL: "http://db", Bearer: failing, User: "u", Password: failing},
	} {
		if _, err := NewEngine(cfg); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v, want it refused without its secret", cfg.URL, err)
		}
	}
	e, err := NewEngine(EngineConfig{URL: "http://127.0.0.1:1", Bearer: failing})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Costs(t.Context(), noon, noon); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("a token that cannot be read: %v", err)
	}
}

// TestAccountsAreKnownByAllOfTheirLabels holds the labels that are asked for against the
// catalogue: one that is left out would make one account of two.
func TestAccountsAreKnownByAllOfTheirLabels(t *testing.T) {
	for d, by := range map[*metric.Def][]string{
		metric.OwnerSeconds: byGPU, metric.OwnerCost: append(slices.Clone(byGPU), "currency"), metric.OwnerCostAt: append(slices.Clone(byGPU), "currency", "price"),
		metric.OwnerEnergy: byModel, metric.OwnerCarbon: byModel, metric.OwnerEnergyCost: append(slices.Clone(byModel), "currency"),
	} {
		asked := slices.Sorted(slices.Values(by))
		asked = slices.DeleteFunc(asked, func(name string) bool { return name == "instance" })
		if has := slices.Sorted(slices.Values(d.LabelNames())); !slices.Equal(asked, has) {
			t.Errorf("%s has the labels %v and is asked for by %v", d, has, asked)
		}
	}
}

// TestReplayFindsWhatWasSpent follows counters that begin anew, scraped by several
// that miss samples: whatever one of them has seen counts once.
func TestReplayFindsWhatWasSpent(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		var want, v int64
		series := []*model.SampleStream{{}, {}}
		at := standing{}
		at.see(0)
		for i := range 200 {
			grows := r.Int64N(100)
			if r.IntN(50) == 0 && v > 100 { // so that it is seen to fall
				v = 0
			}
			v, want = v+grows, want+grows
			series[0].Values = append(series[0].Values, model.SamplePair{Timestamp: model.Time(2 * i), Value: model.SampleValue(v)})
			if i > 20 && i < 40 {
				series[1].Values = append(series[1].Values, model.SamplePair{Timestamp: model.Time(2*i + 1), Value: model.SampleValue(v)})
			}
		}
		moved := &model.SampleStream{Values: series[0].Values[120:]} // its agent had another address from then on
		series[0].Values = series[0].Values[:120]
		if got := follow([]*model.SampleStream{moved, series[1], series[0]}, 1, &at); got != want || at.value != v {
			t.Fatalf("spent %d and stands at %d, want %d and %d", got, at.value, want, v)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(nothing)
	f.Add(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"uuid":"a"},"values":[[1764504000,"NaN"],[1e99,"1"]]}]}}`)
	f.Fuzz(func(t *testing.T, body string) {
		a, err := newAPI(EngineConfig{URL: "http://db"})
		if err != nil {
			t.Fatal(err)
		}
		a.client.Transport = says(body)
		m, err := a.ask(t.Context(), "query_range", "up", url.Values{})
		if err == nil && m == nil && !strings.Contains(body, "null") {
			t.Errorf("%q is read as nothing, without an error", body)
		}
	})
}

// says answers every request with itself.
type says string

func (s says) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	_, err := w.WriteString(string(s))
	return w.Result(), err
}
