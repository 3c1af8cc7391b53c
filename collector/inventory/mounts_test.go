package inventory

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	csi  = "700 650 259:3 / /data rw,relatime - ext4 /dev/nvme1n1 rw\n"
	node = "30 1 259:2 / / rw - ext4 /dev/root rw\n" +
		"35 30 0:60 / /scratch rw - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch rw\n" +
		"36 30 0:61 / /home/ana rw - nfs4 nas:/export/home/ana rw\n" +
		"40 30 259:3 / /var/lib/kubelet/pods/0a1b/volumes/kubernetes.io~csi/pvc-7d1f/mount rw - ext4 /dev/nvme1n1 rw\n" +
		"41 30 0:70 / /var/lib/kubelet/pods/0a1b/volumes/kubernetes.io~secret/token rw - tmpfs tmpfs rw\n" +
		"42 30 0:71 / /var/lib/kubelet/pods/0a1b/volumes/kubernetes.io~nfs/models rw - nfs4 nas:/models rw\n"
)

// dataIn lists the data sets in a table of mounts beside the node's own.
func dataIn(t *testing.T, table string) []data {
	t.Helper()
	n := newNodeMounts()
	if err := readMounts(strings.NewReader(node), n.add); err != nil {
		t.Fatal(err)
	}
	var found []data
	if err := readMounts(strings.NewReader(table), func(m mount) {
		if d, ok := n.dataOf(m); ok {
			found = append(found, d)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestALineTooLongCostsItsOwnMount(t *testing.T) {
	const nfs = "900 650 0:99 / /data rw,relatime - nfs4 nas:/imagenet rw\n"
	long := "901 650 0:98 / /" + strings.Repeat("x", 3*maxMountsLine) + " rw - nfs4 nas:/other rw\n"
	if got := dataIn(t, long+nfs); len(got) != 1 || got[0].source != "nas:/imagenet" {
		t.Errorf("after a line of %d bytes the data sets are %v, want the one of the next line", len(long), got)
	}
}

func TestDataSets(t *testing.T) {
	f := func(table string, want ...data) {
		t.Helper()
		if diff := cmp.Diff(want, dataIn(t, table), cmp.AllowUnexported(data{})); diff != "" {
			t.Errorf("%q (-want +told):\n%s", table, diff)
		}
	}
	on := func(fstype, source string) string {
		return "900 650 0:99 / /data rw,relatime - " + fstype + " " + source + " rw,secret=hunter2\n"
	}
	f(on("ext4", "/dev/sda1"))
	f(on("overlay", "overlay") + on("tmpfs", "tmpfs") + on("fuse.lxcfs", "lxcfs") + on("fuse.fuse-overlayfs", "fuse-overlayfs") + on("fusectl", "fusectl"))
	f(on("nfs4", "nas:/imagenet"), data{kind: "nfs", source: "nas:/imagenet", point: "/data"})
	f(on("lustre", "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch"), data{kind: "lustre", source: "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch", point: "/data"})
	f(on("ceph", "10.0.0.1:6789,10.0.0.2:6789:/vol"), data{kind: "ceph", source: "10.0.0.1:6789,10.0.0.2:6789:/vol", point: "/data"})
	f(on("ceph", "reader@1b2c.cephfs=/vol"), data{kind: "ceph", source: "reader@1b2c.cephfs=/vol", point: "/data"})
	f(on("gpfs", "/dev/gpfs0"), data{kind: "gpfs", source: "/dev/gpfs0", point: "/data"})
	f(on("beegfs", "beegfs_nodev"), data{kind: "beegfs", source: "beegfs_nodev", point: "/data"})
	f(on("wekafs", "backend/fs1"), data{kind: "weka", source: "backend/fs1", point: "/data"})
	f(on("fuse.s3fs", "s3fs"), data{kind: "bucket", source: "s3fs", point: "/data"})
	f(on("fuse.gcsfuse", "training-data"), data{kind: "bucket", source: "training-data", point: "/data"})
	f(on("fuse", "mountpoint-s3"), data{kind: "bucket", source: "mountpoint-s3", point: "/data"})
	f(on("fuse.blobfuse2", "blobfuse2"), data{kind: "bucket", source: "blobfuse2", point: "/data"})
	f(on("fuse.rclone", "remote:bucket/data"), data{kind: "bucket", source: "remote:bucket/data", point: "/data"})
	f(on("fuse.juicefs", "JuiceFS:models"), data{kind: "bucket", source: "JuiceFS:models", point: "/data"})
	f(csi, data{kind: "claim", source: "pvc-7d1f", point: "/data"})
	f("701 650 0:71 / /models ro - nfs4 nas:/models rw\n", data{kind: "claim", source: "models", point: "/models"})
	f("702 650 0:70 / /secrets ro - tmpfs tmpfs rw\n" + "703 650 259:2 /var/lib/kubelet/pods/0a1b/volumes/kubernetes.io~empty-dir/tmp /tmp rw - ext4 /dev/root rw\n")
	f("704 650 259:2 /var/lib/kubelet/pods/0a1b/volumes/kubernetes.io~local-volume/pv-3 /data rw - ext4 /dev/root rw\n", data{kind: "claim", source: "pv-3", point: "/data"})

	f(node, // a process in the node's own namespace
		data{kind: "lustre", source: "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch", point: "/scratch", everybody: true},
		data{kind: "nfs", source: "nas:/export/home/*", point: "/home/*", everybody: true})
	f("1 2\n - \n1 2 3 4 5 6 - \n\x00\n")
}

func TestSourcesShowNoCredentials(t *testing.T) {
	const secret = "hunter2"
	for _, source := range []string{
		"https://user:hunter2@host/share", "redis://:hunter2@host:6379/1", "user:hunter2@host:/x", "//user:hunter2@server/share", "s3://bucket?secret=hunter2",
		"https://acct.blob.core.windows.net/c?sv=1&sig=hunter2", ":s3,access_key_id=AKIA0123456789ABCDEF,secret_access_key=hunter2:bucket",
		"remote,pass=hunter2:bucket", "s3fs#bucket,passwd=hunter2", "AKIA0123456789ABCDEF:hunter2@bucket", "token=hunter2@host:/x", ":s3,provider=AWS,secret_access_key='a:hunter2':b",
		"https://%zz:hunter2@host/", "user:a@hunter2@host:/x", "//user:a@hunter2@server/share", "bucket#key=hunter2", ":webdav,url='https://u:hunter2@h':dir",
	} {
		for fstype := range kinds {
			line := "900 650 0:99 / /data rw,password=hunter2 - " + fstype + " " + source + " rw,password=hunter2\n"
			for _, d := range dataIn(t, line) {
				if d.kind != "lustre" && strings.Contains(d.source, secret) || strings.Contains(d.point, secret) || strings.Contains(d.source, "AKIA0") && d.kind != "lustre" {
					t.Errorf("%s %s shows a credential: %+v", fstype, source, d)
				}
			}
		}
	}
}

// Tools that mount by address often name the directory after it.
func TestMountPointsShowNoCredentials(t *testing.T) {
	for _, point := range []string{
		"/mnt/user:hunter2@nas/x", "/mnt/user:hun/ter2@nas", "/mnt/s3:AKIA0123456789ABCDEF/hunter2", "/data/AKIA0123456789ABCDEF", "/mnt/token=hunter2",
		"/mnt/https://acct.blob.core.windows.net/c?sv=1&sig=hunter2", "/mnt/passwd=hunter2/bucket", "/mnt/redis://:hunter2@host",
	} {
		found := dataIn(t, "900 650 0:99 / "+point+" rw - nfs4 nas:/x rw\n")
		if len(found) != 1 || found[0].source != "nas:/x" {
			t.Fatalf("%s: the data set is not told at all: %+v", point, found)
		}
		if p := found[0].point; strings.Contains(p, "hunter2") || strings.Contains(p, "AKIA") || strings.Contains(p, "ter2") {
			t.Errorf("a mount point shows a credential: %q", p)
		}
	}
	for _, point := range []string{"/mnt/s3/bucket", "/data/keyboard-logs", "/net/nas:/x", "/mnt/v2@snap", "/passages/token-counts"} {
		if found := dataIn(t, "900 650 0:99 / "+point+" rw - nfs4 nas:/x rw\n"); len(found) != 1 || found[0].point != point {
			t.Errorf("the mount point %s, which has no credential, is told as %+v", point, found)
		}
	}
}

func FuzzMounts(f *testing.F) {
	f.Add(node, "user:hunter2@host:/x")
	f.Add(csi, ":s3,secret_access_key=hunter2:bucket")
	f.Fuzz(func(t *testing.T, table, source string) {
		for _, d := range dataIn(t, table) {
			if d.kind == "" || len([]rune(d.source)) > maxShown || len([]rune(d.point)) > maxShown {
				t.Fatalf("%q gives %+v", table, d)
			}
		}
		if got := shownSource("bucket", "remote,pass=hunter2:"+source); strings.Contains(got, "hunter2") && !strings.Contains(source, "hunter2") {
			t.Fatalf("a password is shown in %q", got)
		}
	})
}
