// Package owner is the source "owner": whose the processes on the GPUs are, and who
// was given which GPU. The first is read from the processes' cgroups, the second is
// what the kubelet and Slurm's prolog say; the two are kept apart.
package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/proc"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// SourceName is the name of the source.
const SourceName = "owner"

const (
	verifyAge = 15 * time.Second // a process can be moved to another cgroup
	minorsAge = time.Minute
)

// Config is what a Source needs. Paths that are empty are not read.
type Config struct {
	ProcFS string // of the host
	SysFS  string

	// Snapshot returns the last snapshot, nil before the first. Its processes are those
	// that are looked at, its GPUs those that can be given.
	Snapshot func() *collector.Snapshot

	PodLogs       string // /var/log/pods
	ContainerLogs string // /var/log/containers
	Docker        string // /var/lib/docker/containers

	Kubelet     *Kubelet      // nil: it is not asked
	KubeletKeep time.Duration // how long its last answer stands when it does not answer

	// PodLabels returns the labels of a pod that may be shown, nil if it is not known.
	// Device returns the uuid of a claim's device, empty if it is not known. Both may be
	// nil: the API server is not asked.
	PodLabels func(namespace, name string) map[string]string
	Device    func(pool, device string) string

	JobMapping string // folder of dcgm-exporter's form
	JobDetails string // folder with a file for each job

	Users   UserForm
	UserKey []byte // of UserHash
	Passwd  string // empty: users have no names

	Rules []Rule
}

// Source says whose the processes are and who was given the GPUs. It is used from one
// goroutine.
type Source struct {
	cfg   Config
	names names
	users users
	jobs  jobFiles

	known      map[process]*known
	identities identities
	minors     map[int]string
	minorsRead time.Time
	minorsErr  error
	holders    map[string]set // owners of each GPU as of the last sample, by uuid
	began      time.Time
	foreign    bool // the pids of the driver are not those of this /proc
}

var _ collector.Source = (*Source)(nil)

// process identifies a process: a pid is used again.
type process struct {
	pid   int
	start uint64
}

// known is what was found out about a process. identity is nil if it is nobody's.
type known struct {
	at        time.Time
	identity  *identity
	container string

	privileged bool
	err        error // what kept it from having its name; it has an owner all the same
}

// initialPIDNamespace is what the kernel calls the first pid namespace
// (PROC_PID_INIT_INO in include/linux/proc_ns.h).
const initialPIDNamespace = "pid:[4026531836]"

// New returns a source. The error says what in the configuration cannot work.
func New(cfg Config) (*Source, error) {
	s := &Source{
		cfg:   cfg,
		names: names{podLogs: cfg.PodLogs, containerLogs: cfg.ContainerLogs, docker: cfg.Docker},
		users: users{form: cfg.Users, key: cfg.UserKey, passwd: cfg.Passwd},
		jobs:  jobFiles{mapping: cfg.JobMapping, details: cfg.JobDetails, cgroups: cfg.SysFS + "/fs/cgroup"},
		known: map[process]*known{}, identities: identities{}, holders: map[string]set{}, began: time.Now(),
	}
	if err := s.users.check(); err != nil {
		return nil, err
	}
	if cfg.ProcFS == "/proc" {
		ns, err := os.Readlink("/proc/self/ns/pid")
		s.foreign = err != nil || ns != initialPIDNamespace
	}
	return s, nil
}

// Name is "owner".
func (s *Source) Name() string { return SourceName }

// Sample says whose the last snapshot's processes are and who was given its GPUs. A
// process that cannot be read costs that process only: it is nobody's, and counted.
func (s *Source) Sample(ctx context.Context) (*collector.Part, error) {
	now := time.Now()
	part := &collector.Part{Time: now}
	part.Node.Readings = collector.NewReadings(metric.Node)
	part.Node.Stamp(metric.Fast, now)
	snap := s.cfg.Snapshot()
	if snap == nil {
		return part, nil
	}
	s.users.refresh(now)
	s.readMinors(now)
	uses, err := s.uses(ctx, snap, now)
	board := newBoard(snap, s.minors)
	gifts := s.gifts(board, part, now)
	s.compose(part, uses, gifts)
	part.Events = s.changes(snap, uses, gifts, now)
	s.identities.forget(now)
	err = errors.Join(err, s.names.err, s.users.err, s.jobs.problem(now), s.minorsErr, firstError(uses))
	if s.foreign {
		err = errors.Join(err, fmt.Errorf("find the owners of processes: this is a pid namespace of its own, in which the driver's pids mean nothing: "+
			"run with hostPID, or mount the host's /proc and name it with host.procfs: %w", collector.ErrAbsent))
	}
	return part, err
}

func (s *Source) readMinors(now time.Time) {
	if age := now.Sub(s.minorsRead); s.minors != nil && age >= 0 && age < minorsAge {
		return
	}
	s.minorsRead = now
	s.minors, s.minorsErr = readMinors(s.cfg.ProcFS)
}

// uses finds out whose each process is, those that are new or were not verified for
// long.
func (s *Source) uses(ctx context.Context, snap *collector.Snapshot, now time.Time) (map[process]*known, error) {
	seen := map[process]*known{}
	if s.foreign {
		return seen, nil
	}
	for i := range snap.Processes {
		p := process{snap.Processes[i].PID, snap.Processes[i].Start}
		if seen[p] != nil || p.start == 0 {
			continue // without its start time nobody can say which process it was
		}
		k := s.known[p]
		if age := now.Sub(at(k)); k == nil || age >= verifyAge || age < 0 {
			if err := ctx.Err(); err != nil {
				return seen, fmt.Errorf("find the owners of processes: %w", err)
			}
			k = s.look(p, now)
		}
		if k.identity != nil {
			k.identity.seen = now
			s.identities[k.identity.key] = k.identity
		}
		seen[p] = k
	}
	s.known = seen
	return seen, nil
}

func at(k *known) time.Time {
	if k == nil {
		return time.Time{}
	}
	return k.at
}

func (s *Source) look(p process, now time.Time) *known {
	k := &known{at: now}
	where, err := readProcess(s.cfg.ProcFS, p.pid, p.start)
	if err != nil {
		count(err)
		return k
	}
	k.identity, k.container, k.err = s.identify(where, now)
	k.privileged = where.privileged
	return k
}

// count counts a process that could not be read, by the reason.
func count(err error) {
	switch {
	case errors.Is(err, proc.ErrReused):
		readReused.Inc()
	case errors.Is(err, proc.ErrGone):
		readVanished.Inc()
	case errors.Is(err, fs.ErrPermission):
		readDenied.Inc()
	default:
		readInvalid.Inc()
	}
}

// firstError returns one of what kept owners from having their names.
func firstError(uses map[process]*known) error {
	for _, k := range uses {
		if k.err != nil {
			return k.err
		}
	}
	return nil
}

// identify names the owner of a place, and the container in it. The error says why a
// name is only an id.
func (s *Source) identify(p place, now time.Time) (*identity, string, error) {
	var k key
	var pod pod
	var docker dockerContainer
	var err error
	container := short(p.container)
	switch p.kind {
	case kindPod:
		pod, k = s.pod(p.pod, now)
		if p.container != "" {
			container = s.names.container(pod, p.container, now)
		}
	case kindJob:
		k = key{kindJob, JobPrefix + p.job}
	case kindContainer:
		docker, err = s.names.dockerName(p.container)
		container = cmp.Or(docker.name, container)
		k = key{kindContainer, container}
	case kindService:
		k = key{kindService, text.Clean(p.unit, maxName)}
	case kindUser:
		k = key{kindUser, s.users.show(p.uid)}
	default:
		return nil, "", nil
	}
	id := s.identities.get(k, now)
	if id == nil {
		return nil, "", nil
	}
	if pod.name != "" {
		s.learnPod(id, pod.namespace, pod.name)
	}
	if docker.name != "" {
		id.labels = docker.labels
	}
	id.services.add(p.unit)
	id.containers.add(container)
	s.learn(id, p, now)
	return id, container, err
}

// JobPrefix says whose numbers the ids of jobs are: of Slurm.
const JobPrefix = "slurm/"

// learn adds what the place tells of the owner's user and job.
func (s *Source) learn(id *identity, p place, now time.Time) {
	if p.uid >= 0 {
		id.users.add(strconv.Itoa(p.uid))
		id.users.add(s.users.names[p.uid])
	}
	if p.job != "" {
		s.learnJob(id, p.job, now)
	}
}

// learnPod adds what is known of the owner's pod.
func (s *Source) learnPod(id *identity, namespace, name string) {
	id.namespace, id.pod = namespace, name
	if s.cfg.PodLabels == nil {
		return
	}
	if labels := s.cfg.PodLabels(namespace, name); labels != nil {
		id.labels = labels
		id.shown = labels
	}
}

func (s *Source) learnJob(id *identity, job string, now time.Time) {
	f := s.jobs.about(job, now)
	id.account, id.partition = f.account, f.partition
	id.users.add(f.user)
}

// pod names a pod. One that the kubelet's logs do not name is called by its uid: so it
// is told apart from others all the same.
func (s *Source) pod(uid string, now time.Time) (pod, key) {
	found, ok := s.names.find(uid, now)
	if !ok {
		return found, key{kindPod, uid}
	}
	return found, key{kindPod, found.namespace + "/" + found.name}
}

// compose puts owners with their teams into the part.
func (s *Source) compose(part *collector.Part, uses map[process]*known, gifts []gift) {
	workloads := map[*identity]collector.Workload{}
	owner := func(id *identity) collector.Owner {
		w, ok := workloads[id]
		if !ok {
			w = describe(id, s.cfg.Rules)
			w.Readings = collector.NewReadings(metric.Workload)
			workloads[id] = w
		}
		return w.Owner
	}
	for _, p := range slices.SortedFunc(maps.Keys(uses), byPID) {
		if k := uses[p]; k.identity != nil {
			part.Attributions = append(part.Attributions, collector.Attribution{PID: p.pid, Start: p.start, Owner: owner(k.identity), Container: k.container, Privileged: k.privileged})
		}
	}
	for _, g := range gifts {
		g.allocation.Owner = owner(g.to)
		if g.allocation.UUID != "" {
			part.Allocations = append(part.Allocations, g.allocation)
		}
	}
	for _, w := range workloads {
		part.Workloads = append(part.Workloads, w)
	}
	slices.SortFunc(part.Workloads, func(a, b collector.Workload) int { return compareOwners(a.Owner, b.Owner) })
}
