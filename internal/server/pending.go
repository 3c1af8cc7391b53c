package server

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// PendingJobs is the answer of GET /api/v1/pending?job=NAME of the cluster role.
type PendingJobs struct {
	Time       time.Time    `json:"time"`
	Cluster    string       `json:"cluster"`
	Schedulers int          `json:"schedulers"` // that have answered
	Jobs       []PendingJob `json:"jobs"`       // the longest wait first; without a name all that have no GPUs yet
	Findings   []Finding    `json:"findings"`   // of their queues, that fire
}

// PendingJob is a job or pod and what it waits for.
type PendingJob struct {
	Job       string        `json:"job"` // kind:id
	Scheduler string        `json:"scheduler"`
	Queue     string        `json:"queue"`
	Account   string        `json:"account,omitempty"`
	Team      string        `json:"team,omitempty"`
	State     string        `json:"state"`          // as in vigil_queue_jobs
	Told      string        `json:"told,omitempty"` // why, in the scheduler's own words
	Since     time.Time     `json:"since,omitzero"`
	Tasks     int           `json:"tasks"` // 1, or those of an array that are alike
	GPUs      int           `json:"gpus"`  // of each
	PerNode   int           `json:"gpus_per_node,omitempty"`
	Model     string        `json:"model,omitempty"`
	Free      int           `json:"free_gpus"` // that are right for it
	Sizes     []PendingSize `json:"free_by_node_size,omitempty"`
	Blocked   []string      `json:"blocked,omitempty"` // what keeps it from those that are right for it
	Other     string        `json:"other,omitempty"`   // what is free and not for it
	Before    PendingBefore `json:"before"`
	Help      string        `json:"help"` // what would help
}

// PendingSize is how many nodes of its queue have so many GPUs free.
type PendingSize struct {
	GPUs  int `json:"gpus"`
	Nodes int `json:"nodes"`
}

// PendingBefore is those of the queue that have waited longer.
type PendingBefore struct {
	Jobs int `json:"jobs"`
	GPUs int `json:"gpus"`
}

// apiPending answers also before the first look at the nodes: it is of the schedulers.
func (f *Fleet) apiPending(w http.ResponseWriter, r *http.Request) {
	v := f.cfg.View()
	jobs, answered := f.cfg.Pending(r.URL.Query().Get("job"))
	out := PendingJobs{Time: time.Now(), Cluster: f.cfg.Cluster, Schedulers: answered, Jobs: orEmpty(jobs), Findings: []Finding{}}
	queues := map[string]bool{}
	for _, j := range jobs {
		queues["queue:"+j.Scheduler+"/"+j.Queue] = true
	}
	for _, m := range v.Findings {
		if m.State == "firing" && queues[m.Subject.String()] {
			out.Findings = append(out.Findings, explained(m))
		}
	}
	f.server.reply(w, out)
}

// Pending returns why a job has no GPUs yet, as the cluster role knows it; an empty name
// stands for all that have none.
func (c *Client) Pending(ctx context.Context, job string) (*PendingJobs, error) {
	return ask[PendingJobs](ctx, c, http.MethodGet, "/api/v1/pending?job="+url.QueryEscape(job))
}
