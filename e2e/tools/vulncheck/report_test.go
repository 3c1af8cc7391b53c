package main

import (
	"strings"
	"testing"
)

const config = `{"config": {"go_version": "go1.26.8", "scan_level": "symbol"}}`

func TestParseKeepsNearestReach(t *testing.T) {
	rep, err := parse(strings.NewReader(config + `
{"osv": {"id": "GO-1", "summary": "reads too far"}}
{"finding": {"osv": "GO-1", "trace": [{"module": "m", "version": "v1.0.0"}]}}
{"finding": {"osv": "GO-1", "trace": [
  {"module": "m", "version": "v1.0.0", "package": "m/p", "receiver": "*T", "function": "F"},
  {"module": "us", "package": "us/cmd", "function": "main", "position": {"filename": "cmd/main.go", "line": 7}}]}}
{"finding": {"osv": "GO-1", "trace": [{"module": "m", "version": "v1.0.0", "package": "m/p"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	rep.write(&out)
	const want = `FAIL: GO-1 m@v1.0.0: reads too far
      m/p.T.F, reached from us/cmd.main (cmd/main.go:7); no version fixes it
vulnerabilities called in modules: 1 (each fails), in the standard library of go1.26.8: 0; in the build but not called: 0
`
	if out.String() != want {
		t.Errorf("report:\n%s\nwant:\n%s", &out, want)
	}
	if !rep.failed() {
		t.Error("a called vulnerability with no fix passes")
	}
}

func TestParseRefuses(t *testing.T) {
	tests := map[string]struct{ stream, want string }{
		"nothing":              {``, `scan level ""`},
		"a scan of modules":    {`{"config": {"scan_level": "module"}}`, `scan level "module"`},
		"a cut stream":         {config + `{"finding": {"osv"`, "unexpected EOF"},
		"a finding of nothing": {config + `{"finding": {"osv": "GO-1"}}`, "GO-1 names no module"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(strings.NewReader(tc.stream)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
