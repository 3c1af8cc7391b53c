package movement

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strconv"

	"gpuvigil/collector"
	"gpuvigil/collector/proc"
)

// scene is what one sample sees before it is told by owner: what belongs to whom,
// and what to several.
type scene struct {
	*Movement
	owners     []*owned
	namespaces map[uint64]*namespace // of networks, without the host's
	hostNet    uint64                // the host's network namespace; 0: unknown
	hostMounts string                // the host's mount namespace
	mounts     map[string]*owned     // by device of the file system; nil for one that several owners have
}

// process is one process of an owner.
type process struct {
	pid       int
	start     uint64
	container string
}

// owned is an owner with its processes and what was found of them.
type owned struct {
	owner     collector.Owner
	processes []process
	seen      bool // one of them is there

	groups     map[string][]group // by controller
	namespaces []uint64           // of networks
	inHost     bool               // a process is in the host's network namespace
	unknownNet string             // why the namespace of a process is not known
	mounts     []*mountTable
	files      openFiles
}

// gather lists the owners of the snapshot's processes. Those that nobody is known to
// own are nobody's.
func (s *scene) gather(snap *collector.Snapshot) {
	byOwner := map[collector.Owner]*owned{}
	known := map[int]bool{}
	crowded := false
	for i := range snap.Processes {
		p := &snap.Processes[i]
		if p.Owner == (collector.Owner{}) || p.PID <= 0 || known[p.PID] {
			continue
		}
		o := byOwner[p.Owner]
		if o == nil && len(byOwner) == maxOwners || len(known) == maxProcesses {
			crowded = true
			continue
		}
		if o == nil {
			o = &owned{owner: p.Owner, groups: map[string][]group{}}
			byOwner[p.Owner] = o
			s.owners = append(s.owners, o)
		}
		known[p.PID] = true
		o.processes = append(o.processes, process{p.PID, p.Start, p.Container})
	}
	slices.SortFunc(s.owners, func(a, b *owned) int {
		return cmp.Or(cmp.Compare(a.owner.Kind, b.owner.Kind), cmp.Compare(a.owner.ID, b.owner.ID), cmp.Compare(a.owner.Team, b.owner.Team))
	})
	if crowded && !s.crowded {
		s.cfg.Log.Warn("There are more owners or processes than are looked at: what the rest moves is not told.", "owners", maxOwners, "processes", maxProcesses)
	}
	s.Movement.crowded = crowded
}

// look visits each process once.
func (s *scene) look(ctx context.Context) error {
	s.lookAtHost()
	for _, o := range s.owners {
		containers := map[string]bool{}
		for _, p := range o.processes {
			if err := ctx.Err(); err != nil {
				return err
			}
			dir, err := proc.Open(s.cfg.ProcFS, p.pid, p.start)
			if err != nil {
				failed("stat", err)
				continue
			}
			o.seen = true
			s.lookAtGroups(o, dir)
			s.lookAtNetwork(o, dir)
			s.lookAtOpenFiles(o, dir)
			if !containers[p.container] { // one container's processes see the same mounts
				containers[p.container] = true
				s.lookAtMounts(o, dir)
			}
			dir.Close()
		}
	}
	return nil
}

// lookAtHost finds the host's own namespaces: those of its first process.
func (s *scene) lookAtHost() {
	first, err := proc.Open(s.cfg.ProcFS, 1, 0)
	if err != nil {
		failed("stat", err)
		return
	}
	defer first.Close()
	if s.hostNet, err = read(first, devFile, smallFile, ignore); err != nil {
		failed("net_dev", err)
	}
	table, err := readMounts(first)
	if err != nil {
		failed("mountinfo", err)
		return
	}
	s.hostMounts = table.namespace
}

func ignore(string) error { return nil }

// counterOf names a counter by where it is, so that one of a later directory or
// namespace of the same name is another.
func counterOf(place string, inode uint64, name string) string {
	return filepath.Join(place, strconv.FormatUint(inode, 10), name)
}
