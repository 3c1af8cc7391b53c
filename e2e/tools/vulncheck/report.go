package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// message is the part of govulncheck's stream (golang.org/x/vuln/internal/govulncheck, protocol v1) that the verdict needs.
type message struct {
	Config *struct {
		GoVersion string `json:"go_version"`
		ScanLevel string `json:"scan_level"`
	} `json:"config"`
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV          string  `json:"osv"`
		FixedVersion string  `json:"fixed_version"`
		Trace        []frame `json:"trace"`
	} `json:"finding"`
}

// frame is one step from a vulnerable symbol (the first frame) up to our own code (the last).
type frame struct {
	Module   string `json:"module"`
	Version  string `json:"version"`
	Package  string `json:"package"`
	Receiver string `json:"receiver"`
	Function string `json:"function"`
	Position *struct {
		Filename string `json:"filename"`
		Line     int    `json:"line"`
	} `json:"position"`
}

func (f frame) symbol() string {
	if f.Receiver != "" {
		return f.Package + "." + strings.TrimPrefix(f.Receiver, "*") + "." + f.Function
	}
	return f.Package + "." + f.Function
}

// reach says how near the code is to a vulnerability; a later one includes the earlier.
type reach int

const (
	required reach = iota // the module is in the build list
	imported              // the vulnerable package is in the build
	called                // a path of calls leads to the vulnerable symbol
)

type vulnerability struct {
	id, module string
}

type finding struct {
	vulnerability
	version, fixed string
	reach          reach
	trace          []frame
}

// standard tells the Go distribution's own code from a module that go.mod can upgrade.
func (f finding) standard() bool { return f.module == "stdlib" || f.module == "toolchain" }

type report struct {
	goVersion string
	summaries map[string]string
	// findings has each vulnerability once, at its nearest reach, sorted by id and module.
	findings []finding
}

// parse reads govulncheck's JSON stream. It fails on a stream that does not come from a scan for called symbols, since an
// absent finding would mean nothing there.
func parse(r io.Reader) (*report, error) {
	rep := &report{summaries: map[string]string{}}
	nearest := map[vulnerability]finding{}
	level := ""
	for dec := json.NewDecoder(r); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading govulncheck's output: %w", err)
		}
		if m.Config != nil {
			rep.goVersion, level = m.Config.GoVersion, m.Config.ScanLevel
		}
		if m.OSV != nil {
			rep.summaries[m.OSV.ID] = m.OSV.Summary
		}
		if m.Finding == nil {
			continue
		}
		if len(m.Finding.Trace) == 0 {
			return nil, fmt.Errorf("govulncheck's finding %s names no module", m.Finding.OSV)
		}
		f := newFinding(m.Finding.OSV, m.Finding.FixedVersion, m.Finding.Trace)
		if have, ok := nearest[f.vulnerability]; !ok || f.reach > have.reach {
			nearest[f.vulnerability] = f
		}
	}
	if level != "symbol" {
		return nil, fmt.Errorf("govulncheck's output is of scan level %q, want symbol", level)
	}
	for _, f := range nearest {
		rep.findings = append(rep.findings, f)
	}
	slices.SortFunc(rep.findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.module, b.module))
	})
	return rep, nil
}

func newFinding(id, fixed string, trace []frame) finding {
	f := finding{vulnerability: vulnerability{id, trace[0].Module}, version: trace[0].Version, fixed: fixed, trace: trace}
	switch {
	case trace[0].Function != "":
		f.reach = called
	case trace[0].Package != "":
		f.reach = imported
	}
	return f
}

func (r *report) failed() bool {
	return slices.ContainsFunc(r.findings, func(f finding) bool { return f.reach == called && !f.standard() })
}

func (r *report) write(w io.Writer) {
	var failing, standard, uncalled int
	for _, f := range r.findings {
		switch {
		case f.reach != called:
			uncalled++
			continue
		case f.standard():
			standard++
			fmt.Fprint(w, "note: ")
		default:
			failing++
			fmt.Fprint(w, "FAIL: ")
		}
		fmt.Fprintf(w, "%s %s@%s: %s\n      %s; %s\n", f.id, f.module, f.version, r.summaries[f.id], path(f.trace), remedy(f))
	}
	fmt.Fprintf(w, "vulnerabilities called in modules: %d (each fails), in the standard library of %s: %d; in the build but not called: %d\n",
		failing, r.goVersion, standard, uncalled)
}

// path names the vulnerable symbol and the place in our own code from which it is reached.
func path(trace []frame) string {
	entry := trace[len(trace)-1]
	if entry.Position == nil {
		return trace[0].symbol() + ", reached from " + entry.symbol()
	}
	return fmt.Sprintf("%s, reached from %s (%s:%d)", trace[0].symbol(), entry.symbol(), entry.Position.Filename, entry.Position.Line)
}

func remedy(f finding) string {
	switch {
	case f.fixed == "":
		return "no version fixes it"
	case f.standard():
		return "fixed in Go " + strings.TrimPrefix(f.fixed, "v")
	default:
		return "go get " + f.module + "@" + f.fixed
	}
}
