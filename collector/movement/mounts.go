package movement

import (
	"slices"
	"strconv"
	"strings"

	"gpuvigil/collector/proc"
	"gpuvigil/internal/metric"
)

// mountTable is what a process has mounted over a network.
type mountTable struct {
	namespace string            // number of the mount of /, which is of one namespace only
	network   bool              // a file system that block I/O does not see
	nfs       map[string]string // device of the file system by mount point
	read      map[string]uint64 // bytes from the server by mount point
	written   map[string]uint64
	failed    string // why the bytes could not be read
}

func (s *scene) lookAtMounts(o *owned, dir *proc.Dir) {
	t, err := readMounts(dir)
	if err != nil {
		failed("mountinfo", err)
		return
	}
	if len(t.nfs) > 0 && s.cfg.Privileged && t.namespace != s.hostMounts {
		t.readStats(dir)
	}
	o.mounts = append(o.mounts, t)
	for _, device := range t.nfs {
		if other, known := s.mounts[device]; known && other != o {
			s.mounts[device] = nil
		} else if !known {
			s.mounts[device] = o
		}
	}
}

func readMounts(dir *proc.Dir) (*mountTable, error) {
	t := &mountTable{nfs: map[string]string{}, read: map[string]uint64{}, written: map[string]uint64{}}
	_, err := read(dir, "mountinfo", largeFile, t.mount)
	return t, err
}

// mount reads a line of mountinfo: number, parent, device, root, mount point,
// options, any number of tags, a dash, type, source.
func (t *mountTable) mount(line string) error {
	fields := strings.Fields(line)
	dash := slices.Index(fields, "-")
	if dash < 6 || len(fields) < dash+2 {
		return errMalformed
	}
	kind := fields[dash+1]
	if fields[4] == "/" {
		t.namespace = fields[0]
	}
	t.network = t.network || overNetwork(kind)
	if kind == "nfs" || kind == "nfs4" {
		t.nfs[fields[4]] = fields[2]
	}
	return nil
}

// networkKinds are types of file systems that no block device is below.
var networkKinds = []string{"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "glusterfs", "beegfs", "gpfs", "afs", "9p", "virtiofs", "panfs", "wekafs", "fuse"}

// local are user-space file systems that hold no data of a workload.
var local = []string{"fuse.lxcfs", "fuse.portal", "fuse.gvfsd-fuse", "fuse.snapfuse", "fuse.fuse-overlayfs"}

func overNetwork(kind string) bool {
	return slices.Contains(networkKinds, kind) || strings.HasPrefix(kind, "fuse.") && !slices.Contains(local, kind)
}

// readStats reads mountstats, which is for the process's own user and for
// administrators (CAP_DAC_READ_SEARCH).
func (t *mountTable) readStats(dir *proc.Dir) {
	var point string
	_, err := read(dir, "mountstats", largeFile, func(line string) error { return t.stat(&point, line) })
	if err != nil {
		t.failed = failed("mountstats", err)
	}
}

// stat reads a line of mountstats; point is the mount that it belongs to. Of the
// bytes of an NFS mount, the fifth and sixth numbers are those from and to the
// server.
func (t *mountTable) stat(point *string, line string) error {
	fields := strings.Fields(line)
	switch {
	case len(fields) >= 5 && fields[0] == "device":
		*point = ""
		if at := slices.Index(fields, "on"); at > 0 && at+1 < len(fields) {
			*point = fields[at+1]
		}
	case len(fields) > 6 && fields[0] == "bytes:" && t.nfs[*point] != "":
		read, err := strconv.ParseUint(fields[5], 10, 64)
		if err != nil {
			return errMalformed
		}
		written, err := strconv.ParseUint(fields[6], 10, 64)
		if err != nil {
			return errMalformed
		}
		t.read[*point], t.written[*point] = read, written
	}
	return nil
}

// files tells what the owner's NFS mounts moved. The kernel counts for a mounted
// export, whoever uses it: one that two owners have is nobody's.
func (f *facts) files() {
	reason, mounted := "", false
	for _, t := range f.owned.mounts {
		if t.network {
			f.caveat("block", "network_file_systems")
		}
		if len(t.nfs) == 0 {
			continue
		}
		mounted = true
		switch {
		case t.namespace == f.hostMounts:
			reason = "host_mounts"
		case !f.cfg.Privileged:
			reason = "not_enabled"
		case t.failed != "":
			reason = t.failed
		}
		for _, device := range t.nfs {
			if f.scene.mounts[device] != f.owned {
				reason = "shared_mounts"
			}
		}
	}
	if reason != "" {
		f.caveat("network_file", reason)
	}
	if reason != "" || !mounted {
		return
	}
	for _, t := range f.owned.mounts {
		for at, counters := range []map[string]uint64{t.read, t.written} {
			for point, v := range counters {
				f.tally.addExclusive(metric.WorkloadNetworkFileBytes, at, "nfs/"+t.nfs[point], v)
			}
		}
	}
}
