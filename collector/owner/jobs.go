package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/text"
)

const (
	maxJobFile  = 64 << 10
	maxJobs     = 1024 // of one GPU, as its file lists them
	jobsAge     = 5 * time.Second
	detailsAge  = 15 * time.Second // between two tries to read what could not be read
	startOfJob  = 5 * time.Minute  // the prolog's file is there before the job's cgroup
	maxJobNames = 4096             // details of jobs that are kept
)

// jobFiles reads what Slurm's prolog leaves on the node. Slurm itself is never asked:
// a thousand agents that do are a load on its controller.
type jobFiles struct {
	mapping string // a file for each GPU, with the jobs that it was given to, one a line
	details string // a file for each job, with SLURM_JOB_* as its environment has them
	cgroups string // mount point of the cgroup file systems

	read  time.Time
	given []jobGrant
	stale int // lines of jobs that are gone
	facts map[string]jobFacts
	err   error
}

// jobGrant says that a job was given the GPU of an index, or an instance of it.
type jobGrant struct {
	job   string
	index int
	gi    int // -1: the whole GPU
}

// jobFacts is what the prolog wrote about a job.
type jobFacts struct {
	account, partition, user string

	found bool
	at    time.Time // when it was read
	err   error
}

var (
	// The names of dcgm-exporter's --hpc-job-mapping-dir.
	mappingFile = regexp.MustCompile(`^([0-9]{1,4})(?:\.([0-9]{1,3}))?$`)
	jobID       = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_+.-]{0,63}$`)
)

// refresh reads the files again when what is known has its age. alive has the jobs
// with a process on a GPU.
func (j *jobFiles) refresh(now time.Time, alive map[string]bool) {
	if age := now.Sub(j.read); !j.read.IsZero() && age >= 0 && age < jobsAge {
		return
	}
	j.read, j.given, j.stale, j.err = now, nil, 0, nil
	if j.mapping == "" {
		return
	}
	entries, err := entriesOf(j.mapping)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.err = fmt.Errorf("list the GPUs' jobs in %s: %w", j.mapping, err)
		return
	}
	running, judged := runningJobs(j.cgroups)
	slices.Sort(entries)
	var errs []error
	for _, e := range entries {
		if m := mappingFile.FindStringSubmatch(e); m != nil {
			errs = append(errs, j.file(filepath.Join(j.mapping, e), m, now, func(job string) bool { return !judged || running[job] || alive[job] }))
		}
	}
	j.err = errors.Join(errs...)
}

// file reads one GPU's jobs. A file that the epilog has not removed, after a crash,
// names jobs that have no cgroup any more.
func (j *jobFiles) file(path string, name []string, now time.Time, lives func(string) bool) error {
	info, err := os.Lstat(path)
	var content string
	if err == nil {
		content, err = readRegular(path, maxJobFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the epilog was faster
	}
	if err != nil {
		return fmt.Errorf("read the jobs of a GPU from %s: %w", path, err)
	}
	g := jobGrant{index: number(name[1]), gi: -1}
	if name[2] != "" {
		g.gi = number(name[2])
	}
	fresh := now.Sub(info.ModTime()) < startOfJob
	for i, line := range strings.Split(content, "\n") {
		if g.job = strings.TrimSpace(line); g.job == "" || i >= maxJobs || !jobID.MatchString(g.job) {
			continue
		}
		if !fresh && !lives(g.job) {
			j.stale++
			continue
		}
		j.given = append(j.given, g)
	}
	return nil
}

// runningJobs returns the jobs that have a cgroup. judged is false where Slurm makes
// none, or where they cannot be seen: then nothing is known of a job's end.
func runningJobs(root string) (running map[string]bool, judged bool) {
	running = map[string]bool{}
	scan := func(dir string) {
		entries, err := entriesOf(dir)
		if err != nil {
			return
		}
		judged = true
		for _, e := range entries {
			if m := jobSegment.FindStringSubmatch(e); m != nil {
				running[m[1]] = true
			}
		}
	}
	for _, dir := range glob(root, "system.slice", "*slurmstepd.scope") {
		scan(dir)
	}
	for _, controller := range []string{"memory", "devices", "freezer", "cpuset"} {
		for _, dir := range glob(root, controller, "slurm*") {
			judged = true
			for _, user := range glob(dir, "uid_*") {
				scan(user)
			}
		}
	}
	return running, judged
}

// glob returns the paths that fit; the pattern is the program's own and always well
// formed.
func glob(dir string, pattern ...string) []string {
	var out []string
	for _, e := range pattern[:len(pattern)-1] {
		dir = filepath.Join(dir, e)
	}
	entries, err := entriesOf(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if ok, err := filepath.Match(pattern[len(pattern)-1], e); ok && err == nil {
			out = append(out, filepath.Join(dir, e))
		}
	}
	slices.Sort(out)
	return out
}

// about returns what the prolog wrote about a job. It is read once, if it is there: a
// job does not change its account while it runs.
func (j *jobFiles) about(job string, now time.Time) jobFacts {
	if j.details == "" || !jobID.MatchString(job) {
		return jobFacts{}
	}
	f, read := j.facts[job]
	if read && (f.found || now.Sub(f.at) < detailsAge) {
		return f
	}
	content, err := readRegular(filepath.Join(j.details, job), maxJobFile)
	f = jobFacts{}
	switch {
	case err == nil:
		f = parseJobFacts(content)
		f.found = true
	case !errors.Is(err, fs.ErrNotExist):
		f.err = fmt.Errorf("read what the prolog wrote about job %s: %w", job, err)
	}
	f.at = now
	if j.facts == nil || len(j.facts) >= maxJobNames {
		j.facts = map[string]jobFacts{}
	}
	j.facts[job] = f
	return f
}

// problem is what keeps the files from being read; nil if nothing does.
func (j *jobFiles) problem(now time.Time) error {
	for _, f := range j.facts {
		if f.err != nil && now.Sub(f.at) < 2*detailsAge {
			return errors.Join(j.err, f.err)
		}
	}
	return j.err
}

// parseJobFacts reads lines as printenv writes them.
func parseJobFacts(content string) jobFacts {
	var f jobFacts
	for line := range strings.Lines(content) {
		key, value, _ := strings.Cut(line, "=")
		value = text.Clean(value, maxName)
		switch key {
		case "SLURM_JOB_ACCOUNT":
			f.account = value
		case "SLURM_JOB_PARTITION":
			f.partition = value
		case "SLURM_JOB_USER":
			f.user = value
		}
	}
	return f
}
