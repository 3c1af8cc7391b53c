package promql

import (
	"encoding/json"
	"testing"

	"gpuvigil/collector/series"
)

// What is read as an answer is JSON that says the same to encoding/json.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up","a":"\u00e9\"\\"},"values":[[1796040000.123,"1"],[1796040015,"NaN"]]}]},"warnings":["w"]}`,
		`{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[{"metric":{},"value":[1,"+Inf"]}]},"stats":{"x":[1,{"y":null}]}}`,
		`{"status":"error","errorType":"bad_data","error":"no"}`, `{"data":{"result":[{"histograms":[[1,{}]],"metric":{"a":"b"}}]}}`, `<html>`, `{"data":null,"warnings":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var labels []series.Label
		n := 0
		a, err := read(data, func(raw []byte, newest point, before int64) {
			n++
			if newest.at == never || before >= newest.at {
				t.Errorf("the newest sample is of %d, one before of %d", newest.at, before)
			}
			var bad error
			labels, bad = labelsOf(raw, labels)
			var want map[string]string
			if json.Unmarshal(raw, &want) == nil {
				if bad != nil {
					t.Errorf("labels %s: %v", raw, bad)
				}
				got := map[string]string{}
				for _, l := range labels {
					got[l.Name] = l.Value
				}
				if json.Valid(data) && len(got) != len(want) {
					t.Errorf("labels %s are read as %q", raw, labels)
				}
			}
		})
		if err == nil && n != a.series {
			t.Errorf("%d series are counted, %d were given", a.series, n)
		}
	})
}
