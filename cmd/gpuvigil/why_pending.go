package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"gpuvigil/internal/fleet"
	"gpuvigil/internal/server"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

// whyPending says why a job has no GPUs yet. The cluster role knows it: no agent asks a
// scheduler.
func whyPending(ctx context.Context, p *program, stateFlag, job string) error {
	dir, err := stateDir(stateFlag)
	if err != nil {
		return unknown(p, err)
	}
	socket := filepath.Join(dir, fleetSocket)
	if !exists(socket) {
		return unknown(p, fmt.Errorf("there is no %s: the cluster role knows what is pending; ask where gpuvigil fleet runs, with its --state.dir", socket))
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, err := server.NewClient(socket).Pending(ctx, job)
	switch {
	case err != nil:
		return unknown(p, err)
	case answer.Schedulers == 0:
		return unknown(p, errors.New("no scheduler has answered the cluster role: vigil_scheduler_up says which, the log why; fleet.slurm and fleet.kubernetes of its configuration say whom it asks"))
	case len(answer.Jobs) == 0 && job != "":
		return unknown(p, fmt.Errorf("no scheduler knows a job %q that asks for GPUs: give it as the scheduler calls it, such as 4711 or NAMESPACE/POD; gpuvigil why pending lists what waits", printable(job)))
	}
	if err := printPending(p.out, answer, job); err != nil {
		return err
	}
	return pendingExit(answer.Findings)
}

// pendingExit is as for why: the worst finding of its queue decides.
func pendingExit(findings []server.Finding) error {
	code := error(nil)
	for _, f := range firing(findings) {
		switch {
		case f.Severity == rules.Page:
			return exitPage
		case f.Severity == rules.Ticket:
			code = exitTicket
		}
	}
	return code
}

// maxPending is how many jobs are told of one after the other.
const maxPending = 20

func printPending(out io.Writer, a *server.PendingJobs, job string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(a.Jobs) == 0 {
		fmt.Fprintf(w, "%s  no job waits for GPUs\n", printable(a.Cluster))
	}
	for i, j := range a.Jobs {
		if i == maxPending {
			fmt.Fprintf(w, "and %s more: see /api/v1/pending of the cluster role\n", number(len(a.Jobs)-i, "job"))
			break
		}
		if job == "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(j.Job), stateWords(j, a.Time), asksWords(j), printable(j.Help))
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		printJob(w, j, a.Time)
	}
	for _, f := range firing(a.Findings) {
		fmt.Fprintf(w, "\n%s\t%s on %s\n", strings.ToUpper(f.Severity.String()), printable(f.Title), subjectName(f))
		fmt.Fprintf(w, "since\t%s\n", since(f.Since, a.Time))
		fmt.Fprintf(w, "seen\t%s\n", printable(f.Evidence.Seen))
		fmt.Fprintf(w, "do\t%s\n", printable(f.Action))
	}
	return w.Flush()
}

func printJob(w io.Writer, j server.PendingJob, now time.Time) {
	fmt.Fprintf(w, "%s  %s\n", printable(j.Job), stateWords(j, now))
	if !j.Since.IsZero() {
		fmt.Fprintf(w, "since\t%s\n", since(j.Since, now))
	}
	fmt.Fprintf(w, "queue\t%s\n", printable(pendingQueue(j)))
	fmt.Fprintf(w, "asks\t%s\n", asksWords(j))
	if j.Told != "" {
		fmt.Fprintf(w, "told\t%s says: %s\n", printable(j.Scheduler), printable(j.Told))
	}
	if searches(j) {
		fmt.Fprintf(w, "free\t%s\n", freeSizes(j))
		for _, b := range j.Blocked {
			fmt.Fprintf(w, "blocked\t%s\n", printable(b))
		}
		if j.Other != "" {
			fmt.Fprintf(w, "not for it\t%s\n", printable(j.Other))
		}
	}
	if j.Before.Jobs > 0 {
		fmt.Fprintf(w, "before it\t%s for %s, waiting for longer in the same queue\n", number(j.Before.Jobs, "job"), number(j.Before.GPUs, "GPU"))
	}
	fmt.Fprintf(w, "helps\t%s\n", printable(j.Help))
}

// searches reports whether a job waits for what nodes have free.
func searches(j server.PendingJob) bool { return j.State == "waiting" || j.State == "unavailable" }

func stateWords(j server.PendingJob, now time.Time) string {
	words := map[string]string{
		"waiting": "waits for GPUs", "limited": "is held back by a quota or limit", "dependent": "waits for what it depends on", "scheduled": "is held, or begins later",
		"unavailable": "cannot be placed on any node", "suspended": "is suspended", "starting": "starts", "running": "runs",
	}[j.State]
	if words == "" {
		words = "is pending"
	}
	if j.State == "running" || j.State == "starting" || j.Since.IsZero() {
		return strings.ToUpper(words)
	}
	return strings.ToUpper(words) + ", for " + text.Span(now.Sub(j.Since))
}

func pendingQueue(j server.PendingJob) string {
	out := j.Scheduler + "/" + j.Queue
	for _, of := range []struct{ what, value string }{{"account", j.Account}, {"team", j.Team}} {
		if of.value != "" {
			out += ", " + of.what + " " + of.value
		}
	}
	return out
}

func asksWords(j server.PendingJob) string {
	out := number(j.GPUs, "GPU")
	if j.Model != "" {
		out = fmt.Sprintf("%d×%s", j.GPUs, printable(j.Model))
	}
	if j.PerNode > 0 && j.PerNode < j.GPUs {
		out += fmt.Sprintf(", %d on each node", j.PerNode)
	}
	if j.Tasks > 1 {
		out += fmt.Sprintf(" for each of %d tasks", j.Tasks)
	}
	return out
}

// freeSizes says what is free and right for the job, and how it lies on the nodes.
func freeSizes(j server.PendingJob) string {
	out := fmt.Sprintf("%d that are right for it", j.Free)
	var sizes []string
	for _, s := range j.Sizes {
		sizes = append(sizes, fmt.Sprintf("%d on %s", s.GPUs, number(s.Nodes, "node")))
	}
	if len(sizes) > 0 {
		out += "; nodes of its queue have free: " + strings.Join(first(sizes, "sizes"), ", ")
	}
	return out
}

// pendingJobs is what the role knows of pending work, for its API.
func pendingJobs(rec *fleetRecorder) func(job string) ([]server.PendingJob, int) {
	return func(job string) ([]server.PendingJob, int) {
		found, answered := rec.role.Pending(job)
		out := make([]server.PendingJob, len(found))
		for i := range found {
			out[i] = pendingJob(&found[i])
		}
		return out, answered
	}
}

func pendingJob(p *fleet.Pending) server.PendingJob {
	j := server.PendingJob{
		Job: p.Job, Scheduler: p.Scheduler, Queue: p.Queue, Account: p.Account, Team: p.Team, State: p.State, Told: p.Told, Since: p.Asked,
		Tasks: p.Jobs, GPUs: p.Waits.GPUs, PerNode: p.Waits.PerNode, Model: p.Waits.Model, Free: p.Waits.Matching(),
		Blocked: p.Blocked, Other: p.Other, Before: server.PendingBefore(p.Before), Help: p.Help,
	}
	for _, s := range p.Sizes {
		j.Sizes = append(j.Sizes, server.PendingSize(s))
	}
	return j
}
