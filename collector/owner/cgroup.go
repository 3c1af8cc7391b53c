package owner

import (
	"regexp"
	"strconv"
	"strings"
)

// The kinds of owners, as collector.Owner.Kind spells them.
const (
	kindPod       = "pod"
	kindJob       = "job"
	kindContainer = "container"
	kindService   = "service"
	kindUser      = "user"
)

// place is what the path of a process's cgroup says about where it belongs.
type place struct {
	kind      string // pod, job, container, service, user; empty: the path does not say
	pod       string // uid with dashes, or the 32 digits of a static pod
	container string // 64 digits, or the name of what has no id
	job, step string // of Slurm
	unit      string // of systemd
	uid       int    // -1 if the path holds none

	privileged bool // every capability on the node; only asked of pods and containers
}

// rank orders places by how much they say: of a process's lines the best counts.
func (p place) rank() int {
	rank := 0
	switch p.kind {
	case kindJob:
		rank = 10
	case kindPod:
		rank = 8
	case kindContainer:
		rank = 6
	case kindService:
		rank = 4
	case kindUser:
		rank = 2
	}
	if p.container != "" {
		rank++
	}
	return rank
}

// parseCgroup reads /proc/PID/cgroup. Under cgroup v1, and where both versions are
// mounted, each controller has a line of its own, and those that a runtime does not
// use stay at the root or at the unit of its daemon.
func parseCgroup(content string) place {
	best := place{uid: -1}
	for line := range strings.Lines(content) {
		// A path may hold colons.
		_, rest, found := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		_, path, more := strings.Cut(rest, ":")
		if !found || !more {
			continue
		}
		if p := parsePath(path); p.rank() > best.rank() {
			best = p
		}
	}
	return best
}

var (
	podSegment       = regexp.MustCompile(`^(?:.*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$`)
	containerSegment = regexp.MustCompile(`^(?:([a-z][a-z0-9.-]*)-)?([0-9a-f]{64})(?:\.scope)?$`)
	jobSegment       = regexp.MustCompile(`^job_([0-9]{1,18})$`)
	stepSegment      = regexp.MustCompile(`^step_([a-z0-9]{1,20})$`)
	jobUserSegment   = regexp.MustCompile(`^uid_([0-9]{1,10})$`)
	userSlice        = regexp.MustCompile(`^user-([0-9]{1,10})\.slice$`)
	userManager      = regexp.MustCompile(`^user@[0-9]{1,10}\.service$`)
	nomadTask        = regexp.MustCompile(`^([0-9a-f]{8})-[0-9a-f-]{27}\.(.+)\.scope$`)
	machineScope     = regexp.MustCompile(`^machine-(.+)\.scope$`)
)

// parsePath reads one cgroup path. It looks at the segments, not at where the path
// begins: seen from another cgroup namespace a path begins with "/..", and kind and
// others put a hierarchy of their own before the usual one.
//
// What a user's own service manager runs is in a part of the tree that the user may
// write. A job or pod there is the user's claim, and it would be somebody else's bill.
func parsePath(path string) place {
	p := place{uid: -1}
	segments := splitPath(path)
	own, guest := false, "" // below a user's manager; the LXC guest
	for i, s := range segments {
		if m := userSlice.FindStringSubmatch(s); m != nil && p.uid < 0 {
			p.uid = number(m[1])
		}
		if userManager.MatchString(s) {
			own = true
			continue
		}
		if id := containerID(s); id != "" && p.pod == "" {
			p.container = id
		}
		switch {
		case strings.HasSuffix(s, ".service"):
			p.unit = s
		case strings.HasPrefix(s, "lxc.payload."):
			guest = strings.TrimPrefix(s, "lxc.payload.")
		case s == "lxc" && i+1 < len(segments):
			guest = segments[i+1]
		case !own && p.job == "" && isJob(segments, i):
			p.readJob(segments, i)
		case !own && p.pod == "":
			p.readPod(segments, i)
		}
	}
	if p.container == "" && p.pod == "" {
		p.container = guest
		if guest == "" {
			p.container = otherContainer(segments)
		}
	}
	p.kind = p.kindOf(guest)
	return p
}

// splitPath returns the segments of a path, without what the kernel adds to one that
// was removed. containerd can put three names into one: slice:runtime:id.
func splitPath(path string) []string {
	var out []string
	for s := range strings.SplitSeq(strings.TrimSuffix(path, " (deleted)"), "/") {
		if parts := strings.Split(s, ":"); len(parts) == 3 {
			out = append(out, parts[0], parts[1]+"-"+parts[2])
		} else if s != "" && s != ".." {
			out = append(out, s)
		}
	}
	return out
}

func (p place) kindOf(guest string) string {
	switch {
	case p.job != "":
		return kindJob
	case p.pod != "":
		return kindPod
	case p.container != "" && (guest == "" || p.unit == ""):
		return kindContainer
	case p.uid >= 0:
		return kindUser
	case p.unit != "":
		return kindService
	}
	return ""
}

// isJob reports whether the segment is a Slurm job's: it is below slurmstepd's scope
// (v2) or a uid (v1), or, where the path was cut, above a step.
func isJob(segments []string, i int) bool {
	if !jobSegment.MatchString(segments[i]) {
		return false
	}
	if i > 0 && (strings.HasSuffix(segments[i-1], "slurmstepd.scope") || jobUserSegment.MatchString(segments[i-1])) {
		return true
	}
	return i+1 < len(segments) && stepSegment.MatchString(segments[i+1])
}

func (p *place) readJob(segments []string, i int) {
	p.job = jobSegment.FindStringSubmatch(segments[i])[1]
	if i > 0 {
		if m := jobUserSegment.FindStringSubmatch(segments[i-1]); m != nil {
			p.uid = number(m[1])
		}
	}
	if i+1 < len(segments) {
		if m := stepSegment.FindStringSubmatch(segments[i+1]); m != nil {
			p.step = m[1]
		}
	}
}

// readPod takes the outermost pod, and its direct child as the container: what is
// deeper is made by the pod itself, and the node's kubelet does not know it.
func (p *place) readPod(segments []string, i int) {
	m := podSegment.FindStringSubmatch(segments[i])
	if m == nil {
		return
	}
	p.pod, p.container = strings.ReplaceAll(m[1], "_", "-"), ""
	if i+1 < len(segments) {
		p.container = containerID(segments[i+1])
	}
}

// containerID returns the id in a segment. A runtime's monitor is beside its
// container and not in it.
func containerID(segment string) string {
	m := containerSegment.FindStringSubmatch(segment)
	if m == nil || strings.HasSuffix(m[1], "conmon") {
		return ""
	}
	return m[2]
}

// otherContainer knows those whose segment is no id: tasks of ECS and Nomad, and
// machines of systemd.
func otherContainer(segments []string) string {
	for i, s := range segments {
		last := segments[len(segments)-1]
		switch {
		case s == "ecs" && i+1 < len(segments):
			return last
		case s == "nomad.slice":
			if m := nomadTask.FindStringSubmatch(last); m != nil {
				return m[2] + "." + m[1]
			}
		case s == "machine.slice" && i+1 < len(segments):
			if m := machineScope.FindStringSubmatch(segments[i+1]); m != nil {
				return unescapeUnit(m[1])
			}
		}
	}
	return ""
}

// unescapeUnit undoes systemd's \x2d in names.
func unescapeUnit(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], `\x`) && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// number reads digits; what is no uid is -1.
func number(digits string) int {
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return -1
	}
	return int(n)
}
