package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// get asks the server as a browser on the same machine would.
func get(t *testing.T, s *Server, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost:9400"+path, nil)
	r.RemoteAddr = "127.0.0.1:40000"
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func pageOf(t *testing.T, w *world) string {
	t.Helper()
	answer := get(t, w.server(t), "/")
	if answer.Code != http.StatusOK {
		t.Fatalf("the page answers %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// inWords strips the page of its style and tags.
func inWords(html string) string {
	html = regexp.MustCompile(`(?s)<style>.*</style>|<[^>]*>`).ReplaceAllString(html, " ")
	return strings.Join(strings.Fields(html), " ")
}

func TestPageOfANodeInHTML(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		golden.Check(t, filepath.Join("testdata", "node.html"), pageOf(t, node(time.Now())), "the page is another")
	})
}

// TestPageToLookAt writes the page to the file that PAGE names, to be looked at
// in a browser.
func TestPageToLookAt(t *testing.T) {
	path := os.Getenv("PAGE")
	if path == "" {
		t.Skip("PAGE names no file to write the page to")
	}
	w := node(time.Now())
	w.snap.Simulated = os.Getenv("SIMULATED") != ""
	if os.Getenv("CALM") != "" {
		w.view.Findings, w.view.Incidents = nil, nil
	}
	if err := os.WriteFile(path, []byte(pageOf(t, w)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPageSaysWhatIsWrongFirst(t *testing.T) {
	// only is a node whose GPUs all answer, with one finding.
	only := func(sev rules.Severity, change func(*world)) func(time.Time) *world {
		return func(now time.Time) *world {
			w := node(now)
			w.snap.GPUs[3], w.snap.GPUs[6] = h100(3, now), h100(6, now)
			f := w.view.Findings[1]
			f.Severity = sev
			w.view = &detect.View{Time: now, Findings: []detect.Finding{f}}
			if change != nil {
				change(w)
			}
			return w
		}
	}
	for name, c := range map[string]struct {
		world    func(time.Time) *world
		headline string
		also     string
	}{
		"page":   {only(rules.Page, nil), "1 thing needs you now", "page GPU saturated"},
		"ticket": {only(rules.Ticket, nil), "1 thing needs somebody today", "very sure: p = 1e-6 over 9 min"},
		"info":   {only(rules.Info, nil), "Nothing needs you", "info GPU saturated"},
		"calm": {only(rules.Info, func(w *world) { w.view.Findings = nil }),
			"Nothing is wrong", "8 GPUs: 6 busy, 1 idle, 1 MIG · 4.1 kW · CPU 11 %"},
		"sick": {func(now time.Time) *world { w := node(now); w.view = &detect.View{}; return w },
			"2 things need you now", "hung GPU 3 does not answer; last reading 42 s ago. lost GPU 6 does not answer"},
		"blind": {only(rules.Ticket, func(w *world) { w.snap.Sources[0].Last = w.snap.Time.Add(-time.Minute) }),
			"Not everything can be seen", "nvml: last good sample 1 min ago, expected every 1 s"},
		"stopped": {only(rules.Info, func(w *world) { w.snap.Time = w.snap.Time.Add(-time.Minute) }),
			"1 thing needs you now", "the sampler has stopped"},
		"starting": {func(time.Time) *world { return &world{} }, "Starting", "The first samples are being taken."},
		"released": {only(rules.Info, func(w *world) { w.view, w.released = nil, w.snap.Time.Add(time.Hour) }),
			"Nothing is wrong", "The GPU driver is released until 01:00:00 UTC"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				html := pageOf(t, c.world(time.Now()))
				if !strings.Contains(html, "<h1>"+c.headline+"</h1>") {
					t.Errorf("the headline is not %q:\n%s", c.headline, inWords(html))
				}
				if !strings.Contains(inWords(html), c.also) {
					t.Errorf("the page does not say %q:\n%s", c.also, inWords(html))
				}
			})
		})
	}
}

func TestCardSaysWhatToDo(t *testing.T) {
	html := inWords(pageOf(t, node(soon())))
	for _, want := range []string{
		"First Drain the node and power-cycle it; the second time in 30 days, replace the GPU.", // the finding's own
		"First " + rules.Get(rules.IDSaturatedGPU).Action,                                       // the rule's
		"First Tell the application&#39;s owner.",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q:\n%s", want, html)
		}
	}
	if strings.Count(html, "Meaning ") != 2 {
		t.Errorf("want the meaning with the page and the ticket, not with what is only worth knowing:\n%s", html)
	}
}

// What is silenced elsewhere is said with the incident, in words that nobody else chose.
func TestCardSaysWhatIsMuted(t *testing.T) {
	w := node(soon())
	id := w.view.Incidents[0].ID
	w.muted = map[string][]Mute{id: {
		{Receiver: "am", By: "silence", ID: "s1", Until: time.Date(2026, 3, 1, 14, 5, 0, 0, time.UTC), Comment: "being\nreplaced <b>"},
		{Receiver: "am", By: "inhibition", ID: "abc"}, {Receiver: "am", By: "time_interval", ID: "nights"},
	}, "another": {{By: "inhibition"}}}
	html := inWords(pageOf(t, w))
	for _, want := range []string{
		"Muted silenced in Alertmanager until 2026-03-01 14:05 UTC: being replaced &lt;b&gt;",
		"Muted inhibited in Alertmanager by another alert", "Muted muted in Alertmanager by the time interval nights",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q:\n%s", want, html)
		}
	}
	if n := strings.Count(html, "Muted "); n != 3 {
		t.Errorf("the page says %d times that an incident is muted, want 3", n)
	}
	var answer Findings
	if err := json.Unmarshal(get(t, w.server(t), "/api/v1/findings").Body.Bytes(), &answer); err != nil || len(answer.Muted[id]) != 3 {
		t.Errorf("the API says %v, %v", answer.Muted, err)
	}
}

// What a reading was is not what it is: nobody knows how hot a lost GPU is.
func TestChartsTellOldReadingsFromCurrentOnes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		want   []string
		never  []string
	}{
		"a GPU that answers": {func(*world) {}, []string{"utilization 90 %", "power draw 600 W"}, nil},
		"a lost GPU":         {func(*world) {}, []string{"power draw n/a now, last 572 W at 31 Dec 23:54"}, []string{"power draw 572 W"}},
		"a GPU that hangs": {func(w *world) { w.view.Findings[1].Subject.ID = w.snap.GPUs[3].UUID },
			[]string{"utilization n/a now, last"}, []string{"utilization 9"}},
		"a GPU that nobody sees any more": {func(w *world) { w.view.Findings[1].Subject.ID = "GPU-gone-4" }, []string{"power draw n/a now, last"}, []string{"power draw 6"}},
		"a sampler that stopped":          {func(w *world) { w.snap.Time = w.snap.Time.Add(-time.Minute) }, []string{"utilization n/a now, last"}, []string{"utilization 90 %", "power draw 600 W"}},
		"the node": {func(w *world) {
			w.view.Findings[1].Subject = detect.Subject{Kind: "node", ID: "gpu-117"}
			w.view.Findings[1].GPUIndex = -1
			w.history = lastMinutes(metric.CPUBusy, 0.5)
		}, []string{"node cpu busy 11 %"}, []string{"50 %"}},
		"an endpoint": {func(w *world) {
			w.view.Findings[1].Subject = detect.EndpointSubject(&w.snap.Endpoints[0])
			w.view.Findings[1].GPUIndex = -1
			w.history = lastMinutes(metric.RequestsWaiting, 20.0/3)
		}, []string{"requests waiting 38"}, nil},
		"an endpoint that does not answer": {func(w *world) {
			w.view.Findings[1].Subject = detect.EndpointSubject(&w.snap.Endpoints[0])
			w.snap.Endpoints = nil
			w.history = lastMinutes(metric.RequestsWaiting, 20.0/3)
		}, []string{"requests waiting n/a now, last 6.7 at 31 Dec 23:59"}, []string{"waiting 38"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := node(time.Now())
				c.change(w)
				html := inWords(pageOf(t, w))
				for _, want := range c.want {
					if !strings.Contains(html, want) {
						t.Errorf("the page does not say %q:\n%s", want, html)
					}
				}
				for _, bad := range c.never {
					if strings.Contains(html, bad) {
						t.Errorf("the page says %q as if it were so now:\n%s", bad, html)
					}
				}
			})
		})
	}
}

// lastMinutes is a history in which the reading had the value until a minute ago.
func lastMinutes(d *metric.Def, v float64) func(detect.Subject) []detect.History {
	return func(detect.Subject) []detect.History {
		h := detect.History{Reading: d}
		for m := range 9 {
			h.Points = append(h.Points, detect.Point{Time: time.Now().Add(time.Duration(m-9) * time.Minute), Min: v, Mean: v, Max: v})
		}
		return []detect.History{h}
	}
}

func TestSimulatedPageSaysSo(t *testing.T) {
	w := node(soon())
	if strings.Contains(pageOf(t, w), "Simulated") {
		t.Error("a real node's page says that it is simulated")
	}
	w.snap.Simulated = true
	if !strings.Contains(inWords(pageOf(t, w)), "Simulated None of these numbers comes from a real GPU.") {
		t.Error("a simulated node's page does not say so")
	}
}

func TestUntrustedNamesAreHarmless(t *testing.T) {
	const script, mention, bidi = `<script>alert(1)</script>`, `<!channel>`, "evil\u202etxt.exe"
	w := node(soon())
	s := w.snap
	for i, name := range []string{script, mention, bidi, "\xff\x00\x1b[31m", `"><img src=x onerror=alert(1)>`} {
		process(s, i, 100+i, name, collector.Owner{Kind: "pod", ID: name, Team: name}, 100<<30, 0.5)
		s.GPUs[i].Model, s.GPUs[i].UUID = name, name
		s.GPUs[i].Owners = []collector.Owner{{Kind: "pod", ID: name}}
	}
	s.Node.Name, s.Node.Versions[0].Value, s.Sources[2].Err = script, mention, script
	s.Endpoints[0].Model, s.Instances[0].Profile = script, mention
	f := &w.view.Findings[1]
	f.Evidence.Seen, f.Evidence.Why, f.Evidence.Expected, f.GPUModel = script, mention, script, script
	f.Owner = collector.Owner{Kind: script, ID: script}
	f.Before = []collector.Event{{Kind: "x", Text: script, UUID: mention}}
	html := pageOf(t, w)
	for _, bad := range []string{"<script", "<!channel", "<img", "\u202e", "\x1b", "\x00", "\xff", "ZgotmplZ"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if !strings.Contains(html, "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Error("the name is not shown as text")
	}
}

func TestTenThousandProcesses(t *testing.T) {
	w := node(soon())
	w.snap.Processes = nil
	for i := range 10000 {
		process(w.snap, i%8, i, fmt.Sprintf("worker-%d", i), collector.Owner{}, float64(i<<20), 0.1)
	}
	html := pageOf(t, w)
	if got := strings.Count(html, "worker-"); got != maxListed {
		t.Errorf("%d processes are listed, want %d", got, maxListed)
	}
	for _, want := range []string{"worker-9999", "9980 more are not listed"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if len(html) > 100<<10 {
		t.Errorf("the page has %d bytes", len(html))
	}
}

func TestManyFindingsFitOnThePage(t *testing.T) {
	w := node(soon())
	f := w.view.Findings[1]
	w.view = &detect.View{Time: w.snap.Time}
	for i := range 100 {
		f.Subject.ID = fmt.Sprint(i)
		w.view.Findings = append(w.view.Findings, f)
	}
	big := detect.Incident{Rule: f.Rule, Severity: rules.Page, State: detect.Firing, Members: w.view.Findings[:50]}
	w.view.Incidents = []detect.Incident{big}
	html := pageOf(t, w)
	if got := strings.Count(html, "<article"); got != maxCards {
		t.Errorf("%d cards, want %d", got, maxCards)
	}
	for _, want := range []string{"and 41 more", "31 further findings are not on this page"} {
		if !strings.Contains(inWords(html), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestStyleIsTheOneThatThePolicyAllows(t *testing.T) {
	answer := get(t, node(soon()).server(t), "/")
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(answer.Body.String())
	if style == nil {
		t.Fatal("the page has no style")
	}
	sum := sha256.Sum256([]byte(style[1]))
	policy := answer.Header().Get("Content-Security-Policy")
	if want := "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
		t.Errorf("a browser would refuse the style: policy %q lacks %q", policy, want)
	}
	for _, bad := range []string{"unsafe", "script-src"} {
		if strings.Contains(policy, bad) {
			t.Errorf("policy %q says %s", policy, bad)
		}
	}
	if regexp.MustCompile(`<[^>]* (style|on[a-z]+)=`).MatchString(answer.Body.String()) {
		t.Error("an element has a style or a handler of its own, which the policy refuses")
	}
}

func TestPauseStopsReloading(t *testing.T) {
	s := node(soon()).server(t)
	for path, reloads := range map[string]bool{"/": true, "/?paused": false} {
		if got := strings.Contains(get(t, s, path).Body.String(), `http-equiv="refresh"`); got != reloads {
			t.Errorf("%s reloads itself: %v, want %v", path, got, reloads)
		}
	}
}

func TestSparkline(t *testing.T) {
	now := time.Unix(1e9, 0)
	point := func(minutesAgo int, v float64) detect.Point {
		return detect.Point{Time: now.Add(-time.Duration(minutesAgo) * time.Minute), Min: v, Mean: v, Max: v}
	}
	for name, c := range map[string]struct {
		points []detect.Point
		top    float64
		line   string
	}{
		"nothing":         {nil, 1, ""},
		"one point":       {[]detect.Point{point(5, 1)}, 1, ""},
		"half":            {[]detect.Point{point(60, 0), point(59, 0.5)}, 1, "M0.0 23.0L2.0 12.0"},
		"before the hour": {[]detect.Point{point(70, 0), point(61, 0.5)}, 1, ""},
		"a gap":           {[]detect.Point{point(60, 0), point(59, 0), point(30, 1), point(29, 1)}, 1, "M0.0 23.0L2.0 23.0M60.0 1.0L62.0 1.0"},
		"over the top":    {[]detect.Point{point(60, 900), point(59, -1)}, 700, "M0.0 1.0L2.0 23.0"},
		"no scale":        {[]detect.Point{point(60, 0), point(59, 0)}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if s := newSpark(c.points, now, c.top); s != nil {
				got = s.Line
			}
			if got != c.line {
				t.Errorf("line %q, want %q", got, c.line)
			}
		})
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 400 * time.Millisecond: "0.4 s", 42 * time.Second: "42 s", 6 * time.Minute: "6 min",
		190 * time.Minute: "3 h 10 min", 52 * time.Hour: "2 d",
	} {
		if got := duration(d); got != want {
			t.Errorf("duration(%d) = %q, want %q", d, got, want)
		}
	}
	const text = "5.8 s, 7 % of 80 GiB after 2 h 30 min at 1 of 2 hosts, since 10:17:04 UTC"
	if got, want := strings.ReplaceAll(bound(text), "\u00a0", "_"), "5.8_s, 7_% of 80_GiB after 2_h 30_min at 1 of 2 hosts, since 10:17:04_UTC"; got != want {
		t.Errorf("units are bound to their numbers as %q, want %q", got, want)
	}
	if got := oneLine(" a\nb\x00\u202ec\xff " + strings.Repeat("x", 400)); got != "a b c\uFFFD "+strings.Repeat("x", maxText-8)+"…" {
		t.Errorf("oneLine: %q", got)
	}
}

// Who looks at the page sees that the numbers are another exporter's, and that a GPU which
// that leaves out need not be lost.
func TestPageOfANodeReadFromAnExporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(time.Now())
		w.snap.Sources[0].Name = "gpu_exporter"
		w.snap.Pages = []collector.Page{{Source: "gpu_exporter", URL: "http://127.0.0.1:9400/metrics", Exporter: "dcgm-exporter", Names: "until 4.8", Utilization: "percent", GPUs: true}}
		w.snap.GPUs[0].Present = false
		html := inWords(pageOf(t, w))
		for _, want := range []string{"gpu_exporter http://127.0.0.1:9400/metrics, dcgm-exporter, names until 4.8, utilization in percent", "not listed"} {
			if !strings.Contains(html, want) {
				t.Errorf("the page does not say %q:\n%s", want, html)
			}
		}
	})
}
