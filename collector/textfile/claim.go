package textfile

import (
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/demand"
	"gpuvigil/internal/metric"
)

// The kinds of owners, as collector/owner writes them, and how it begins the ids of
// Slurm's jobs.
const (
	kindPod       = "pod"
	kindJob       = "job"
	kindContainer = "container"
	kindService   = "service"
	kindUser      = "user"

	slurmPrefix = "slurm/"
)

// trust says what the directory vouches for.
type trust int

const (
	// trusted: only root or the agent's own user can make a name in it, so a file may
	// speak for whom it is named after.
	trusted trust = iota
	// shared: others can, too, so a file speaks for workloads of its own user only.
	shared
)

// trustOf looks at who may write to the directory. One in which everybody could replace
// everybody's files is refused.
func trustOf(root *os.Root, name string) (trust, error) {
	info, err := root.Stat(".")
	if err != nil {
		return shared, fmt.Errorf("look at the directory of workloads' own signals %s: %w", name, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	open := info.Mode().Perm()&0o022 != 0
	switch {
	case open && info.Mode()&os.ModeSticky == 0:
		return shared, fmt.Errorf("others may write to %s, which has no sticky bit: anybody could replace anybody's signals: "+
			"run chmod +t on it, or take the right to write from group and others", name)
	case open || !ok || !privileged(int(stat.Uid)):
		return shared, nil
	}
	return trusted, nil
}

// privileged reports whether the user is one whom the agent believes whatever he says.
func privileged(uid int) bool { return uid == 0 || uid == os.Geteuid() }

// parseOwner reads whom a name is of: slurm-4711, pod-NAMESPACE_NAME, container-NAME,
// service-UNIT, user-UID. What follows a ~ is of the writer's own choice.
func parseOwner(name string) (ref, bool) {
	name, _, _ = strings.Cut(strings.TrimSuffix(name, suffix), "~")
	kind, id, ok := strings.Cut(name, "-")
	if !ok || id == "" {
		return ref{}, false
	}
	switch kind {
	case "slurm":
		return ref{kindJob, slurmPrefix + id}, true
	case kindPod:
		return ref{kindPod, strings.Replace(id, "_", "/", 1)}, true
	case kindContainer, kindService, kindUser:
		return ref{kind, id}, true
	}
	return ref{}, false
}

// claim is what all files together say of one workload.
type claim struct {
	signals demand.Signals
	quality []collector.Figure
}

// settle decides for whom each file speaks, and joins what is said of the same.
func (s *Source) settle(snap *collector.Snapshot, t trust, now time.Time, r collector.Readings) map[collector.Owner]*claim {
	var counts [3]float64 // in the order of metric.FileState
	claims := map[collector.Owner]*claim{}
	users := usersOf(snap)
	for _, name := range s.byAge() {
		f := s.files[name]
		state := 0
		switch {
		case f.refused != "" || !s.claim(f, name, snap, users, t, now, claims):
			state = 2
		case now.Sub(f.info.ModTime()) > s.cfg.MaxAge:
			state = 1
		}
		counts[state]++
	}
	for i, n := range counts {
		r.SetAt(metric.TextfileFiles, i, n)
	}
	return claims
}

// byAge returns the files' names, the oldest first: of what only one can be right about
// the newest counts.
func (s *Source) byAge() []string {
	names := make([]string, 0, len(s.files))
	for n, f := range s.files {
		if f.info != nil {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if c := s.files[a].info.ModTime().Compare(s.files[b].info.ModTime()); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	return names
}

// usersOf returns whose workloads' processes run as which users.
func usersOf(snap *collector.Snapshot) map[int][]collector.Owner {
	users := map[int][]collector.Owner{}
	for i := range snap.Processes {
		p := &snap.Processes[i]
		if p.UID >= 0 && p.Owner != (collector.Owner{}) && !p.Service() && !slices.Contains(users[p.UID], p.Owner) {
			users[p.UID] = append(users[p.UID], p.Owner)
		}
	}
	return users
}

// claim adds what the file says. It is false if part of it is refused. That nobody has
// such a workload here (any more) is no refusal.
func (s *Source) claim(f *file, name string, snap *collector.Snapshot, users map[int][]collector.Owner, t trust, now time.Time, claims map[collector.Owner]*claim) bool {
	reason := ""
	if f.content.figures > 0 {
		reason = "too_many_figures"
	}
	named, byName := parseOwner(path.Base(name))
	if dir := path.Dir(name); dir != "." {
		named, byName = parseOwner(dir)
	}
	for i, about := range f.content.about {
		if byName {
			about = named
		}
		o, why := whose(f.uid, about, byName && t == trusted, snap, users)
		if why != "" {
			reason = why
		}
		if o != (collector.Owner{}) {
			if claims[o] == nil {
				claims[o] = &claim{signals: demand.NoSignals(time.Time{})}
			}
			if !claims[o].join(f.content.says[i], f.info.ModTime(), s.cfg.MaxAge) {
				reason = "too_many_figures"
			}
		}
	}
	if reason != f.accused {
		if f.accused = reason; reason != "" {
			counted(reason).Inc()
			s.tell(name, reason, words[reason], now)
		}
	}
	return reason == "" || reason == "too_many_figures"
}

// whose returns the workload that a file of the user may speak for; why is set if it may
// not. vouched says that the directory stands for the name.
func whose(uid int, about ref, vouched bool, snap *collector.Snapshot, users map[int][]collector.Owner) (o collector.Owner, why string) {
	if about == (ref{}) {
		switch own := users[uid]; len(own) {
		case 0:
			return o, ""
		case 1:
			return own[0], ""
		}
		return o, "ambiguous"
	}
	i := slices.IndexFunc(snap.Workloads, func(w collector.Workload) bool { return w.Kind == about.kind && w.ID == about.id })
	if i < 0 {
		return o, ""
	}
	o = snap.Workloads[i].Owner
	if !vouched && !privileged(uid) && !slices.Contains(users[uid], o) {
		return collector.Owner{}, "foreign"
	}
	return o, ""
}

// join adds what a file that is no older says. It is false if there are too many
// figures. What is older by more than the files' age is of an earlier run.
func (c *claim) join(say saying, at time.Time, maxAge time.Duration) bool {
	if at.Sub(c.signals.At) > maxAge {
		*c = claim{signals: demand.NoSignals(at)}
	}
	c.signals.At = at
	for name, field := range fields {
		into, v := field(&c.signals), *field(&say.signals)
		switch {
		case math.IsNaN(v):
		case math.IsNaN(*into), v > *into, !grows[name]:
			*into = v
		}
	}
	whole := true
	for _, f := range say.quality {
		whole = (*saying)(c).figure(f) && whole
	}
	return whole
}

// grows are the fields of which the largest counts, whichever rank says it; of the
// others it is the newest file's.
var grows = map[string]bool{
	"training_steps_total": true, "training_samples_total": true, "training_tokens_total": true,
	"training_step_seconds_sum": true, "training_step_seconds_count": true, "training_loader_wait_seconds_total": true,
	"training_checkpoint_timestamp_seconds": true,
}
