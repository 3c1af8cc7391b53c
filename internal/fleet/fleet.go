package fleet

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gpuvigil/collector/owner"
	"gpuvigil/collector/slurm"
	"gpuvigil/internal/metric"
)

// Bounds of what a page can have: each is a series for as long as it is there.
const (
	maxJobs   = 20_000
	maxQueues = 256
)

// Config is what the role serves from.
type Config struct {
	Latest   func() *slurm.Answer // nil while there is none that counts
	Health   func() slurm.Health
	Owners   *owner.Jobs
	JobNames bool // show jobs' names
	Log      *slog.Logger
}

// Fleet answers for one cluster.
type Fleet struct {
	cfg                      Config
	cappedJobs, cappedQueues atomic.Uint64
}

// New returns the role's server.
func New(cfg Config) *Fleet { return &Fleet{cfg: cfg} }

// Handler serves /metrics, /-/healthy and /-/ready. It asks nobody: a scrape reads
// Slurm's last answer.
func (f *Fleet) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		if _, err := w.Write(f.page(time.Now())); err != nil {
			f.cfg.Log.Debug("A scrape was not read to its end.", "err", err)
		}
	})
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if f.cfg.Latest() == nil {
			http.Error(w, "Slurm has not answered lately: see the log.", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// page writes what is known as Prometheus reads it.
func (f *Fleet) page(now time.Time) []byte {
	p := page{samples: map[*metric.Def][]string{}}
	h := f.cfg.Health()
	up := 0.0
	if h.Up {
		up = 1
	}
	p.add(metric.SlurmUp, up)
	if !h.Last.IsZero() {
		p.add(metric.SlurmAge, max(0, now.Sub(h.Last)).Seconds())
	}
	p.add(metric.SlurmCalls, float64(h.Good), "answered")
	p.add(metric.SlurmCalls, float64(h.Failed), "failed")
	p.add(metric.SlurmUnreadable, float64(h.Unreadable))
	if a := f.cfg.Latest(); a != nil {
		f.jobs(&p, a.Jobs)
		f.queues(&p, a)
	}
	p.add(metric.SeriesCapped, float64(f.cappedJobs.Load()), "job")
	p.add(metric.SeriesCapped, float64(f.cappedQueues.Load()), "queue")
	return p.text()
}

// jobs has the jobs that have GPUs: only those have processes to join with. Of too many
// the first by number are shown, so that a series does not come and go.
func (f *Fleet) jobs(p *page, jobs []slurm.Job) {
	seen := map[string]bool{}
	shown := 0
	for i := range jobs {
		j := &jobs[i]
		if !j.State.Holds() || j.GPUs <= 0 || seen[j.ID] {
			continue
		}
		seen[j.ID] = true
		if shown++; shown > maxJobs {
			f.cappedJobs.Add(1)
			continue
		}
		partition, name := "", ""
		if len(j.Partitions) > 0 {
			partition = j.Partitions[0]
		}
		if f.cfg.JobNames {
			name = j.Name
		}
		w, user := f.cfg.Owners.Describe(owner.Job{ID: owner.JobPrefix + j.ID, UID: j.UID, User: j.User, Account: j.Account, Partition: partition})
		p.add(metric.JobInfo, 1, w.Kind, w.ID, j.Array, user, j.Account, partition, j.QOS, name, w.Team)
		p.add(metric.JobGPUs, float64(j.GPUs), w.Kind, w.ID)
	}
}

func (f *Fleet) queues(p *page, a *slurm.Answer) {
	all := queues(a)
	names := slices.Sorted(maps.Keys(all))
	if extra := len(names) - maxQueues; extra > 0 {
		f.cappedQueues.Add(uint64(extra))
		names = names[:maxQueues]
	}
	for _, name := range names {
		q := all[name]
		for i, state := range metric.QueueState.Values {
			p.add(metric.QueueJobs, q.jobs[i], name, state)
			p.add(metric.QueueGPUs, q.gpus[i], name, state)
		}
		for i := range q.capacity {
			p.add(metric.QueueCapacity, q.capacity[i], name, metric.CapacityState.Values[i])
		}
		if len(q.waits) > 0 {
			p.add(metric.QueueLongest, q.longest().Seconds(), name)
			p.add(metric.QueueTypical, q.typical().Seconds(), name)
		}
	}
}

// page collects samples by their row.
type page struct {
	rows    []*metric.Def
	samples map[*metric.Def][]string
}

func (p *page) add(d *metric.Def, v float64, labels ...string) {
	if p.samples[d] == nil {
		p.rows = append(p.rows, d)
	}
	p.samples[d] = append(p.samples[d], d.Series(labels...)+" "+strconv.FormatFloat(v, 'g', -1, 64)+"\n")
}

var helpEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

func (p *page) text() []byte {
	var b bytes.Buffer
	for _, d := range p.rows {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", d.Name, helpEscaper.Replace(d.Help), d.Name, d.Kind)
		for _, s := range p.samples[d] {
			b.WriteString(s)
		}
	}
	return b.Bytes()
}
