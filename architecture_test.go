// Package gpuvigil_test holds the repository to its structure: which package may
// know which, and what none of them may do.
package gpuvigil_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ban is an arrow that must not be in the import graph. In from and to, a package
// with /... at its end stands for itself and all below it; in to, std/... is the
// standard library and .../... everything outside it that is not ours.
type ban struct {
	from, to []string
	except   []string // of to
	direct   bool     // only what the package itself imports
	reason   string
}

const (
	module    = "gpuvigil"
	std       = "std/..."
	elsewhere = ".../..."
)

var bans = []ban{
	{from: []string{"internal/metric"}, to: []string{"...", elsewhere},
		reason: "the catalogue is at the bottom: everybody reads it, so it knows nobody"},
	{from: []string{"internal/text"}, to: []string{"...", elsewhere}, except: []string{"internal/text"},
		reason: "whoever shows text uses it, so it knows nobody"},
	{from: []string{"collector/..."}, to: []string{"detect/...", "rules/...", "alerting/...", "dashboards/...", "internal/server", "internal/store", "internal/config"},
		reason: "a source never knows a detector, nor who reads what it saw"},
	{from: []string{"collector/exposition"}, to: []string{"...", elsewhere}, except: []string{"collector/exposition"},
		reason: "it reads lines and does not know what they mean"},
	{from: []string{"collector/inventory"}, to: []string{"os/exec", "net", "net/http", "plugin"}, direct: true,
		reason: "the inventory reads files: it runs nothing and connects to nobody"},
	{from: []string{"collector"}, to: []string{"collector/...", elsewhere}, except: []string{"collector"},
		reason: "the snapshot is what all build on: it knows no single source and no library"},
	{from: []string{"rules/..."}, to: []string{"..."}, except: []string{"rules/...", "internal/metric"},
		reason: "the rule book carries no code of a detector, so that everything can read it"},
	{from: []string{"detect/..."}, to: []string{"..."}, except: []string{"detect/...", "collector", "rules/...", "internal/metric", "internal/text"},
		reason: "a detector knows snapshots and rules: live, replayed and in a test it is the same code"},
	{from: []string{"detect/...", "rules/..."}, to: []string{"github.com/prometheus/client_golang/...", "github.com/slack-go/...", "github.com/NVIDIA/...", "go.etcd.io/..."},
		reason: "a detector never knows Prometheus, Slack, NVML or the state file"},
	{from: []string{"detect/..."}, to: []string{"github.com/prometheus/...", "net/http"}, direct: true,
		reason: "a detector never knows Prometheus; what the rule book needs to write rule files is its own"},
	{from: []string{"alerting/..."}, to: []string{"..."}, except: []string{"alerting/...", "detect/...", "collector", "rules/...", "internal/metric", "internal/store", "internal/text"},
		reason: "alerting delivers incidents as the engine made them; where they came from is not its business"},
	{from: []string{"alerting"}, to: []string{"github.com/slack-go/..."},
		reason: "the outbox is the same for every kind of receiver"},
	{from: []string{"dashboards/..."}, to: []string{"..."}, except: []string{"dashboards/...", "rules/...", "internal/metric"},
		reason: "a dashboard is made from names alone"},
	{from: []string{"internal/server"}, to: []string{"..."}, except: []string{"internal/server", "collector", "detect/...", "rules/...", "internal/cost", "internal/metric", "internal/text"},
		reason: "the server shows the last snapshot and view: it samples nothing and notifies nobody"},
	{from: []string{"internal/push"}, to: []string{"..."}, except: []string{"internal/push", "internal/metric", "internal/text"},
		reason: "what is pushed is a page, whoever has written it"},
	{from: []string{"internal/store"}, to: []string{"..."}, except: []string{"internal/store", "internal/metric"},
		reason: "the state file keeps bytes and does not know what they mean"},
	{from: []string{"internal/price"}, to: []string{"...", elsewhere}, except: []string{"internal/price"},
		reason: "what a GPU costs does not depend on who asks"},
	{from: []string{"internal/cost"}, to: []string{"..."}, except: []string{"internal/cost", "collector", "internal/metric"},
		reason: "amounts are the language of ledger, server and reports, so they know none of them"},
	{from: []string{"internal/ledger"}, to: []string{"..."}, except: []string{"internal/ledger", "internal/cost", "internal/price", "internal/store", "collector", "detect/stream", "internal/metric", "internal/text"},
		reason: "the ledger books what snapshots say: live, replayed and in a test it is the same code"},
	{from: []string{"internal/report"}, to: []string{"..."}, except: []string{"internal/report", "internal/cost", "collector", "internal/metric", "internal/text"},
		reason: "a report is written from costs, wherever they were read"},
	{from: []string{"internal/fleet"}, to: []string{"..."}, except: []string{"internal/fleet", "internal/cost", "collector", "collector/kube", "collector/kubemeta", "collector/owner", "collector/proc", "collector/slurm", "detect/...", "rules/...", "internal/metric", "internal/text"},
		reason: "the cluster role says what the scheduler says and what the detectors make of it: it watches no node"},
	{from: []string{"..."}, to: []string{"collector/slurm"}, direct: true,
		reason: "an agent never asks Slurm's controller: the one cluster role does"},
	{from: []string{"internal/backtest"}, to: []string{"..."}, except: []string{"internal/backtest", "collector", "collector/frame", "detect/...", "rules/...", "internal/metric", "internal/text"},
		reason: "a backtest runs what runs live over files: it knows no source and no receiver"},
	{from: []string{"internal/synth"}, to: []string{"..."}, except: []string{"internal/synth", "collector", "collector/bands", "collector/demand", "rules/...", "internal/metric"},
		reason: "what judges the detectors does not know them: it makes snapshots and names the rules that would be right"},
	{from: []string{"internal/synth/trial"}, to: []string{"..."}, except: []string{"internal/synth/...", "internal/backtest", "internal/cost", "internal/ledger", "internal/price", "internal/store", "collector/...", "detect/...", "rules/...", "internal/metric", "internal/text"},
		reason: "detectors are tried by snapshots and a ledger, as an agent has them"},
	{from: []string{"internal/backtest/pods"}, to: []string{"..."}, except: []string{"internal/backtest/...", "collector", "detect/...", "rules/...", "internal/metric", "internal/text"},
		reason: "series of pods are snapshots to a detector: it knows no source and no receiver"},
	{from: []string{"internal/config"}, to: []string{"..."}, except: []string{"internal/config", "rules/...", "internal/metric"},
		reason: "the configuration is plain data; cmd hands each part to the one that it is for"},
	{from: []string{"internal/sim"}, to: []string{"..."}, except: []string{"internal/sim", "collector", "collector/bands", "collector/demand", "internal/metric"},
		reason: "simulated numbers enter where real ones do and are judged by the same code"},
	{from: []string{"..."}, to: []string{"collector/nvml"},
		reason: "NVML can hang or kill its process: only the child that cmd starts may hold it"},
	{from: []string{"..."}, to: []string{"github.com/NVIDIA/..."}, direct: true,
		reason: "one package talks to the driver, so that one place guards its symbols and its calls"},
	{from: []string{"..."}, to: []string{"google.golang.org/grpc/...", "k8s.io/..."}, direct: true,
		reason: "one package talks to the kubelet, and one to the API server"},
	{from: []string{"collector/kube"}, to: []string{"k8s.io/api/...", "k8s.io/client-go/kubernetes/...", "k8s.io/client-go/informers/...", "k8s.io/client-go/tools/cache"},
		reason: "typed clients and informers take 40 MiB of memory: of client-go there is its rest only"},
	{from: []string{"..."}, to: []string{"cmd/..."}, direct: true,
		reason: "cmd knows everybody and nobody knows it"},
	{from: []string{"collector/nvml", "collector/child"}, to: []string{"net", "net/http"}, direct: true,
		reason: "the process that holds the driver needs no network"},
	{from: []string{"cmd/..."}, to: []string{"testing", "net/http/httptest", "github.com/google/go-cmp/...", "internal/fakenvml/...", "internal/golden", "internal/sim/simfake", "internal/synth/trial", "alerting/slack/slacktest", "alerting/internal/..."},
		reason: "what tests need is not shipped"},
}

// allowed are the few packages that a ban is not meant for, by the ban's target.
var allowed = map[string][]string{
	"collector/nvml":        {"cmd/gpuvigil"},
	"collector/slurm":       {"cmd/gpuvigil", "internal/fleet"},
	"github.com/NVIDIA/...": {"collector/nvml"},

	"google.golang.org/grpc/...": {"collector/owner"},
	"k8s.io/...":                 {"collector/owner", "collector/kube"},
}

// listed is a package as go list tells it.
type listed struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
	GoFiles    []string
	CgoFiles   []string
}

// packages lists the module's packages, without their tests.
func packages(t *testing.T) []listed {
	t.Helper()
	list := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,Deps,GoFiles,CgoFiles", "./...")
	list.Env = append(os.Environ(), "CGO_ENABLED=1")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		all = append(all, p)
	}
}

func TestImportsRunOneWay(t *testing.T) {
	all := packages(t)
	for _, b := range bans {
		if !slices.ContainsFunc(all, func(p listed) bool { return matchesAny(b.from, p.ImportPath) }) {
			t.Errorf("the ban on imports of %v is about no package: the list of bans is out of date", b.from)
		}
	}
	for _, v := range violations(all, bans) {
		t.Error(v)
	}
}

// TestBansBite holds the checker itself: each ban must find what it forbids.
func TestBansBite(t *testing.T) {
	f := func(from, to string, want bool) {
		t.Helper()
		p := listed{ImportPath: from, Imports: []string{to}, Deps: []string{to}}
		if got := violations([]listed{p}, bans); (len(got) > 0) != want {
			t.Errorf("%s imports %s: forbidden %v, want %v: %v", from, to, len(got) > 0, want, got)
		}
	}
	f("gpuvigil/internal/metric", "strings", false)
	f("gpuvigil/internal/metric", "gpuvigil/rules", true)
	f("gpuvigil/internal/metric", "github.com/a/b", true)
	f("gpuvigil/collector", "gpuvigil/internal/metric", false)
	f("gpuvigil/collector", "gpuvigil/collector/host", true)
	f("gpuvigil/collector/host", "gpuvigil/detect", true)
	f("gpuvigil/collector/inventory", "os/exec", true)
	f("gpuvigil/collector/inventory", "net", true)
	f("gpuvigil/collector/inventory", "net/netip", false)
	f("gpuvigil/collector/host", "gpuvigil/collector/nvml", true)
	f("gpuvigil/collector/nvml", "github.com/NVIDIA/go-nvml/pkg/nvml", false)
	f("gpuvigil/collector/nvml", "net/http", true)
	f("gpuvigil/collector/child", "github.com/NVIDIA/go-nvml/pkg/nvml", true)
	f("gpuvigil/collector/owner", "google.golang.org/grpc", false)
	f("gpuvigil/collector/host", "google.golang.org/grpc", true)
	f("gpuvigil/collector/kube", "k8s.io/client-go/rest", false)
	f("gpuvigil/collector/kube", "k8s.io/client-go/kubernetes", true)
	f("gpuvigil/detect", "gpuvigil/detect/stream", false)
	f("gpuvigil/detect", "github.com/prometheus/client_golang/api", true)
	f("gpuvigil/rules", "github.com/slack-go/slack", true)
	f("gpuvigil/detect", "gpuvigil/internal/store", true)
	f("gpuvigil/rules", "gpuvigil/detect", true)
	f("gpuvigil/alerting", "gpuvigil/internal/store", false)
	f("gpuvigil/alerting", "gpuvigil/collector/child", true)
	f("gpuvigil/dashboards", "gpuvigil/detect", true)
	f("gpuvigil/internal/server", "gpuvigil/alerting", true)
	f("gpuvigil/cmd/gpuvigil", "gpuvigil/collector/nvml", false)
	f("gpuvigil/cmd/gpuvigil", "gpuvigil/internal/fakenvml", true)
	f("gpuvigil/cmd/gpuvigil", "testing", true)
	f("gpuvigil/internal/config", "gpuvigil/cmd/gpuvigil", true)
}

// violations returns a line for each forbidden arrow.
func violations(all []listed, bans []ban) []string {
	var out []string
	for _, b := range bans {
		for _, p := range all {
			if !matchesAny(b.from, p.ImportPath) {
				continue
			}
			imports := p.Deps
			if b.direct {
				imports = p.Imports
			}
			for _, i := range imports {
				to := match(b.to, i)
				if to == "" || matchesAny(b.except, i) || i == p.ImportPath || slices.Contains(allowed[to], strings.TrimPrefix(p.ImportPath, module+"/")) {
					continue
				}
				out = append(out, fmt.Sprintf("%s imports %s (perhaps through another package): %s", p.ImportPath, i, b.reason))
			}
		}
	}
	return out
}

func matchesAny(patterns []string, path string) bool { return match(patterns, path) != "" }

// match returns the first of the patterns that the import path fits.
func match(patterns []string, path string) string {
	ours := path == module || strings.HasPrefix(path, module+"/")
	for _, p := range patterns {
		first, _, _ := strings.Cut(p, "/")
		switch tree, open := strings.CutSuffix(p, "/..."); {
		case p == elsewhere && !ours && strings.Contains(strings.SplitN(path, "/", 2)[0], "."):
			return p
		case p == "..." && ours:
			return p
		case strings.Contains(first, ".") || p == "testing" || p == "plugin" || first == "net" || first == "os":
			if path == tree || open && strings.HasPrefix(path, tree+"/") {
				return p
			}
		case path == module+"/"+tree || open && strings.HasPrefix(path, module+"/"+tree+"/"):
			return p
		}
	}
	return ""
}

func TestOnlyGoNVMLUsesCgo(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.CgoFiles) > 0 {
			t.Errorf("%s has cgo files %v: C is called through go-nvml only", p.ImportPath, p.CgoFiles)
		}
	}
}

// deed is something that code outside of the named trees must not do.
type deed struct {
	calls  []string // package.Function
	in     []string // trees that it is forbidden in
	except []string // trees, or file:function, that may
	reason string
}

var deeds = []deed{
	{calls: []string{"os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln", "log.Panic", "log.Panicf", "log.Panicln"},
		in: []string{"..."}, except: []string{"cmd/..."},
		reason: "only the program ends the process; a package returns an error"},
	{calls: []string{"time.Now", "time.Since", "time.Until", "time.After", "time.AfterFunc", "time.Tick", "time.NewTicker", "time.NewTimer", "time.Sleep"},
		in: []string{"detect/...", "rules/...", "internal/metric", "dashboards/...", "internal/ledger", "internal/cost", "internal/price"}, except: []string{"detect/engine.go:run"}, // what looking costs is measured by the real clock
		reason: "time comes only from the snapshot, so that a replay finds what the live run found"},
	{calls: []string{"rand.Int", "rand.IntN", "rand.Float64", "rand.N", "rand.Perm", "rand.Shuffle"},
		in:     []string{"detect/...", "rules/...", "internal/sim/...", "internal/synth/..."},
		reason: "two runs over the same input give the same findings: chance comes from a seed"},
	{calls: []string{"func init"},
		in:     []string{"..."},
		reason: "what there is, is an explicit list that somebody can read"},
}

func TestNoForbiddenDeeds(t *testing.T) {
	done := map[string]bool{} // exceptions that are needed
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			where := strings.TrimPrefix(p.ImportPath, module+"/") + "/" + name
			for _, c := range callsOf(file) {
				for _, d := range deeds {
					if !slices.Contains(d.calls, c.called) || !matchesAny(d.in, p.ImportPath) {
						continue
					}
					if spot := where + ":" + c.in; slices.Contains(d.except, spot) {
						done[spot] = true
					} else if !matchesAny(d.except, p.ImportPath) {
						t.Errorf("%s, in %s: %s: %s", where, c.in, c.called, d.reason)
					}
				}
			}
		}
	}
	for _, d := range deeds {
		for _, e := range d.except {
			if strings.Contains(e, ":") && !done[e] {
				t.Errorf("the exception for %s is not needed any more", e)
			}
		}
	}
}

// call is a use of a package's function, by the function that it is in.
type call struct{ in, called string }

// callsOf lists what the file's functions use of imported packages, and init.
func callsOf(file *ast.File) []call {
	var out []call
	for _, decl := range file.Decls {
		in := "a declaration"
		if f, ok := decl.(*ast.FuncDecl); ok {
			in = f.Name.Name
			if in == "init" && f.Recv == nil {
				out = append(out, call{in, "func init"})
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok {
					out = append(out, call{in, x.Name + "." + s.Sel.Name})
				}
			}
			return true
		})
	}
	return out
}

func TestCallsAreFound(t *testing.T) {
	source := "package p\nimport \"time\"\nvar began = time.Now()\nfunc init() { _ = time.Since }\n"
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := []call{{"a declaration", "time.Now"}, {"init", "func init"}, {"init", "time.Since"}}
	if got := callsOf(file); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}
