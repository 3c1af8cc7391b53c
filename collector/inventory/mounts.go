package inventory

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"gpuvigil/collector/proc"
	"gpuvigil/internal/text"
)

// The bounds of a table of mounts.
const (
	maxMountsBytes = 8 << 20
	maxMountsLine  = 64 << 10
	maxShown       = 200 // runes of a source or a mount point
)

// mount is a line of /proc/PID/mountinfo.
type mount struct {
	id     string // the same in two processes only if they share the mount
	device string // major:minor
	root   string // what of the file system is mounted
	point  string
	fstype string
	source string
}

// readMounts reads the text of /proc/PID/mountinfo and hands over each mount. The
// options are not looked at: they may hold passwords. A line that is too long costs
// its own mount only.
func readMounts(r io.Reader, each func(mount)) error {
	lines := bufio.NewReaderSize(io.LimitReader(r, maxMountsBytes), maxMountsLine)
	for {
		line, more, err := lines.ReadLine()
		if more {
			line = nil
		}
		for more && err == nil {
			_, more, err = lines.ReadLine()
		}
		if m, ok := parseMount(string(line)); ok {
			each(m)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read its mounts: %w", proc.Gone(err))
		}
	}
}

// parseMount reads a line such as
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(line, " - ")
	head, tail := strings.Fields(before), strings.Split(after, " ")
	if !ok || len(head) < 6 || len(tail) < 2 {
		return mount{}, false
	}
	return mount{id: head[0], device: head[2], root: unescape(head[3]), point: unescape(head[4]), fstype: tail[0], source: unescape(tail[1])}, true
}

var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\043`, "#", `\134`, `\`)

func unescape(s string) string { return escapes.Replace(s) }

// kinds are the file systems that data sets lie on, by the kernel's name or, for
// one in user space, that of the program.
var kinds = map[string]string{
	"nfs": "nfs", "nfs4": "nfs", "cifs": "smb", "smb3": "smb",
	"lustre": "lustre", "ceph": "ceph", "fuse.ceph-fuse": "ceph", "fuse.ceph": "ceph", "gpfs": "gpfs", "beegfs": "beegfs", "wekafs": "weka",
	"glusterfs": "gluster", "fuse.glusterfs": "gluster", "pvfs2": "orangefs", "panfs": "panfs", "fuse.dfuse": "daos", "fuse.sshfs": "sshfs",
	"fuse.s3fs": bucket, "fuse.gcsfuse": bucket, "gcsfuse": bucket, "fuse.goofys": bucket, "fuse.mountpoint-s3": bucket, "fuse.mount-s3": bucket,
	"fuse.blobfuse": bucket, "fuse.blobfuse2": bucket, "fuse.rclone": bucket, "fuse.juicefs": bucket, "fuse.alluxio-fuse": bucket, "fuse.geesefs": bucket,
}

const (
	bucket = "bucket"
	claim  = "claim"
)

// programs are file systems in user space whose type is plain "fuse": their source
// tells which they are.
var programs = []string{"mountpoint-s3", "blobfuse2", "blobfuse", "s3fs", "goofys", "gcsfuse", "rclone", "JuiceFS"}

func kindOf(m mount) string {
	if kind := kinds[m.fstype]; kind != "" {
		return kind
	}
	if m.fstype == "fuse" && slices.ContainsFunc(programs, func(p string) bool { return m.source == p || strings.HasPrefix(m.source, p+":") }) {
		return bucket
	}
	return ""
}

// volume matches where the kubelet mounts the volume of a pod.
var volume = regexp.MustCompile(`/pods/[^/]+/volumes/([^/]+)/([^/]+)`)

// plain are the volumes of Kubernetes that are no data set: what the pod's own
// description holds, or what ends with it.
var plain = []string{
	"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api", "kubernetes.io~host-path",
}

// claimOf returns the name of the volume that a path of the kubelet's is of.
func claimOf(place string) string {
	m := volume.FindStringSubmatch(place)
	if m == nil || slices.Contains(plain, m[1]) {
		return ""
	}
	return m[2]
}

// nodeMounts are the mounts of the node's own namespace, which tell a container's
// volumes from each other and what is mounted for everybody.
type nodeMounts struct {
	ids    map[string]bool
	claims map[string]string // names of volumes, by device and root
}

func newNodeMounts() nodeMounts { return nodeMounts{map[string]bool{}, map[string]string{}} }

func (n *nodeMounts) add(m mount) {
	n.ids[m.id] = true
	if name := claimOf(m.point); name != "" {
		n.claims[m.device+" "+m.root] = name
	}
}

// data is a data set that a process has mounted.
type data struct {
	kind, source, point string
	everybody           bool // it is a mount of the node's
}

// dataOf says whether a mount is a data set.
func (n *nodeMounts) dataOf(m mount) (data, bool) {
	d := data{kind: kindOf(m), source: m.source, point: m.point, everybody: n.ids[m.id]}
	name := claimOf(m.root)
	if name == "" {
		name = n.claims[m.device+" "+m.root]
	}
	switch {
	case d.everybody && volume.MatchString(m.point):
		return data{}, false // of some pod, and not of who is looked at
	case name != "":
		d.kind, d.source = claim, name
	case d.kind == "":
		return data{}, false
	}
	d.source, d.point = shownSource(d.kind, d.source), shownPoint(d.point)
	return d, true
}

var (
	userInfo = regexp.MustCompile(`^(//)?[^/@\s]*:.*@`) // to the last @: a password may hold some
	secretly = regexp.MustCompile(`(?i)(key|secret|token|pass|pwd|signature|credential|sas|sig)[^=:]{0,40}=|(AKIA|ASIA)[0-9A-Z]{12}`)
	passed   = regexp.MustCompile(`:.*@|://`) // a name and a password, or an address that may have them
	homes    = regexp.MustCompile(`(^|[/:])(home|homes|users|Users)/[^/]+`)
)

// shownSource returns a mount's source without what may be a credential, and
// without names of people. A source in doubt is left out: its kind still tells.
func shownSource(kind, source string) string {
	switch {
	case strings.Contains(source, "://"):
		u, err := url.Parse(source)
		if err != nil {
			return ""
		}
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		source = u.String()
	case kind == "lustre": // 10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch looks like it had one
	default:
		source, _, _ = strings.Cut(source, "?")
		source = userInfo.ReplaceAllString(source, "$1")
		if backend, _, ok := strings.Cut(strings.TrimPrefix(source, ":"), ","); ok && kind == bucket { // rclone's :s3,secret_access_key=…:bucket
			source = backend
		}
	}
	if secretly.MatchString(source) {
		return ""
	}
	return shown(source)
}

// shownPoint returns where something is mounted without what may be a credential: tools
// name the directory after the address that they mount. One in doubt is left out.
func shownPoint(point string) string {
	if secretly.MatchString(point) || passed.MatchString(point) {
		return ""
	}
	return shown(point)
}

// shown is a path as it may be told.
func shown(p string) string {
	return text.Clean(homes.ReplaceAllString(p, "$1$2/*"), maxShown)
}

// data lists the data sets that the process has mounted.
func (p *process) data(n *nodeMounts) (found []data, err error) {
	err = p.mounts(func(m mount) {
		if d, ok := n.dataOf(m); ok && len(found) < maxData && !slices.Contains(found, d) {
			found = append(found, d)
		}
	})
	return found, err
}

// maxData bounds the data sets of one process.
const maxData = 64

func (p *process) mounts(each func(mount)) (err error) {
	f, err := p.File("mountinfo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return readMounts(f, each)
}
