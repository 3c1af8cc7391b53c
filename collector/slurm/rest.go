package slurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"gpuvigil/internal/text"
)

// count is a number of slurmrestd: older versions write it plainly, newer ones as
// {set, infinite, number}.
type count struct {
	value    float64
	set      bool
	infinite bool
}

// The plain numbers that stand for none and for no limit, and the largest number
// that is one.
const (
	noValue    = 4294967294
	noLimit    = 4294967295
	maxNumeric = 1 << 53
)

// UnmarshalJSON reads both forms. Absurd numbers count as not told.
func (c *count) UnmarshalJSON(data []byte) error {
	var form struct {
		Set, Infinite bool
		Number        float64
	}
	switch {
	case string(data) == "null":
		return nil
	case len(data) > 0 && data[0] == '{':
		if err := json.Unmarshal(data, &form); err != nil {
			return err
		}
	default:
		if err := json.Unmarshal(data, &form.Number); err != nil {
			return err
		}
		form.Set = true
	}
	c.infinite = form.Infinite || form.Set && form.Number == noLimit
	c.set = form.Set && !c.infinite && form.Number != noValue && form.Number >= 0 && form.Number <= maxNumeric
	if c.set {
		c.value = form.Number
	}
	return nil
}

// natural returns the number, or Unknown.
func (c count) natural() int {
	if !c.set || c.value > math.MaxInt32*2 {
		return Unknown
	}
	return int(c.value)
}

// time returns a time in Unix seconds; zero is none.
func (c count) time() time.Time {
	if !c.set || c.value == 0 || c.value > 1e11 {
		return time.Time{}
	}
	return time.Unix(int64(c.value), 0).UTC()
}

// minutes returns a limit in minutes. One that nobody can mean is not told.
func (c count) minutes() time.Duration {
	switch {
	case c.infinite:
		return Unlimited
	case !c.set || c.value > maxDays*24*60:
		return 0
	}
	return time.Duration(c.value) * time.Minute
}

// words is one word in older versions, a list in newer ones.
type words []string

// UnmarshalJSON reads both forms.
func (w *words) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]string)(w))
	}
	var one string
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	if *w = nil; one != "" {
		*w = words{one}
	}
	return nil
}

type restJob struct {
	ID          count    `json:"job_id"`
	ArrayID     count    `json:"array_job_id"`
	ArrayTask   count    `json:"array_task_id"`
	ArrayTasks  string   `json:"array_task_string"`
	ArrayLimit  count    `json:"array_max_tasks"`
	HetID       count    `json:"het_job_id"`
	HetOffset   count    `json:"het_job_offset"`
	Name        string   `json:"name"`
	User        string   `json:"user_name"`
	UID         count    `json:"user_id"`
	Account     string   `json:"account"`
	QOS         string   `json:"qos"`
	Partition   string   `json:"partition"`
	State       words    `json:"job_state"`
	Reason      string   `json:"state_reason"`
	Submitted   count    `json:"submit_time"`
	Eligible    count    `json:"eligible_time"`
	Started     count    `json:"start_time"`
	TimeLimit   count    `json:"time_limit"`
	Nodes       count    `json:"node_count"`
	NumTasks    count    `json:"tasks"`
	TRESAlloc   string   `json:"tres_alloc_str"`
	TRESRequest string   `json:"tres_req_str"`
	PerJob      string   `json:"tres_per_job"`
	PerNode     string   `json:"tres_per_node"`
	PerTask     string   `json:"tres_per_task"`
	Detail      []string `json:"gres_detail"`
	NodeList    string   `json:"nodes"`
}

type restNode struct {
	Name       string   `json:"name"`
	State      words    `json:"state"`
	Flags      []string `json:"state_flags"` // of older versions
	Partitions []string `json:"partitions"`
	Gres       string   `json:"gres"`
	GresUsed   string   `json:"gres_used"`
}

// ParseRESTJobs reads slurmrestd's answer to /jobs. A job that cannot be read costs
// itself and is counted; an answer that is none, or that says what went wrong and has
// no jobs, is an error.
func ParseRESTJobs(body []byte) (jobs []Job, bad int, err error) {
	list, err := restList(body, "jobs")
	if err != nil {
		return nil, 0, err
	}
	for _, raw := range list {
		var r restJob
		if err := json.Unmarshal(raw, &r); err != nil {
			bad++
			continue
		}
		j, err := r.job()
		if err != nil {
			bad++
			continue
		}
		jobs = append(jobs, j)
	}
	return jobs, bad, nil
}

// ParseRESTNodes reads slurmrestd's answer to /nodes, as ParseRESTJobs does.
func ParseRESTNodes(body []byte) (nodes []Node, bad int, err error) {
	list, err := restList(body, "nodes")
	if err != nil {
		return nil, 0, err
	}
	for _, raw := range list {
		var r restNode
		if err := json.Unmarshal(raw, &r); err != nil || clean(r.Name) == "" {
			bad++
			continue
		}
		all, err1 := ParseGPUs(r.Gres)
		used, err2 := ParseGPUs(r.GresUsed)
		if errors.Join(err1, err2) != nil {
			bad++
			continue
		}
		nodes = append(nodes, Node{Name: clean(r.Name), Partitions: names(strings.Join(r.Partitions, ",")),
			State: ParseNodeState(append(r.State, r.Flags...)...), GPUs: all.Total, Used: used.Total, Type: all.only(),
			Full: isFull(append(r.State, r.Flags...)...), Planned: isPlanned(append(r.State, r.Flags...)...)})
	}
	return nodes, bad, nil
}

func restList(body []byte, key string) ([]json.RawMessage, error) {
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read slurmrestd's %s: the answer is no JSON object: does the URL end with /slurm/v0.0.NN?", key)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(answer[key], &list); err != nil || list == nil {
		return nil, fmt.Errorf("read slurmrestd's %s: there are none in the answer%s", key, complaints(answer["errors"]))
	}
	var errs []json.RawMessage
	if len(list) == 0 && json.Unmarshal(answer["errors"], &errs) == nil && len(errs) > 0 {
		return nil, fmt.Errorf("read slurmrestd's %s%s", key, complaints(answer["errors"]))
	}
	return list, nil
}

// complaints is what slurmrestd says went wrong.
func complaints(raw json.RawMessage) string {
	var list []struct{ Error, Description string }
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return ""
	}
	return ": it says: " + text.Clean(list[0].Error+" "+list[0].Description, 200)
}

func (r *restJob) job() (Job, error) {
	id, err := rawID(fmt.Sprint(r.ID.natural()))
	if err != nil {
		return Job{}, err
	}
	j := Job{
		ID: id, Tasks: 1, Name: clean(r.Name), User: clean(r.User), UID: r.UID.natural(), GPUs: Unknown, Account: clean(r.Account), QOS: clean(r.QOS),
		Partitions: names(r.Partition), State: ParseState(r.State...), Reason: clean(r.Reason), Nodes: r.Nodes.natural(), Memory: Unknown,
		Submitted: r.Submitted.time(), Eligible: r.Eligible.time(), Started: r.Started.time(), TimeLimit: r.TimeLimit.minutes(),
	}
	if err := r.array(&j); err != nil {
		return Job{}, err
	}
	err = r.gpus(&j)
	return j, err
}

func (r *restJob) array(j *Job) (err error) {
	parent := r.ArrayID.natural()
	switch {
	case parent > 0 && r.ArrayTasks != "" && j.State.Waits():
		list, _, throttled := strings.Cut(r.ArrayTasks, "%")
		if limit := r.ArrayLimit.natural(); limit > 0 && !throttled {
			list = fmt.Sprintf("%s%%%d", list, limit)
		} else {
			list = r.ArrayTasks
		}
		j.Array = clean(fmt.Sprintf("%d_[%s]", parent, strings.Trim(list, "[]")))
		j.Tasks, j.Limit, err = ParseArray(fmt.Sprintf("%d_[%s]", parent, strings.Trim(list, "[]")))
	case parent > 0 && r.ArrayTask.set:
		j.Array = fmt.Sprintf("%d_%d", parent, r.ArrayTask.natural())
	case r.HetID.natural() > 0:
		j.Array = fmt.Sprintf("%d+%d", r.HetID.natural(), max(0, r.HetOffset.natural()))
	}
	return err
}

// gpus is what the job was given or, if it waits, asks for, from the first of what
// Slurm tells: the trackable resources, each node's detail, the options of its start.
func (r *restJob) gpus(j *Job) error {
	total := 0
	for _, d := range r.Detail {
		g, err := ParseGPUs(d)
		if err != nil {
			return err
		}
		total += g.Total
		if len(j.Places) < maxPlaces && g.Total > 0 {
			j.Places = append(j.Places, Place{GPUs: g.Total, Index: g.Index})
		}
	}
	for _, tres := range []string{r.TRESAlloc, r.TRESRequest} {
		if nothing(tres) == "" {
			continue
		}
		g, err := ParseGPUs(tres)
		if j.GPUs, j.Type = g.Total, g.only(); err != nil || g.Total > 0 {
			j.typeFrom(request{r.PerJob, r.PerNode, r.PerTask})
			return err
		}
	}
	if total > 0 {
		j.GPUs = total
	}
	if tasks := r.NumTasks.natural(); tasks > 0 && nothing(r.PerTask) != "" && nothing(r.PerJob) == "" && nothing(r.PerNode) == "" {
		g, err := ParseGPUs(r.PerTask)
		if err == nil && j.GPUs <= 0 && g.Total > 0 && tasks <= maxGPUs/g.Total {
			j.GPUs, j.Type = g.Total*tasks, g.only()
		}
		return err
	}
	return j.ask(request{r.PerJob, r.PerNode, r.PerTask})
}
