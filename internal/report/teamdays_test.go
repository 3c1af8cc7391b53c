package report

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What teams have spent by the end of each day, also on a node that has gone, and on one
// that was silent for a day.
func TestTeamsByDay(t *testing.T) {
	month := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	now := month.Add(3*day + 5*time.Hour)
	at := func(d int) int64 { return month.AddDate(0, 0, d).Unix() }
	series := func(instance, values string) string {
		return fmt.Sprintf(`{"metric":{"instance":%q,"team":"nlp","currency":"USD"},"values":[%s]}`, instance, values)
	}
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		asked = append(asked, r.Form.Get("query"))
		result := series("a", fmt.Sprintf(`[%d,"5"]`, now.Unix()))
		if strings.Contains(r.Form.Get("query"), "max_over_time") {
			result = strings.Join([]string{
				series("a", fmt.Sprintf(`[%d,"1"],[%d,"2"],[%d,"4"]`, at(1), at(2), at(3))),
				series("gone", fmt.Sprintf(`[%d,"10"]`, at(1))),
			}, ",")
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, result)
	}))
	defer s.Close()
	e, err := NewEngine(EngineConfig{URL: s.URL, Match: []string{`cluster="a"`}, Authorize: func(r *http.Request) error {
		r.Header.Set("X-Key", "v")
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.TeamDays(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]TeamDays{{Team: "nlp", Currency: "USD", Ends: []float64{11, 12, 14}, Gone: 10}}, got); diff != "" {
		t.Errorf("teams' days differ (-want +got):\n%s", diff)
	}
	if len(asked) != 2 || !strings.Contains(asked[0], `{cluster="a"}[72000s]`) {
		t.Errorf("it was asked %q", asked)
	}
	if first, err := e.TeamDays(t.Context(), month.Add(time.Hour)); err != nil || first != nil || len(asked) != 2 {
		t.Errorf("on the first day of a month there is no whole day: %v, %v", first, err)
	}
}
