package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Delimiter ends each field of what the commands are asked for. It is rare in names.
const Delimiter = "|#"

// Columns that squeue is asked for, in its words. The name is the last: it may hold
// anything.
var jobColumns = []string{"JobArrayID", "JobID", "State", "Reason", "UserID", "UserName", "Account", "Partition", "QOS",
	"NumNodes", "SubmitTime", "EligibleTime", "StartTime", "TimeLimit", "TimeUsed", "tres-per-job", "tres-per-node", "tres-per-task", "tres-alloc", "Name"}

// Columns that sinfo is asked for.
var nodeColumns = []string{"NodeHost", "Partition", "StateLong", "Gres", "GresUsed"}

// maxJoined bounds the lines that one name can be broken into.
const maxJoined = 16

// rows cuts output into rows of so many fields. A field that others chose, free, takes
// what delimiters and line breaks there are too many. ended is whether each field, and
// not each but the last, ends with the delimiter. What fits no row is bad.
func rows(output, delimiter string, columns, free int, ended bool) (all [][]string, bad int) {
	need := columns - 1
	if ended {
		need++
	}
	open := ""
	joined := 0
	flush := func() {
		if open != "" {
			bad++
		}
		open, joined = "", 0
	}
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" && open == "" {
			continue
		}
		alone := strings.Count(line, delimiter) >= need
		if alone || joined >= maxJoined {
			flush()
		}
		if open != "" {
			line = open + " " + line
		}
		if strings.Count(line, delimiter) < need {
			open = line
			joined++
			continue
		}
		open, joined = "", 0
		if ended {
			var ok bool
			if line, ok = strings.CutSuffix(line, delimiter); !ok {
				bad++
				continue
			}
		}
		all = append(all, fold(strings.Split(line, delimiter), delimiter, columns, free))
	}
	flush()
	return all, bad
}

// fold joins what is too much into the free field.
func fold(fields []string, delimiter string, columns, free int) []string {
	extra := len(fields) - columns
	if extra <= 0 || free < 0 {
		return fields
	}
	out := append([]string{}, fields[:free]...)
	out = append(out, strings.Join(fields[free:free+extra+1], delimiter))
	return append(out, fields[free+extra+1:]...)
}

// position returns where the column is, or Unknown.
func position(columns []string, name string) int {
	for i, c := range columns {
		if strings.EqualFold(c, name) {
			return i
		}
	}
	return Unknown
}

// ParseQueue reads what squeue -O prints with the columns, each ended by the
// delimiter. A row that cannot be read costs itself and is counted.
func ParseQueue(output, delimiter string, columns []string, ended bool) (jobs []Job, bad int) {
	all, bad := rows(output, delimiter, len(columns), position(columns, "Name"), ended)
	for _, fields := range all {
		j, err := queued(fields, columns)
		if err != nil {
			bad++
			continue
		}
		jobs = append(jobs, j)
	}
	return jobs, bad
}

func queued(fields, columns []string) (Job, error) {
	if len(fields) != len(columns) {
		return Job{}, fmt.Errorf("%d fields, want %d", len(fields), len(columns))
	}
	j := Job{UID: Unknown, GPUs: Unknown, Nodes: Unknown, Memory: Unknown, Tasks: 1}
	var asked request
	var errs []error
	for i, name := range columns {
		errs = append(errs, j.set(strings.ToLower(name), strings.TrimSpace(fields[i]), &asked))
	}
	if j.ID == "" {
		errs = append(errs, errors.New("no id"))
	}
	if j.Array == j.ID {
		j.Array = ""
	}
	errs = append(errs, j.ask(asked))
	return j, errors.Join(errs...)
}

// request is what a job's start asked for, in the forms that Slurm has for it.
type request struct{ perJob, perNode, perTask string }

// ask takes GPUs from the job's request where its trackable resources have none: where
// the accounting does not track GPUs, Slurm does not tell them there.
func (j *Job) ask(r request) error {
	if j.GPUs > 0 {
		j.typeFrom(r)
		return nil
	}
	for _, o := range []struct {
		tres  string
		times int
	}{{r.perJob, 1}, {r.perNode, j.Nodes}, {r.perTask, Unknown}} {
		g, err := ParseGPUs(o.tres)
		switch {
		case err != nil:
			return err
		case g.Total == 0:
			continue
		case o.times <= 0 || o.times > maxGPUs/g.Total:
			j.GPUs = Unknown // how many tasks there are is not told
			return nil
		}
		j.GPUs, j.Type = g.Total*o.times, g.only()
		return nil
	}
	return nil
}

// typeFrom takes the type of GPU from the request where the trackable resources have
// only a number. What cannot be read there says nothing of it.
func (j *Job) typeFrom(r request) {
	for _, tres := range []string{r.perJob, r.perNode, r.perTask} {
		if g, err := ParseGPUs(tres); err == nil && j.Type == "" {
			j.Type = g.only()
		}
	}
}

// set takes one column. Columns that say nothing of a job's share of the cluster are
// left out.
func (j *Job) set(column, value string, asked *request) (err error) {
	switch column {
	case "jobid", "jobidraw":
		j.ID, err = rawID(value)
	case "jobarrayid":
		j.Tasks, j.Limit, err = ParseArray(value)
		j.Array = clean(value)
	case "state":
		j.State = ParseState(value)
	case "reason":
		j.Reason = clean(value)
	case "userid":
		j.UID, err = natural(value)
	case "username", "user":
		j.User = clean(value)
	case "account":
		j.Account = clean(value)
	case "partition":
		j.Partitions = names(value)
	case "qos":
		j.QOS = clean(value)
	case "name", "jobname":
		j.Name = clean(value)
	case "numnodes", "nodes":
		j.Nodes, err = natural(value)
	case "submittime", "submit":
		j.Submitted, err = ParseTime(value)
	case "eligibletime":
		j.Eligible, err = ParseTime(value)
	case "starttime", "start":
		j.Started, err = ParseTime(value)
	case "timelimit":
		j.TimeLimit, err = ParseDuration(value)
	case "timeused", "elapsed":
		j.Elapsed, err = ParseDuration(value)
	case "minmemory", "reqmem":
		j.Memory, err = ParseMemory(value)
	case "tres-per-job":
		asked.perJob = value
	case "tres-per-node":
		asked.perNode = value
	case "tres-per-task":
		asked.perTask = value
	case "tres-alloc", "alloctres":
		if nothing(value) == "" {
			return nil // of a pending job some versions tell nothing
		}
		var g GPUs
		g, err = ParseGPUs(value)
		j.GPUs, j.Type = g.Total, g.only()
	}
	return err
}

// rawID accepts the numbers that jobs have.
func rawID(s string) (string, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err != nil || n == 0 {
		return "", bad("job id", s)
	}
	return s, nil
}

func natural(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return Unknown, bad("number", s)
	}
	return int(n), nil
}

// names reads a list of names.
func names(s string) []string {
	var out []string
	for _, name := range strings.Split(s, ",") {
		if name = clean(strings.TrimSuffix(name, "*")); name != "" { // sinfo marks the default partition
			out = append(out, name)
		}
	}
	return out
}

// ParseNodes reads what sinfo -N -O prints with the columns. An empty delimiter is
// white space. A node that is in several partitions has a row in each: it is one node.
func ParseNodes(output, delimiter string, columns []string) (nodes []Node, bad int) {
	var all [][]string
	if delimiter == "" {
		for line := range strings.Lines(output) {
			if fields := strings.Fields(line); len(fields) > 0 {
				all = append(all, fields)
			}
		}
	} else {
		all, bad = rows(output, delimiter, len(columns), Unknown, true)
	}
	at := map[string]int{}
	for _, fields := range all {
		n, err := node(fields, columns)
		if err != nil {
			bad++
			continue
		}
		if i, seen := at[n.Name]; seen {
			nodes[i].Partitions = append(nodes[i].Partitions, n.Partitions...)
			continue
		}
		at[n.Name] = len(nodes)
		nodes = append(nodes, n)
	}
	return nodes, bad
}

func node(fields, columns []string) (Node, error) {
	if len(fields) != len(columns) {
		return Node{}, fmt.Errorf("%d fields, want %d", len(fields), len(columns))
	}
	n := Node{State: NodeUnknown, GPUs: Unknown, Used: Unknown}
	var errs []error
	for i, name := range columns {
		value := strings.TrimSpace(fields[i])
		switch strings.ToLower(name) {
		case "nodehost":
			n.Name = clean(value)
		case "partition":
			n.Partitions = names(value)
		case "statelong", "statecomplete", "state":
			n.State, n.Full, n.Planned = ParseNodeState(value), isFull(value), isPlanned(value)
		case "gres":
			g, err := ParseGPUs(value)
			n.GPUs, n.Type = g.Total, g.only()
			errs = append(errs, err)
		case "gresused":
			g, err := ParseGPUs(value)
			n.Used = g.Total
			errs = append(errs, err)
		}
	}
	if n.Name == "" {
		errs = append(errs, errors.New("no name"))
	}
	return n, errors.Join(errs...)
}
