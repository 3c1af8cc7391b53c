// Package config is gpuvigil's configuration: one YAML file, read strictly.
// Whatever does not fit is an error that names file, line, key, the value found
// and those allowed, and nothing starts with it.
package config

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"gpuvigil/rules"
)

// Config is the whole configuration. The zero value is not valid: start from
// Default.
type Config struct {
	Node       string            `yaml:"node"`    // name of this node; empty: $NODE_NAME, else the host name
	Cluster    string            `yaml:"cluster"` // name of the cluster, shown in messages
	Sampling   Sampling          `yaml:"sampling"`
	NVML       NVML              `yaml:"nvml"`
	Metrics    Metrics           `yaml:"metrics"`
	Push       Push              `yaml:"push"`
	Host       Host              `yaml:"host"`
	Inference  Inference         `yaml:"inference"`
	Owners     Owners            `yaml:"owners"`
	Kubernetes Kubernetes        `yaml:"kubernetes"`
	Slurm      Slurm             `yaml:"slurm"`
	Fleet      Fleet             `yaml:"fleet"`
	Inventory  Inventory         `yaml:"inventory"`
	Prices     Prices            `yaml:"prices"`
	Energy     Energy            `yaml:"energy"`
	Ledger     Ledger            `yaml:"ledger"`
	Budgets    []Budget          `yaml:"budgets"`
	Movement   Movement          `yaml:"movement"`
	Textfile   Textfile          `yaml:"textfile"`
	Change     Change            `yaml:"change"` // who may change what runs on this pool
	Versions   Versions          `yaml:"versions"`
	Detect     Detect            `yaml:"detect"`
	Budget     AlertBudget       `yaml:"budget"`
	Rules      map[rules.ID]Rule `yaml:"rules"`
	Links      Links             `yaml:"links"`
	Alerting   Alerting          `yaml:"alerting"`

	file string // that it was read from
	at   lines
}

// Place says where the key, such as prices.own[0].currency, stands: gpuvigil.yml:7. A
// key that the file does not have is where it would stand.
func (c *Config) Place(key string) string {
	return place(cmp.Or(c.file, "configuration"), c.at.of(key))
}

// Sampling is how often each tier of readings is taken.
type Sampling struct {
	Fast      Duration `yaml:"fast" in:"100ms..1m"`     // utilization, power, memory, clocks, host
	Slow      Duration `yaml:"slow" in:"1s..5m"`        // PCIe, ECC
	Processes Duration `yaml:"processes" in:"15s..10m"` // process lists; not below 15s, they take the driver's global lock
	Inventory Duration `yaml:"inventory" in:"1s..1h"`   // identity, versions, limits
}

// NVML is the source of GPU readings.
type NVML struct {
	Enabled     bool     `yaml:"enabled"`
	LibraryPath string   `yaml:"library_path"`              // empty: the dynamic linker finds libnvidia-ml.so.1
	CallLimit   Duration `yaml:"call_limit" in:"100ms..5m"` // a call on a GPU that takes longer marks it as hung
	InitLimit   Duration `yaml:"init_limit" in:"1s..1h"`    // a driver that takes longer to start costs the child
	Profile     Profile  `yaml:"profile"`                   // how much is told of each GPU; a change takes a restart
	Source      Exporter `yaml:"source"`                    // of the GPUs; given: the driver is not touched
}

// Profile is how much is told of each GPU.
type Profile string

// The profiles. The default one keeps within the budget of 150 series a GPU.
const (
	DefaultProfile Profile = "default"
	FullProfile    Profile = "full" // details, and each NVLink
)

// Metrics is what /metrics has beyond its default. A change takes a restart.
type Metrics struct {
	NativeHistograms bool          `yaml:"native_histograms"` // of the fast signals
	Processes        ProcessSeries `yaml:"processes"`
}

// ProcessSeries are series of the processes on each GPU.
type ProcessSeries struct {
	Enabled bool `yaml:"enabled"`
	Top     int  `yaml:"top" in:"1..1000"` // how many of a GPU have their own, by memory; the rest is summed as other
	PID     bool `yaml:"pid"`              // tell processes of one name apart, by a label that grows without end
}

// Host is where the kernel's files and the logs are.
type Host struct {
	ProcFS string `yaml:"procfs"`
	SysFS  string `yaml:"sysfs"`

	Kmsg             string `yaml:"kmsg"`               // the kernel log; empty: it is not read
	Journal          string `yaml:"journal"`            // file or FIFO with journalctl -k -o json, read if Kmsg cannot be; empty: none
	FabricManagerLog string `yaml:"fabric_manager_log"` // empty: it is not read

	DrainedFile string `yaml:"drained_file"` // while it exists, the node is drained; empty: nobody says

	Source Exporter `yaml:"source"` // of the host's readings; given: they are not taken from the kernel's files
}

// Detect holds what the detectors can be told; their defaults work untouched.
type Detect struct {
	QueueTimeSLO      Duration `yaml:"queue_time_slo" in:"1ms..1d" zero:"its own 99th percentile decides"` // 0: the endpoint's own 99th percentile decides
	SaturatedWindow   Duration `yaml:"saturated_window" in:"1s..1d"`                                       // over which a GPU must be busy
	IdleAfter         Duration `yaml:"idle_after" in:"1m..7d"`                                             // for holders of unknown kind
	IdleAfterTraining Duration `yaml:"idle_after_training" in:"1m..7d"`                                    // for batch jobs
	IdleAfterNotebook Duration `yaml:"idle_after_notebook" in:"1m..7d"`                                    // for notebooks

	CostCapLabel       string   `yaml:"cost_cap_label"`      // of a pod, in kubernetes.pod_labels: what it may cost on a node; empty: nobody says
	UnallocatedAllowed []string `yaml:"unallocated_allowed"` // owners, as kind:id, who may compute on GPUs that were given to nobody
	SharingAllowed     []string `yaml:"sharing_allowed"`     // globs of names of processes that may be on anybody's GPU

	PowerLimits []float64 `yaml:"power_limits" in:"1..10000"` // watts that GPUs are limited to on purpose
}

// Rule overrides a rule's defaults. What is not given stays.
type Rule struct {
	Enabled  *bool           `yaml:"enabled"`
	Severity *rules.Severity `yaml:"severity"`
	For      *Duration       `yaml:"for" in:"0s..7d"`
	Hold     *Duration       `yaml:"hold" in:"0s..7d"`
	Promoted bool            `yaml:"promoted"` // told also in the first week, and may page if severity says so
}

// AlertBudget is how many false findings of statistical rules each receiver may get in a
// week.
type AlertBudget struct {
	Pages   float64 `yaml:"pages" in:"0.001..1000"`
	Tickets float64 `yaml:"tickets" in:"0.001..1000"`
	GPUs    int     `yaml:"gpus" in:"1..1000000" zero:"those of this node"` // that receivers hear of from all agents together; 0: those of this node
}

// Links are the places that messages and the page point to.
type Links struct {
	Dashboard string `yaml:"dashboard"` // URL of the overview dashboard
	Runbook   string `yaml:"runbook"`   // URL that a rule's name is appended to
	Page      string `yaml:"page"`      // URL under which people reach this agent's page
}

// Alerting is who is told.
type Alerting struct {
	Shadow Duration `yaml:"shadow" in:"1m..90d" zero:"everything is sent from the start"` // for so long after the first start only the certain faults are sent
	Burst  int      `yaml:"burst" in:"1..1000" zero:"no limit"`                           // so many messages that are no pages a receiver gets in a minute, the rest in one; 0: no limit
	Slack  []Slack  `yaml:"slack"`
	Digest Digest   `yaml:"digest"`

	Alertmanager []Alertmanager `yaml:"alertmanager"`
	Webhook      []Webhook      `yaml:"webhook"`
	Heartbeat    Heartbeat      `yaml:"heartbeat"`

	Route         *Route         `yaml:"route"` // not given: every receiver hears of everything that is severe enough
	TimeIntervals []TimeInterval `yaml:"time_intervals"`
	Maintenance   []Maintenance  `yaml:"maintenance"`
}

// Slack is one Slack channel, reached by a bot token or an incoming webhook.
type Slack struct {
	Name         string          `yaml:"name"`
	Channel      string          `yaml:"channel"` // with a token: the channel's id
	TokenFile    string          `yaml:"token_file"`
	TokenEnv     string          `yaml:"token_env"`
	AppTokenFile string          `yaml:"app_token_file"` // with it messages have buttons
	AppTokenEnv  string          `yaml:"app_token_env"`
	WebhookFile  string          `yaml:"webhook_url_file"`
	WebhookEnv   string          `yaml:"webhook_url_env"`
	MinSeverity  *rules.Severity `yaml:"min_severity"` // what is below is not sent; ticket if not given
	Mentions     []string        `yaml:"mentions"`     // users and groups that a page calls, where no route says other ones
	Charts       bool            `yaml:"charts"`       // upload a picture of the last hours into each thread; with a token only
	APIURL       string          `yaml:"api_url"`      // for tests and proxies
}

// Duration is a length of time, written as Prometheus does: 500ms, 15s, 1h30m, 7d.
type Duration time.Duration

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := model.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("found %q, allowed: a length of time such as 500ms, 15s, 1h30m or 7d", clean(string(text)))
	}
	*d = Duration(parsed)
	return nil
}

func (d Duration) seconds() float64 { return time.Duration(d).Seconds() }

// String writes a duration as it is read.
func (d Duration) String() string { return model.Duration(d).String() }

// Default returns the configuration of an empty file.
func Default() *Config {
	return &Config{
		Sampling: Sampling{
			Fast:      Duration(time.Second),
			Slow:      Duration(15 * time.Second),
			Processes: Duration(15 * time.Second),
			Inventory: Duration(time.Minute),
		},
		NVML: NVML{
			Enabled:   true,
			CallLimit: Duration(5 * time.Second),
			InitLimit: Duration(time.Minute),
			Profile:   DefaultProfile,
			Source:    defaultExporter(),
		},
		Metrics:    Metrics{Processes: ProcessSeries{Top: 20}},
		Host:       Host{ProcFS: "/proc", SysFS: "/sys", Kmsg: "/dev/kmsg", FabricManagerLog: "/var/log/fabricmanager.log", Source: defaultExporter()},
		Inference:  Inference{Interval: Duration(5 * time.Second), Timeout: Duration(4 * time.Second)},
		Owners:     defaultOwners(),
		Kubernetes: defaultKubernetes(),
		Fleet:      defaultFleet(),
		Push:       defaultPush(),
		Movement:   defaultMovement(),
		Textfile:   defaultTextfile(),
		Change:     Free,
		Inventory:  Inventory{Root: "/"},
		Energy:     Energy{PUE: 1, TimeZone: "UTC"},
		Ledger:     Ledger{Retention: Duration(35 * 24 * time.Hour)},
		Detect: Detect{
			SaturatedWindow:   Duration(5 * time.Minute),
			IdleAfter:         Duration(30 * time.Minute),
			IdleAfterTraining: Duration(20 * time.Minute),
			IdleAfterNotebook: Duration(2 * time.Hour),
		},
		Budget:   AlertBudget{Pages: 1, Tickets: 10},
		Alerting: Alerting{Shadow: Duration(7 * 24 * time.Hour), Burst: 10, Digest: defaultDigest()},
	}
}

// Load reads a configuration file. An empty name gives the defaults. The error
// lists everything that is wrong with the file.
func Load(file string) (*Config, error) {
	c := Default()
	if file == "" {
		return c, errors.Join(errorsOf(c.check(nil))...)
	}
	source, err := ReadFile(file, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w: give an existing file with --config.file, or leave the flag out for the defaults", err)
	}
	return Parse(filepath.Base(file), source)
}

// maxConfig is more than a configuration needs: a thousand targets take 100 KiB.
const maxConfig = 1 << 20

// ReadFile reads a regular file of at most limit bytes. What is no regular file is
// not opened: a pipe would keep the reader waiting, a device would never end.
func ReadFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return content, err
}

// Parse reads a configuration from memory; file is its name in errors.
func Parse(file string, source []byte) (*Config, error) {
	c := Default()
	source = bytes.TrimPrefix(source, []byte("\xef\xbb\xbf")) // some editors begin files with a byte order mark
	at, wrong := decode(file, source, c)
	c.file, c.at = file, at
	if at == nil {
		return nil, errors.Join(errorsOf(wrong)...) // it is no YAML
	}
	for i := range c.Inference.Targets {
		if c.Inference.Targets[i].Engine == "" {
			c.Inference.Targets[i].Engine = "auto"
		}
	}
	for i := range c.Prices.Own {
		if c.Prices.Own[i].Kind == "" {
			c.Prices.Own[i].Kind = "contracted"
		}
	}
	for i := range c.Alerting.Slack {
		if c.Alerting.Slack[i].MinSeverity == nil {
			ticket := rules.Ticket
			c.Alerting.Slack[i].MinSeverity = &ticket
		}
	}
	c.Alerting.complete()
	if wrong = append(wrong, c.check(wrong)...); len(wrong) > 0 {
		slices.SortStableFunc(wrong, func(a, b mistake) int { return a.line - b.line })
		return nil, errors.Join(errorsOf(wrong)...)
	}
	return c, nil
}

// mistake is one thing that is wrong with a file.
type mistake struct {
	line int // 0: that of none
	key  string
	text string
}

func errorsOf(list []mistake) []error {
	var errs []error
	for _, m := range list {
		errs = append(errs, errors.New(m.text))
	}
	return errs
}

// check finds what is well formed and still cannot work. Of a key that is not well
// formed, or of what it is in or has in it, nothing more is said: it has its default.
func (c *Config) check(said []mistake) []mistake {
	var found []mistake
	fail := func(key, format string, args ...any) {
		if slices.ContainsFunc(said, func(m mistake) bool { return within(key, m.key) || within(m.key, key) }) {
			return
		}
		found = append(found, mistake{c.at.of(key), key, fmt.Sprintf("%s: %s: %s", c.Place(key), key, fmt.Sprintf(format, args...))})
	}
	if !slices.Contains([]Profile{DefaultProfile, FullProfile}, c.NVML.Profile) {
		fail("nvml.profile", "found %q, allowed: %s, %s", clean(string(c.NVML.Profile)), DefaultProfile, FullProfile)
	}
	c.NVML.Source.check("nvml.source", Exporters, fail)
	c.Host.Source.check("host.source", []string{"auto", "node_exporter"}, fail)
	c.checkDetect(fail)

	for key, name := range map[string]string{"node": c.Node, "cluster": c.Cluster} {
		if !plainName(name) {
			fail(key, "found control characters or more than %d letters, allowed: a plain name", maxName)
		}
	}
	c.checkInference(fail)
	for id, r := range c.Rules {
		book := rules.Get(id)
		if book == nil {
			fail("rules."+clean(string(id)), "found an unknown rule, allowed: %s", strings.Join(ruleIDs(), ", "))
			continue
		}
		if r.Severity != nil && *r.Severity == rules.Page && !book.Pages && !r.Promoted {
			fail("rules."+string(id)+".severity", "found page, allowed: info, ticket: this rule is not certain enough to wake anybody, unless promoted is true: gpuvigil promote %s says what that would have done", id)
		}
	}
	for key, link := range map[string]string{"links.dashboard": c.Links.Dashboard, "links.runbook": c.Links.Runbook, "links.page": c.Links.Page} {
		checkURL(link, key, false, fail)
	}
	if !slices.Contains([]Change{Free, Controlled}, c.Change) {
		fail("change", "found %q, allowed: %s, %s", clean(string(c.Change)), Free, Controlled)
	}
	if len(c.Detect.SharingAllowed) > 0 {
		checkGlobs(c.Detect.SharingAllowed, "detect.sharing_allowed", "names of processes", "dcgm*", fail)
		if slices.Contains(c.Detect.SharingAllowed, "*") {
			fail("detect.sharing_allowed", "found *, which allows everything, allowed: names of processes; rules.hidden_sharing.enabled: false switches the rule off")
		}
	}
	c.Versions.check(fail)
	c.Inventory.check(fail)
	c.Fleet.check(fail)
	c.Push.check("push", fail)
	c.Textfile.check(fail)
	c.checkMoney(fail)
	c.checkOwners(fail)
	c.checkSlack(fail)
	c.checkTargets(fail)
	c.Alerting.checkRouting(fail)
	c.Alerting.checkDigest(fail)
	slices.SortFunc(found, func(a, b mistake) int { return cmp.Or(a.line-b.line, strings.Compare(a.text, b.text)) })
	return found
}

// within reports whether a key is another one or stands below it.
func within(key, above string) bool {
	rest, ok := strings.CutPrefix(key, above)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func (c *Config) checkSlack(fail func(key, format string, args ...any)) {
	names := map[string]bool{}
	for i, s := range c.Alerting.Slack {
		key := fmt.Sprintf("alerting.slack[%d]", i)
		switch {
		case s.Name == "":
			fail(key+".name", "is missing, allowed: a name of its own for each receiver, as it is a label in metrics")
		case names[s.Name]:
			fail(key+".name", "found %q a second time, allowed: a name of its own for each receiver", clean(s.Name))
		}
		names[s.Name] = true
		var ways []string
		for way, value := range map[string]string{"token_file": s.TokenFile, "token_env": s.TokenEnv, "webhook_url_file": s.WebhookFile, "webhook_url_env": s.WebhookEnv} {
			if value != "" {
				ways = append(ways, way)
			}
		}
		slices.Sort(ways)
		if len(ways) != 1 {
			fail(key, "found %d of token_file, token_env, webhook_url_file, webhook_url_env, allowed: exactly one", len(ways))
		} else if token := strings.HasPrefix(ways[0], "token"); token && s.Channel == "" {
			fail(key+".channel", "is missing, allowed: the channel's id, such as C0123456789, as a bot token is given")
		} else if !token && s.Channel != "" {
			fail(key+".channel", "found %q, allowed: nothing with a webhook, which has its channel built in", clean(s.Channel))
		}
		if s.Charts && s.TokenFile == "" && s.TokenEnv == "" {
			fail(key+".charts", "found true, allowed: false with a webhook, which cannot upload")
		}
		if app := given(s.AppTokenFile, s.AppTokenEnv); app > 1 {
			fail(key, "found app_token_file and app_token_env, allowed: one of them")
		} else if app == 1 && s.TokenFile == "" && s.TokenEnv == "" {
			fail(key, "found an app token without a bot token, allowed: with token_file or token_env, as buttons are in messages of a bot")
		}
		checkURL(s.APIURL, key+".api_url", false, fail)
		checkSecretFile(s.TokenFile, key+".token_file", fail)
		checkSecretFile(s.AppTokenFile, key+".app_token_file", fail)
		checkSecretFile(s.WebhookFile, key+".webhook_url_file", fail)
		checkSecretEnv(s.TokenEnv, key+".token_env", fail)
		checkSecretEnv(s.AppTokenEnv, key+".app_token_env", fail)
		checkSecretEnv(s.WebhookEnv, key+".webhook_url_env", fail)
	}
}

// checkSecretFile refuses a secret that stands where the name of its file should:
// errors about files show their names.
func checkSecretFile(value, key string, fail func(key, format string, args ...any)) {
	if maySecret(value) {
		fail(key, "holds what looks like the secret itself (not shown), allowed: the name of a file that holds it")
	}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkSecretEnv(value, key string, fail func(key, format string, args ...any)) {
	if value != "" && (maySecret(value) || !envName.MatchString(value)) {
		fail(key, "is not the name of an environment variable (not shown, it may be the secret itself), allowed: letters, digits and _, such as SLACK_TOKEN")
	}
}

// maxName is what a host name may have (RFC 1035, 2.3.4).
const maxName = 253

func plainName(s string) bool { return len(s) <= maxName && printable(s) }

// printable reports whether a text is one line that people can read.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func ruleIDs() []string {
	var ids []string
	for _, r := range rules.All() {
		ids = append(ids, string(r.ID))
	}
	slices.Sort(ids)
	return ids
}

// checkURL accepts absolute http and https URLs. The value is not quoted: it may
// hold a password, and an error of the parser would print it.
func checkURL(value, key string, required bool, fail func(key, format string, args ...any)) {
	if value == "" {
		if required {
			fail(key, "is missing, allowed: a URL that begins with http:// or https://")
		}
		return
	}
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		fail(key, "is not a URL that begins with http:// or https:// (not shown, it may hold a password), allowed: one such as https://host:8000/path")
	}
}

// Example is the commented example: every key with its default.
//
//go:embed example.yml
var Example []byte
