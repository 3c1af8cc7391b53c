package backtest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector/frame"
	"gpuvigil/detect"
	"gpuvigil/internal/sim"
	"gpuvigil/rules"
)

var recordedAt = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

// recorded is a recording of the scenario e2e, a frame every five seconds. Xid 31 falls after 15 s, Xid 79 after 25 s, the driver changes after 80 s.
func recorded(t *testing.T, node string, lasts time.Duration) []byte {
	t.Helper()
	scenario, err := sim.ScenarioByName("e2e")
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Seed: 1, Start: recordedAt, Scenario: scenario, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := frame.NewWriter(&b)
	for at := time.Duration(0); at < lasts; at += 5 * time.Second {
		if err := w.Write(n.Part(recordedAt.Add(at))); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func fileOf(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.rec")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func truth(kind string, id rules.ID, from, to time.Duration) Truth {
	return Truth{Kind: kind, Rules: []rules.ID{id}, From: recordedAt.Add(from), To: recordedAt.Add(to)}
}

func TestReplayIsJudgedByLabels(t *testing.T) {
	path := fileOf(t, recorded(t, "n1", 25*time.Minute))
	r, err := Replay(t.Context(), ReplayOptions{Recordings: []string{path}, Labelled: true, Truths: []Truth{
		truth("errors", rules.IDXid, 10*time.Second, 10*time.Minute),
		truth("a switch", rules.IDSXid, 0, 10*time.Minute),
		truth("next year", rules.IDXid, 9000*time.Hour, 9001*time.Hour),
		{Kind: "elsewhere", Node: "n2", Rules: []rules.ID{rules.IDXid}, From: recordedAt, To: recordedAt.Add(time.Hour)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	rec := r.Recordings[0]
	if rec.Node != "n1" || rec.Frames != 300 || rec.GPUs != 8 || !rec.From.Equal(recordedAt) {
		t.Errorf("the recording is told as %+v", rec)
	}
	if want := 8 * (25*time.Minute - 5*time.Second); rec.Watched != want {
		t.Errorf("8 GPUs were watched for %v of GPU time, want %v", rec.Watched, want)
	}
	if len(r.Found) != 2 || r.Outside != 2 {
		t.Fatalf("%d labels are of the recorded time and %d are not, want 2 and 2", len(r.Found), r.Outside)
	}
	if f := r.Found[0]; f.Rule != rules.IDXid || f.After != 5*time.Second {
		t.Errorf("the errors were found by %q after %v, want xid after 5 s", f.Rule, f.After)
	}
	if f := r.Found[1]; f.Rule != "" {
		t.Errorf("an error of a switch that never was is found by %q", f.Rule)
	}
	if got := r.Figures.Recall(); got != 0.5 {
		t.Errorf("recall is %v, want one of two", got)
	}
	for _, in := range r.False {
		if in.Incident.Rule == rules.IDXid {
			t.Errorf("an Xid that the labels explain counts as false")
		}
	}
}

func TestReplayGoesAsFarAsTheRecording(t *testing.T) {
	whole := recorded(t, "n1", 25*time.Minute)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(whole); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	packed := b.Bytes()
	damaged := bytes.Clone(packed)
	damaged[len(damaged)-8] ^= 4 // its checksum
	for name, c := range map[string]struct {
		content []byte
		frames  int
		damaged int
		fails   string
	}{
		"whole":               {whole, 300, 0, ""},
		"cut off":             {whole[:len(whole)*2/3], 150, 0, "cut off"},
		"cut off early":       {whole[:len(whole)/30], 5, 0, "cut off"},
		"one bit wrong":       {flipped(whole), 299, 1, ""},
		"empty":               {nil, 0, 0, "no whole frame"},
		"cut at once":         {whole[:100], 0, 0, "no whole frame"},
		"packed":              {packed, 300, 0, ""},
		"packed, cut":         {packed[:len(packed)*2/3], 100, 0, "cut off"},
		"packed, cut early":   {packed[:200], 0, 0, "no whole frame"},
		"packed, end damaged": {damaged, 250, 0, "is missing in the result"},
		"something":           {[]byte("timestamp,value\n1,2\n3,4\n5,6\n7,8\n9,0\n1,2\n"), 0, 0, "no stream of gpuvigil frames"},
	} {
		r, err := Replay(t.Context(), ReplayOptions{Recordings: []string{fileOf(t, c.content)}})
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.fails)
		}
		if c.frames == 0 {
			if r != nil {
				t.Errorf("%s: there are results of what cannot be read: %+v", name, r)
			}
			continue
		}
		if rec := r.Recordings[0]; rec.Frames < c.frames || rec.Damaged != c.damaged {
			t.Errorf("%s: %d frames were replayed and %d damaged, want %d and %d", name, rec.Frames, rec.Damaged, c.frames, c.damaged)
		}
		text, data := written(t, r.WriteText), written(t, r.WriteJSON)
		if cut := c.fails != ""; strings.Contains(text, "could be read up to "+stamp(r.Recordings[0].To)) != cut || strings.Contains(data, `"missing"`) != cut {
			t.Errorf("%s: the results say that something is missing: want %v\n%s\n%s", name, cut, text, data)
		}
	}
}

// flipped is the content with one bit changed in the middle of a frame.
func flipped(content []byte) []byte {
	out := bytes.Clone(content)
	out[len(out)-len(out)/300/2] ^= 4
	return out
}

func TestReplayIsWritten(t *testing.T) {
	const hostile = `n1<script>alert(1)</script>`
	r, err := Replay(t.Context(), ReplayOptions{Recordings: []string{fileOf(t, recorded(t, hostile, 25*time.Minute))}, Labelled: true,
		Truths: []Truth{truth("<b>errors</b>", rules.IDXid, 0, 10*time.Minute)}})
	if err != nil {
		t.Fatal(err)
	}
	text, page, data := written(t, r.WriteText), written(t, r.WriteCharts), written(t, r.WriteJSON)
	for _, want := range []string{"page", "xid", "PRECISION", "A WEEK AT 2000 GPUS", "Xid 79"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table does not tell %q:\n%s", want, text)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "<b>errors") || !strings.Contains(page, "&lt;script&gt;") {
		t.Error("a node's name or a label is markup on the page with the charts")
	}
	for _, outside := range []string{"http://", "https://", "src=", "@import"} {
		if strings.Contains(page, outside) {
			t.Errorf("the page with the charts loads something from elsewhere: it has %q", outside)
		}
	}
	var got struct {
		Incidents []struct{ Rule, Label, Severity string }
		Figures   struct{ Recall float64 }
		Alerts    []struct {
			Severity string
			AtMost   float64 `json:"a_gpu_week_at_most"`
		}
	}
	if err := json.Unmarshal([]byte(data), &got); err != nil {
		t.Fatalf("the JSON cannot be read: %v", err)
	}
	if len(got.Incidents) == 0 || got.Incidents[0].Rule != "xid" || got.Incidents[0].Label != "right" || got.Figures.Recall != 1 {
		t.Errorf("the JSON tells %+v", got)
	}
	if len(got.Alerts) != 3 || got.Alerts[0].Severity != "page" || got.Alerts[0].AtMost <= 0 {
		t.Errorf("the JSON tells of alerts %+v", got.Alerts)
	}
}

func written(t *testing.T, to func(io.Writer) error) string {
	t.Helper()
	var b strings.Builder
	if err := to(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOneFrameIsNoTime(t *testing.T) {
	r, err := Replay(t.Context(), ReplayOptions{Recordings: []string{fileOf(t, recorded(t, "n1", time.Second))}})
	if err != nil {
		t.Fatal(err)
	}
	if text := written(t, r.WriteText); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Errorf("rates over no time are printed:\n%s", text)
	}
	if data := written(t, r.WriteJSON); strings.Contains(data, "a_gpu_week") {
		t.Errorf("rates over no time are told:\n%s", data)
	}
}

func TestWhatCannotBeReadIsLeftOut(t *testing.T) {
	good, empty, dir := fileOf(t, recorded(t, "n1", time.Minute)), fileOf(t, nil), t.TempDir()
	absent := filepath.Join(dir, "absent.rec")
	r, err := Replay(t.Context(), ReplayOptions{Recordings: []string{empty, good, dir, absent}})
	for _, want := range []string{empty + ": there is no whole frame", dir + ": is a directory", absent + ": no such file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	if len(r.Recordings) != 1 || r.Recordings[0].Node != "n1" {
		t.Errorf("the results are of %+v, want those of the one recording that can be read", r.Recordings)
	}
	if text := written(t, r.WriteText); strings.Contains(text, "0001-") {
		t.Errorf("what was not read is told to be of the year 1:\n%s", text)
	}
}

func TestARecordingCountsOnce(t *testing.T) {
	content := recorded(t, "n1", time.Minute)
	one, copied := fileOf(t, content), fileOf(t, content)
	link := filepath.Join(linked(t, "link", one), "link")
	for _, twice := range []string{one, copied, link} {
		r, err := Replay(t.Context(), ReplayOptions{Recordings: []string{one, twice}})
		if err == nil || !strings.Contains(err.Error(), "the same recording as "+one) {
			t.Errorf("%s beside %s: error %v, want it said that they are the same", twice, one, err)
		}
		if want := 8 * 55 * time.Second; len(r.Recordings) != 1 || r.Figures.Watched != want {
			t.Errorf("%s beside %s: %v of GPU time count, want %v", twice, one, r.Figures.Watched, want)
		}
	}
	r, err := Replay(t.Context(), ReplayOptions{Recordings: []string{one, fileOf(t, recorded(t, "n2", time.Minute))}})
	if err != nil || len(r.Recordings) != 2 {
		t.Errorf("of two different recordings %d count, error %v", len(r.Recordings), err)
	}
}

// Nothing seen is not nothing proved, and nothing found is not found at once.
func TestNothingIsToldAsNothing(t *testing.T) {
	r, err := Replay(t.Context(), ReplayOptions{Recordings: []string{fileOf(t, recorded(t, "n1", 10*time.Second))}, Labelled: true,
		Truths: []Truth{truth("a switch", rules.IDSXid, 0, time.Minute), truth("next year", rules.IDXid, 9000*time.Hour, 9001*time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	text := written(t, r.WriteText)
	// 3 in 8 GPUs times 5 s, in weeks, for 10,000 GPUs: 453,000,000
	if want := fmt.Sprintf("0 (at most %s)", decimal(UpperBound(0, 40/week.Seconds())*10000)); !strings.Contains(text, want) || !strings.Contains(want, "453000000") {
		t.Errorf("the table does not tell what none in so short a time proves, %q:\n%s", want, text)
	}
	if strings.Contains(text, "e+") || strings.Contains(text, " 0s") || !strings.Contains(text, "-  ") {
		t.Errorf("the table has an exponent, or a delay of what was not found:\n%s", text)
	}
	if !strings.Contains(text, "1 label is of no recorded time and does not count.") {
		t.Errorf("one label is not told in the singular:\n%s", text)
	}
	var got struct {
		Labels  []map[string]any
		Figures map[string]any
		Alerts  []struct {
			Mosts map[string]float64 `json:"a_week_by_gpus_at_most"`
		}
	}
	if err := json.Unmarshal([]byte(written(t, r.WriteJSON)), &got); err != nil {
		t.Fatal(err)
	}
	for where, in := range map[string]map[string]any{"delay_median_seconds": got.Figures, "delay_p95_seconds": got.Figures, "after_seconds": got.Labels[0]} {
		if v, there := in[where]; !there || v != nil {
			t.Errorf("%s is %v in JSON where nothing was found, want null", where, v)
		}
	}
	if most := got.Alerts[0].Mosts["10000"]; most < 4.5e8 || most > 4.6e8 {
		t.Errorf("at most %v pages a week at 10,000 GPUs in JSON, want 453 million", most)
	}
}

func TestDecimal(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 517234.2: "517200", 0.00001234567: "0.00001235", 3: "3", 2.99573: "2.996", 1e21: "1000000000000000000000"} {
		if got := decimal(x); got != want {
			t.Errorf("%g is written as %s, want %s", x, got, want)
		}
	}
}

// TestATicketInAPage: a rule that may not page is told as what it is, also in an incident
// that pages by another one.
func TestATicketInAPage(t *testing.T) {
	at := func(minute int) time.Time { return recordedAt.Add(time.Duration(minute) * time.Minute) }
	link := detect.Finding{Rule: rules.IDPCIeLink, Cause: "narrow", Severity: rules.Ticket, Node: "n1", Subject: detect.Subject{Kind: "gpu", ID: "GPU-1"}, Fired: at(10), Evidence: detect.Evidence{Seen: "8 of 16 lanes"}}
	xid := detect.Finding{Rule: rules.IDXid, Cause: "79", Severity: rules.Page, Node: "n1", Subject: detect.Subject{Kind: "gpu", ID: "GPU-1"}, Fired: at(12), Evidence: detect.Evidence{Seen: "Xid 79"}}
	in := detect.Incident{ID: "a", Rule: link.Rule, Cause: link.Cause, Severity: rules.Page, Opened: at(10), Members: []detect.Finding{link, xid}}
	rec := Recording{File: "a.rec", Node: "n1", From: at(0), To: at(60), Frames: 60, GPUs: 1, Watched: time.Hour, Told: []Told{{in, at(10)}}}
	r := ReplayOptions{}.sum([]Recording{rec})
	if text := written(t, r.WriteText); !regexp.MustCompile(`page by xid +pcie_link +ticket +gpu:GPU-1`).MatchString(text) {
		t.Errorf("the table does not tell that the link is a ticket, and that the incident pages by the Xid:\n%s", text)
	}
	var got struct {
		Incidents []struct {
			Rule, Severity string
			Own            string `json:"finding_severity"`
			By             string `json:"severity_by"`
			Members        []struct {
				Rule string
				Own  string `json:"finding_severity"`
			}
		}
	}
	if err := json.Unmarshal([]byte(written(t, r.WriteJSON)), &got); err != nil {
		t.Fatal(err)
	}
	if i := got.Incidents[0]; i.Rule != "pcie_link" || i.Own != "ticket" || i.Severity != "page" || i.By != "xid" || len(i.Members) != 2 || i.Members[1].Own != "page" {
		t.Errorf("the JSON tells %+v, want a ticket of the link in an incident that pages by the Xid", i)
	}
	if page := written(t, r.WriteCharts); strings.Count(page, `<rect class="ticket" x`) != 2 || strings.Count(page, `<rect class="page" x`) != 2 {
		t.Errorf("the charts do not draw one ticket, of the link, and one page, of the Xid, over time and by rule:\n%s", page)
	}
}

// TestTheRootCauseComesFirst, also where it becomes known after what it led to.
func TestTheRootCauseComesFirst(t *testing.T) {
	xid, link, old := detect.Finding{Rule: rules.IDXid}, detect.Finding{Rule: rules.IDPCIeLink}, detect.Finding{Rule: rules.IDNVLink}
	got := merged([]detect.Finding{old, xid}, []detect.Finding{link, xid})
	if len(got) != 3 || got[0].Rule != link.Rule || got[1].Rule != xid.Rule || got[2].Rule != old.Rule {
		t.Errorf("%v, want the link, which is the cause now, the Xid, and last what left the incident", got)
	}
}

// TestWithoutLabels: where nothing was to be found nothing is said of how much of it was.
func TestWithoutLabels(t *testing.T) {
	for name, labels := range map[string]string{"an empty array": "[]", "a head line alone": "rule,from,to\n", "another time": "rule,from,to\nxid,1,2\n"} {
		truths, err := parseLabels([]byte(labels), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r, err := Replay(t.Context(), ReplayOptions{Recordings: []string{fileOf(t, recorded(t, "n1", 5*time.Second))}, Truths: truths, Labelled: true})
		if err != nil {
			t.Fatal(err)
		}
		text, data := written(t, r.WriteText), written(t, r.WriteJSON)
		if !strings.Contains(text, "No labels of the recorded time") || !regexp.MustCompile(`\n- +- +- +0 of 0 `).MatchString(text) || strings.Contains(text, "NaN") {
			t.Errorf("%s: want it said that there are no labels, and no precision, recall and F1:\n%s", name, text)
		}
		for _, want := range []string{`"precision": null`, `"recall": null`, `"f1": null`} {
			if !strings.Contains(data, want) {
				t.Errorf("%s: the JSON lacks %s:\n%s", name, want, data)
			}
		}
		if page := written(t, r.WriteCharts); strings.Contains(page, "NaN") {
			t.Errorf("%s: the page with the charts says NaN", name)
		}
	}
	if _, err := parseLabels(nil, nil); err == nil || !strings.Contains(err.Error(), "the file is empty") {
		t.Errorf("a file of labels without anything in it: error %v", err)
	}
}
