package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ParseAccounting reads what sacct --parsable2 prints, with its line of names; JobName
// must be the last. Steps are left out: what a job was given is on its own line.
func ParseAccounting(output string) (jobs []Job, bad int, err error) {
	head, body, _ := strings.Cut(output, "\n")
	columns := strings.Split(strings.TrimSpace(head), "|")
	if len(columns) < 2 || position(columns, "JobIDRaw") < 0 || columns[len(columns)-1] != "JobName" {
		return nil, 0, errors.New("read sacct's output: its first line must name the columns, JobIDRaw among them and JobName as the last: run sacct --parsable2 --format=JobID,JobIDRaw,…,JobName")
	}
	if i := position(columns, "JobID"); i >= 0 {
		columns[i] = "JobArrayID"
	}
	last := -1 // of jobs: the one whose name the next line may go on with
	for line := range strings.Lines(body) {
		line = strings.TrimRight(line, "\r\n")
		switch n := strings.Count(line, "|"); {
		case n < len(columns)-1 && last >= 0:
			jobs[last].Name = clean(jobs[last].Name + " " + line)
			continue
		case n < len(columns)-1:
			if line != "" {
				bad++
			}
			continue
		}
		fields := strings.SplitN(line, "|", len(columns))
		last = -1
		if strings.Contains(fields[position(columns, "JobIDRaw")], ".") {
			continue
		}
		j, err := queued(fields, columns)
		if err != nil {
			bad++
			continue
		}
		last = len(jobs)
		jobs = append(jobs, j)
	}
	return jobs, bad, nil
}

// ParseDetails reads what scontrol show job -d prints of one or more jobs.
func ParseDetails(output string) (jobs []Job, bad int) {
	for _, block := range strings.Split("\n"+output, "\nJobId=")[1:] {
		j, err := detailed("JobId=" + block)
		if err != nil {
			bad++
			continue
		}
		jobs = append(jobs, j)
	}
	return jobs, bad
}

// maxPlaces bounds what is kept of one job.
const maxPlaces = 4096

func detailed(block string) (Job, error) {
	j := Job{UID: Unknown, GPUs: Unknown, Nodes: Unknown, Memory: Unknown, Tasks: 1}
	var errs []error
	var asked request
	array := map[string]string{}
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "Nodes="); ok {
			errs = append(errs, j.place("Nodes="+rest))
			continue
		}
		if strings.HasPrefix(line, "Command=") || strings.HasPrefix(line, "Comment=") || strings.HasPrefix(line, "StdOut=") {
			continue // free text that could look like anything
		}
		name, free := "", strings.Index(line, "JobName=")
		if free >= 0 {
			name, line = line[free+len("JobName="):], line[:free]
			j.Name = clean(name)
		}
		for _, word := range strings.Fields(line) {
			key, value, _ := strings.Cut(word, "=")
			if slices.Contains([]string{"ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset"}, key) {
				array[key] = value
				continue
			}
			errs = append(errs, j.detail(key, value, &asked))
		}
	}
	switch {
	case array["ArrayTaskId"] != "" && strings.Trim(array["ArrayTaskId"], "0123456789") == "":
		j.Array = clean(array["ArrayJobId"] + "_" + array["ArrayTaskId"])
	case array["ArrayTaskId"] != "":
		j.Array = clean(array["ArrayJobId"] + "_[" + array["ArrayTaskId"] + "]")
		var err error
		j.Tasks, j.Limit, err = ParseArray(j.Array)
		errs = append(errs, err)
	case array["HetJobId"] != "":
		j.Array = clean(array["HetJobId"] + "+" + array["HetJobOffset"])
	}
	if j.ID == "" {
		errs = append(errs, errors.New("no id"))
	}
	errs = append(errs, j.ask(asked))
	return j, errors.Join(errs...)
}

// detail takes one word of scontrol's.
func (j *Job) detail(key, value string, asked *request) (err error) {
	switch key {
	case "UserId":
		user, id, ok := strings.Cut(value, "(")
		j.User = clean(user)
		if ok {
			j.UID, err = natural(strings.TrimSuffix(id, ")"))
		}
		return err
	case "NumNodes":
		value, _, _ = strings.Cut(value, "-") // of a pending job it can be a span
	}
	column, known := map[string]string{
		"JobId": "jobid", "Account": "account", "QOS": "qos", "JobState": "state", "Reason": "reason", "RunTime": "elapsed",
		"TimeLimit": "timelimit", "Partition": "partition", "NumNodes": "numnodes", "AllocTRES": "tres-alloc",
		"TRES": "tres-alloc", "TresPerJob": "tres-per-job", "TresPerNode": "tres-per-node", "TresPerTask": "tres-per-task",
		"SubmitTime": "submittime", "EligibleTime": "eligibletime", "StartTime": "starttime",
	}[key]
	if !known {
		return nil
	}
	return j.set(column, value, asked)
}

// place takes a line such as Nodes=node-001 CPU_IDs=0-31 Mem=256000 GRES=gpu:8(IDX:0-7).
func (j *Job) place(line string) error {
	if len(j.Places) >= maxPlaces {
		return fmt.Errorf("more than %d places", maxPlaces)
	}
	p := Place{}
	for _, word := range strings.Fields(line) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "Nodes":
			p.Nodes = clean(value)
		case "GRES":
			g, err := ParseGPUs(value)
			if err != nil {
				return err
			}
			p.GPUs, p.Index = g.Total, g.Index
		}
	}
	j.Places = append(j.Places, p)
	return nil
}
