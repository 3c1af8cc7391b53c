package owner

import (
	"strconv"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/internal/text"
)

// Job is what a scheduler says of one of its jobs.
type Job struct {
	ID                       string // with the scheduler's name before it: slurm/4711
	UID                      int    // negative if it is not told
	User, Account, Partition string
}

// Jobs says of the cluster's jobs what a Source says of a node's owners, by the same
// rules and in the same form.
type Jobs struct {
	form  UserForm
	key   []byte
	rules []Rule
}

// Describe returns what the rules say of an owner of whom no more is known than who it
// is and, perhaps, the name of a container.
func Describe(o collector.Owner, container string, rules []Rule) collector.Workload {
	id := &identity{key: key{o.Kind, o.ID}, containers: set{}}
	if namespace, pod, ok := strings.Cut(o.ID, "/"); ok && o.Kind == kindPod {
		id.namespace, id.pod = namespace, pod
	}
	id.containers.add(container)
	return describe(id, rules)
}

// NewJobs returns what describes jobs. The error says what in the configuration cannot
// work.
func NewJobs(form UserForm, key []byte, rules []Rule) (*Jobs, error) {
	u := users{form: form, key: key}
	return &Jobs{form, key, rules}, u.check()
}

// Describe returns the job's workload and its user as owners show users. A user who is
// to be shown as uid or hash and whose uid is not told is empty: his name is not shown
// instead.
func (j *Jobs) Describe(job Job) (collector.Workload, string) {
	id := &identity{key: key{kindJob, job.ID}, account: job.Account, partition: job.Partition, users: set{}}
	name := text.Clean(job.User, maxName)
	id.users.add(name)
	shown := ""
	switch {
	case job.UID >= 0:
		id.users.add(strconv.Itoa(job.UID))
		u := users{form: j.form, key: j.key, names: map[int]string{job.UID: name}}
		shown = u.show(job.UID)
	case j.form == UserName:
		shown = name
	}
	return describe(id, j.rules), shown
}

// Pod is what the API server says of a pod.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
}

// DescribePod returns the pod's workload.
func (j *Jobs) DescribePod(p Pod) collector.Workload {
	id := &identity{key: key{kindPod, p.Namespace + "/" + p.Name}, namespace: p.Namespace, pod: p.Name, labels: p.Labels}
	return describe(id, j.rules)
}
