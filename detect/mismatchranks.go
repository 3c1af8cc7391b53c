package detect

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// rankRow is one version that some ranks of a job, or replicas of a service, have.
type rankRow struct {
	group   string
	what    string // a component, or the image of a container
	version string
	owner   collector.Owner
	ranks   int
	wait    time.Duration
	node    string // where several are compared
}

// lookAtRanks compares the versions within each job and service. Others may run what
// they like.
func (d *Mismatch) lookAtRanks(s *collector.Snapshot, inv *collector.Inventory) {
	d.rows = d.rows[:0]
	for i := 0; i < len(inv.Runtimes); {
		j := i + 1
		for j < len(inv.Runtimes) && inv.Runtimes[j].Owner == inv.Runtimes[i].Owner {
			j++
		}
		d.ofOwner(s, inv.Runtimes[i:j])
		i = j
	}
	for i := range inv.Images {
		d.ofImage(&inv.Images[i])
	}
	slices.SortStableFunc(d.rows, func(a, b rankRow) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.what, b.what), cmp.Compare(a.version, b.version))
	})
	for i := 0; i < len(d.rows); {
		j := i + 1
		for j < len(d.rows) && d.rows[j].group == d.rows[i].group {
			j++
		}
		d.compareGroup(s, d.rows[i:j])
		i = j
	}
}

// ofImage takes up an image. Pods that somebody has numbered by hand have nothing to do
// with each other, unless they run one tag.
func (d *Mismatch) ofImage(im *collector.Image) {
	group, wait := groupOf(im.Owner)
	if group == "" || wait > 0 && (im.Digest == "" || im.Name == "") {
		return
	}
	what := "image of " + cmp.Or(im.Container, "the container")
	if wait > 0 {
		what = "image " + im.Name
	}
	d.rows = append(d.rows, rankRow{group: group, what: what, version: cmp.Or(im.Digest, im.Name), owner: im.Owner, ranks: 1, wait: wait})
}

// ofOwner takes up what one owner's processes have loaded. They are ranks of one thing
// only if they are one program in one container: a sidecar may be of another time.
func (d *Mismatch) ofOwner(s *collector.Snapshot, runtimes []collector.Runtime) {
	owner := runtimes[0].Owner
	if owner.Kind != "pod" && owner.Kind != "job" && owner.Kind != "container" && owner.Kind != "service" {
		return
	}
	ranks := ranksOf(s, owner)
	if ranks == 0 {
		return
	}
	group, wait := groupOf(owner)
	for i := 0; i < len(runtimes); {
		j, known, sum := i, 0, 0
		for ; j < len(runtimes) && runtimes[j].Component == runtimes[i].Component; j++ {
			if runtimes[j].Version != unknownVersion {
				known++
				sum += runtimes[j].Processes
			}
		}
		of := runtimes[i:j]
		i = j
		switch {
		case known == 1 && len(of) == 1 && group != "" && wait == 0:
			d.rows = append(d.rows, rankRow{group: group, what: of[0].Component, version: of[0].Version, owner: owner, ranks: of[0].Processes})
		case known > 1 && sum <= ranks: // else a process has loaded several
			for _, r := range of {
				if r.Version != unknownVersion {
					d.rows = append(d.rows, rankRow{group: subjectOfOwner(s, owner).String(), what: r.Component, version: r.Version, owner: owner, ranks: r.Processes})
				}
			}
		}
	}
}

// ranksOf returns how many processes of the owner use GPUs, 0 if they are not one
// program in one container.
func ranksOf(s *collector.Snapshot, o collector.Owner) int {
	n, first := 0, (*collector.Process)(nil)
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.Owner != o || p.Service() {
			continue
		}
		if first == nil {
			first = p
		}
		if p.Name != first.Name || p.Container != first.Container {
			return 0
		}
		if firstOfProcess(s.Processes, i) {
			n++
		}
	}
	return n
}

// firstOfProcess reports whether the i-th entry is the first of its process, which has
// one on each GPU that it uses.
func firstOfProcess(list []collector.Process, i int) bool {
	for j := range i {
		if list[j].PID == list[i].PID && list[j].Start == list[i].Start {
			return false
		}
	}
	return true
}

// The ends of names that Kubernetes' controllers give to pods. Their random letters
// leave out those that could form words.
var (
	randomEnd = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	indexEnd  = regexp.MustCompile(`(?:-[0-9]{1,5})+$`)
)

// groupOf returns whose replica a pod is, empty if it is not known to be anybody's, and
// for how long its versions may differ from those of the others. Pods of one ReplicaSet
// or Job are made from one template. Those that have but a number may be a
// StatefulSet's in the midst of a roll-out.
func groupOf(o collector.Owner) (group string, wait time.Duration) {
	if o.Kind != "pod" {
		return "", 0
	}
	name := o.ID
	if end := randomEnd.FindStringIndex(name); end != nil {
		name = name[:end[0]]
	} else {
		wait = rolloutTakes
	}
	if end := indexEnd.FindStringIndex(name); end != nil {
		name = name[:end[0]]
	}
	if name == o.ID {
		return "", 0
	}
	return "pods:" + name, wait
}

// compareGroup looks for versions that differ among the rows of one group, which are
// sorted.
func (d *Mismatch) compareGroup(s *collector.Snapshot, rows []rankRow) {
	var lines []string
	var fewest *rankRow
	least, versions := 0, 0
	for i := 0; i < len(rows); {
		j := i + 1
		for j < len(rows) && rows[j].what == rows[i].what {
			j++
		}
		of := rows[i:j]
		i = j
		if of[0].version == of[len(of)-1].version {
			continue
		}
		line, n, odd, ranks := rankLine(of)
		lines, versions = append(lines, line), max(versions, n)
		if fewest == nil || ranks < least {
			fewest, least = odd, ranks
		}
	}
	if fewest == nil {
		return
	}
	kind, id, _ := strings.Cut(rows[0].group, ":")
	// A replica that was replaced is a move: a roll-out that goes on raises nothing.
	c := d.find(s, Subject{kind, id}, ranksDiffer, strings.Join(lines, "; "))
	if c == nil {
		return
	}
	c.wait, c.severity, c.owner, c.Software = rows[0].wait, rules.Ticket, fewest.owner, true
	want := 1.0
	c.told = Evidence{
		Title: "Ranks of one job run different versions", Seen: kind + " " + id + ": " + listed(lines), Expected: "the same version in all",
		Observed: float64(versions), Want: &want, Confidence: VerySure,
		Why: "read from what the processes have loaded and from the containers' descriptions",
	}
	if kind == "pods" {
		c.told.Title = "Replicas of one service run different versions"
		c.told.Seen += "; another one is in " + ownerWords(fewest.owner)
	}
}

// rankLine says how many have which version, and returns one of those that have the
// rarest and how many they are.
func rankLine(rows []rankRow) (line string, versions int, fewest *rankRow, least int) {
	var parts []string
	for i := 0; i < len(rows); {
		j, ranks := i, 0
		for ; j < len(rows) && rows[j].version == rows[i].version; j++ {
			ranks += rows[j].ranks
		}
		in := count(ranks, "rank", "ranks")
		if strings.HasPrefix(rows[i].group, "pods:") {
			in = count(j-i, "pod", "pods")
		}
		parts = append(parts, shortDigest(rows[i].version)+" in "+in)
		if fewest == nil || ranks < least {
			fewest, least = &rows[i], ranks
		}
		i = j
	}
	return rows[0].what + " " + strings.Join(parts, ", "), len(parts), fewest, least
}

// shortDigest cuts the digest of an image to what people compare.
func shortDigest(version string) string {
	if hash, ok := strings.CutPrefix(version, "sha256:"); ok && len(hash) > 12 {
		return hash[:12]
	}
	return version
}
