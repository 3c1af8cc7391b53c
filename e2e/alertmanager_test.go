package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/detect"
	"gpuvigil/internal/fakenvml"
)

// postbox is an HTTP server that keeps what it is posted, as JSON.
type postbox struct {
	*httptest.Server
	mu    sync.Mutex
	posts []map[string]any
}

func newPostbox(t *testing.T) *postbox {
	t.Helper()
	p := &postbox{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var message map[string]any
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			t.Errorf("what was posted is no JSON: %v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.posts = append(p.posts, message)
	}))
	t.Cleanup(p.Close)
	return p
}

// of returns the messages of a status.
func (p *postbox) of(status string) (all []map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.posts {
		if m["status"] == status {
			all = append(all, m)
		}
	}
	return all
}

// has wants so many messages of a status.
func (p *postbox) has(status string, want int) error {
	if all := p.of(status); len(all) != want {
		return fmt.Errorf("%d messages are %s, want %d: %v", len(all), status, want, all)
	}
	return nil
}

// about wants so many messages of an alert's name.
func (p *postbox) about(name string, want int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, m := range p.posts {
		if labels, ok := m["groupLabels"].(map[string]any); ok && labels["alertname"] == name {
			n++
		}
	}
	if n != want {
		return fmt.Errorf("%d messages are about %s, want %d: %v", n, name, want, p.posts)
	}
	return nil
}

// alertmanagerServer is a real Alertmanager.
type alertmanagerServer struct {
	*server
	url string
}

// startAlertmanagers starts a cluster of real Alertmanagers that tell a webhook.
func startAlertmanagers(t *testing.T, hook string, n int) (all []*alertmanagerServer) {
	t.Helper()
	config := write(t, "alertmanager.yml", fmt.Sprintf(`
route:
  receiver: hook
  group_by: [alertname, node]
  group_wait: 1s
  group_interval: 1s
  repeat_interval: 1h
  routes:
  - {receiver: nobody, matchers: [alertname="VigilWatchdog"]}
receivers:
- name: nobody
- name: hook
  webhook_configs: [{url: '%s', send_resolved: true}]
`, hook))
	var peers, args []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, l.Addr().String())
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--cluster.peer="+peers[len(peers)-1])
	}
	for _, own := range peers {
		s, err := launch(tool(t, "alertmanager"), append([]string{
			"--config.file=" + config, "--storage.path=" + t.TempDir(), "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=" + own,
			"--cluster.settle-timeout=5s", "--cluster.peer-timeout=5s",
		}, args...), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			s.end()
			if t.Failed() {
				t.Logf("Alertmanager's log:\n%s", s.log)
			}
		})
		listens, err := s.address()
		if err != nil {
			t.Fatalf("start Alertmanager: %v\n%s", err, s.log)
		}
		all = append(all, &alertmanagerServer{s, "http://" + listens})
	}
	return all
}

// call asks the API and reads its answer.
func (a *alertmanagerServer) call(t *testing.T, method, path string, body, into any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(t.Context(), method, a.url+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s %v %s", method, path, resp.Status, err, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// firingAlert is an alert as the API shows it.
type firingAlert struct {
	Labels      model.LabelSet
	Annotations model.LabelSet
	Fingerprint string
	StartsAt    time.Time
	EndsAt      time.Time
}

// alert returns the one alert of a name, whatever its state.
func (a *alertmanagerServer) alert(t *testing.T, name string) (*firingAlert, error) {
	var all []firingAlert
	if err := a.call(t, http.MethodGet, "/api/v2/alerts", nil, &all); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(one firingAlert) bool { return string(one.Labels["alertname"]) != name })
	if len(all) != 1 {
		return nil, fmt.Errorf("there are %d alerts %s, want one: %v", len(all), name, all)
	}
	return &all[0], nil
}

// TestAlertmanager loses a GPU under a pair of real Alertmanagers: they hear of one
// incident and tell it once, it stays the same over a crash of the agent, it is silenced
// there and that is shown here, and it ends there when it ends here.
func TestAlertmanager(t *testing.T) {
	t.Parallel()
	theirs, ours := newPostbox(t), newPostbox(t)
	pair := startAlertmanagers(t, theirs.URL, 2)
	d := newDriver(t, 4)
	o := options{
		state: filepath.Join(shortDir(t), "state"),
		config: quick + fmt.Sprintf(`
node: gpu-117
cluster: c1
rules: {gpu_lost: {for: 2s, hold: 2s}}
alerting:
  shadow: 0s
  alertmanager:
  - {name: am, urls: ['%s', '%s'], resend: 10s, read_back: 1s, labels: {environment: test}}
  webhook:
  - {name: hook, url: '%s', signing_key_file: %s}
  heartbeat: {alertmanager: true, receivers: {hook: 1h}}
`, pair[0].url, pair[1].url, ours.URL, write(t, "key", "a key of more than sixteen bytes")),
	}
	a := d.start(o)
	a.ready(t)
	a.awaits(t, "all GPUs are present", power(0, 1, 2, 3))
	d.Fault(fakenvml.GPU(1), fakenvml.Every, fakenvml.Error(gpuIsLost))
	d.show()
	first := appears(t, pair)
	if first.Labels["node"] != "gpu-117" || first.Labels["cluster"] != "c1" || first.Labels["severity"] != "page" || first.Labels["environment"] != "test" || first.Annotations["summary"] == "" {
		t.Errorf("Alertmanager knows of %v %v", first.Labels, first.Annotations)
	}
	for _, am := range pair {
		if _, err := am.alert(t, "VigilWatchdog"); err != nil {
			t.Errorf("the watchdog: %v", err)
		}
	}
	eventually(t, "Alertmanager tells of it", func() error { return theirs.has("firing", 1) })

	a.kill()
	b := d.start(o)
	b.ready(t)
	b.awaits(t, "after a crash it is told again", func(m metrics) error {
		var errs []error
		for _, am := range pair {
			name := "am/" + strings.TrimPrefix(am.url, "http://")
			errs = append(errs, m.expect(0, "vigil_outbox_messages", "receiver", name))
			if n := m.value("vigil_notifications_total", "receiver", name, "result", "sent"); !(n >= 2) {
				errs = append(errs, fmt.Errorf("%s was told %v alerts", name, n))
			}
		}
		return errors.Join(errs...)
	})
	if again := appears(t, pair); again.Fingerprint != first.Fingerprint || !again.StartsAt.Equal(first.StartsAt) {
		t.Errorf("after a crash it is %s since %s, it was %s since %s", again.Fingerprint, again.StartsAt, first.Fingerprint, first.StartsAt)
	}

	silence := silenceOf(t, pair[0], first)
	eventually(t, "the silence is shown with the incident", func() error { return b.muted(t, "silenced in Alertmanager until", "being replaced") })
	b.awaits(t, "the silence is counted", func(m metrics) error { return m.expect(1, "vigil_alerts_muted", "receiver", "am", "by", "silence") })
	if err := pair[0].call(t, http.MethodDelete, "/api/v2/silence/"+silence, nil, nil); err != nil {
		t.Fatal(err)
	}
	b.awaits(t, "the silence is over", func(m metrics) error { return m.expect(0, "vigil_alerts_muted", "receiver", "am", "by", "silence") })

	d.Clear(fakenvml.GPU(1), fakenvml.Every)
	d.show()
	eventually(t, "the finding ends once the GPU answers again", func() error { return b.finding("gone", detect.Resolved) })
	eventually(t, "it ends in Alertmanager, which tells it", func() error { return theirs.has("resolved", 1) })
	eventually(t, "our own webhook has beginning and end, and one sign of life for both runs", func() error {
		return errors.Join(ours.has("resolved", 1), ours.about("VigilWatchdog", 1), ours.about("VigilGPULost", 2))
	})
	if err := theirs.has("firing", 1); err != nil {
		t.Errorf("over a crash and in a pair of Alertmanagers: %v", err)
	}
	for _, status := range []string{"firing", "resolved"} {
		sameKeys(t, status, theirs.of(status)[0], ours.of(status)[0])
	}
}

// appears waits until each Alertmanager has the alert, and returns it.
func appears(t *testing.T, all []*alertmanagerServer) (found *firingAlert) {
	t.Helper()
	for _, am := range all {
		eventually(t, "Alertmanager has the incident", func() (err error) {
			found, err = am.alert(t, "VigilGPULost")
			return err
		})
	}
	return found
}

// silenceOf silences an alert by what it is known by, as a person does.
func silenceOf(t *testing.T, am *alertmanagerServer, one *firingAlert) (id string) {
	t.Helper()
	var matchers []map[string]any
	for name, value := range one.Labels {
		if name != "severity" {
			matchers = append(matchers, map[string]any{"name": name, "value": value, "isRegex": false, "isEqual": true})
		}
	}
	var answer struct{ SilenceID string }
	err := am.call(t, http.MethodPost, "/api/v2/silences", map[string]any{
		"matchers": matchers, "startsAt": time.Now(), "endsAt": time.Now().Add(time.Hour), "createdBy": "test", "comment": "being replaced",
	}, &answer)
	if err != nil {
		t.Fatal(err)
	}
	return answer.SilenceID
}

// muted wants the words in what gpuvigil status, gpuvigil why and the page say.
func (a *agent) muted(t *testing.T, words ...string) error {
	_, status := a.ask(t, "status")
	_, why := a.ask(t, "why", "gpu:1")
	page, err := a.get("/")
	errs := []error{err}
	for name, text := range map[string]string{"status": status, "why": why, "the page": page} {
		if !containsAll(text, words) {
			errs = append(errs, fmt.Errorf("%s does not say %q:\n%s", name, words, text))
		}
	}
	return errors.Join(errs...)
}

// sameKeys compares two messages in their keys, but for those of labels and annotations.
func sameKeys(t *testing.T, path string, theirs, ours any) {
	t.Helper()
	switch theirs := theirs.(type) {
	case map[string]any:
		ours, ok := ours.(map[string]any)
		if !ok {
			t.Errorf("%s is %v, in Alertmanager's message an object", path, ours)
			return
		}
		if strings.HasSuffix(path, "abels") || strings.HasSuffix(path, "nnotations") {
			return
		}
		for key := range theirs {
			if _, ok := ours[key]; !ok {
				t.Errorf("%s.%s is in Alertmanager's message and not in ours", path, key)
				continue
			}
			sameKeys(t, path+"."+key, theirs[key], ours[key])
		}
		for key := range ours {
			if _, ok := theirs[key]; !ok {
				t.Errorf("%s.%s is in our message and not in Alertmanager's", path, key)
			}
		}
	case []any:
		ours, ok := ours.([]any)
		if !ok || len(ours) == 0 {
			t.Errorf("%s is %v, in Alertmanager's message a list", path, ours)
			return
		}
		sameKeys(t, path+"[0]", theirs[0], ours[0])
	default:
		if fmt.Sprintf("%T", theirs) != fmt.Sprintf("%T", ours) {
			t.Errorf("%s is %T, in Alertmanager's message %T", path, ours, theirs)
		}
	}
}
