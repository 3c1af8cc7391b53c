package movement

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func readBytes(n *node, dir string, read, written int) {
	n.file("sys/fs/cgroup"+dir+"/io.stat", fmt.Sprintf("259:0 rbytes=%d wbytes=%d rios=1 wios=1 dbytes=0 dios=0\n253:1 \n", read, written))
}

func TestWhatAPodMoves(t *testing.T) {
	n := newNode(t)
	n.process(100, 7, "0::"+podPath+container+"\n", recorded(t, "proc-net-dev.txt"))
	n.uses(100, 7, pod, "GPU-a")
	n.group(podPath)
	n.file("sys/fs/cgroup"+podPath+"/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n")
	n.group(podPath + container)
	n.file("sys/fs/cgroup"+podPath+container+"/cpu.max", recorded(t, "cgroup2/cpu.max"))
	n.file("sys/fs/cgroup"+podPath+"/cpu.max", recorded(t, "cgroup2/cpu.max-unlimited"))
	n.file("sys/fs/cgroup"+podPath+"/memory.max", recorded(t, "cgroup2/memory.max"))
	n.file("sys/fs/cgroup"+podPath+container+"/memory.max", "8589934592\n")

	w := n.sample()[pod.String()]
	n.is(w, metric.WorkloadBlockBytes, 0, 0) // what came before the first look is nobody's burst
	n.is(w, metric.WorkloadNetworkBytes, 0, 0)
	n.is(w, metric.WorkloadMemory, 0, 1000)
	n.is(w, metric.WorkloadMemory, 1, 200)
	n.is(w, metric.WorkloadCPULimit, 0, 4)
	n.is(w, metric.WorkloadMemoryLimit, 0, 8<<30)
	n.is(w, metric.WorkloadOOMKills, 0, 0)
	n.is(w, metric.WorkloadNetworkFileBytes, 0, absent)
	n.is(w, metric.WorkloadPCIeBytes, 0, absent) // this GPU does not count
	if len(w.Caveats) > 0 {
		t.Errorf("a pod of which all can be told has caveats: %v", w.Caveats)
	}

	readBytes(n, podPath, 1048576+500, 4096+70)
	n.file("sys/fs/cgroup"+podPath+"/cpu.stat", "usage_usec 81312345\nthrottled_usec 0\n")
	n.file("sys/fs/cgroup"+podPath+container+"/cpu.stat", "usage_usec 1\nnr_throttled 413\nthrottled_usec 33000000\n")
	n.file("sys/fs/cgroup"+podPath+"/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000005\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")
	n.file("proc/100/net/dev", strings.NewReplacer("18446744073709551000:", "", "18446744073709551000", "18446744073709551600", "7000000000", "7000000042").
		Replace(recorded(t, "proc-net-dev.txt")))
	w = n.sample()[pod.String()]
	n.is(w, metric.WorkloadBlockBytes, 0, 500)
	n.is(w, metric.WorkloadBlockBytes, 1, 70)
	n.is(w, metric.WorkloadCPUSeconds, 0, 1)
	n.is(w, metric.WorkloadCPUThrottled, 0, 2) // of its container, where the quota is
	n.is(w, metric.WorkloadPressure, 0, 2)
	n.is(w, metric.WorkloadNetworkBytes, 0, 600) // of eth0, although the counter is beyond what a float can tell
	n.is(w, metric.WorkloadNetworkBytes, 1, 42)  // of ib0
}

// The sums go on over restarts, and never fall or jump.
func TestGenerations(t *testing.T) {
	n := newNode(t)
	n.process(100, 7, "0::"+podPath+container+"\n", hostDev)
	n.uses(100, 7, pod, "GPU-a")
	readBytes(n, podPath, 1000, 0)
	n.sample()
	readBytes(n, podPath, 1500, 0)
	n.is(n.sample()[pod.String()], metric.WorkloadBlockBytes, 0, 500)

	// Its only process goes for a while; the pod reads on without a GPU.
	processes := n.snap.Processes
	n.snap.Processes = nil
	if got := n.sample(); len(got) != 0 {
		t.Errorf("an owner without processes is told: %v", got)
	}
	n.snap.Processes = processes
	readBytes(n, podPath, 1600, 0)
	n.is(n.sample()[pod.String()], metric.WorkloadBlockBytes, 0, 600)

	// The pod is made anew: another directory of the same name, days old by its counter.
	n.remove("sys/fs/cgroup" + podPath)
	readBytes(n, podPath, 999999, 0)
	n.is(n.sample()[pod.String()], metric.WorkloadBlockBytes, 0, 600)
	readBytes(n, podPath, 1000000, 0)
	n.is(n.sample()[pod.String()], metric.WorkloadBlockBytes, 0, 601)

	// A counter that begins anew in its place counts from there.
	readBytes(n, podPath, 5, 0)
	n.is(n.sample()[pod.String()], metric.WorkloadBlockBytes, 0, 601)
	readBytes(n, podPath, 15, 0)
	n.is(n.sample()[pod.String()], metric.WorkloadBlockBytes, 0, 611)

	// One device more is none of its past; one less is no restart of the other.
	n.file("sys/fs/cgroup"+podPath+"/io.stat", "259:0 rbytes=16 wbytes=0\n8:0 rbytes=700 wbytes=0\n")
	n.is(n.sample()[pod.String()], metric.WorkloadBlockBytes, 0, 612)
	n.file("sys/fs/cgroup"+podPath+"/io.stat", "8:0 rbytes=701 wbytes=0\n")
	n.is(n.sample()[pod.String()], metric.WorkloadBlockBytes, 0, 613)

	// A new configuration goes on where the old one was.
	old := n.source
	n.source = nil
	next, err := New(n.cfg)
	if err != nil {
		t.Fatal(err)
	}
	next.Inherit(old)
	n.source = next
	n.file("sys/fs/cgroup"+podPath+"/io.stat", "8:0 rbytes=702 wbytes=0\n")
	n.is(n.sample()[pod.String()], metric.WorkloadBlockBytes, 0, 614)

	n.snap.Processes = nil
	for range keepRounds + 2 {
		n.sample()
	}
	if len(n.source.tallies) > 0 {
		t.Error("an owner that has gone is remembered for ever")
	}
}

// A pid that is another process's by now tells nothing of the owner.
func TestReusedPIDTellsNothing(t *testing.T) {
	n := newNode(t)
	n.process(100, 8, "0::"+podPath+container+"\n", hostDev)
	n.uses(100, 7, pod, "GPU-a")
	n.uses(101, 7, pod, "GPU-a") // has gone
	n.group(podPath)
	if got := n.sample(); len(got) != 0 {
		t.Errorf("processes that are not there any more tell %v", got)
	}
}

func TestNamespaces(t *testing.T) {
	n := newNode(t)
	owner := func(id string) collector.Owner { return collector.Owner{Kind: "pod", ID: id} }
	for pid, id := range map[int]string{10: "a/host", 20: "a/shared", 21: "b/shared", 30: "a/own", 31: "a/own", 40: "a/both", 41: "a/both"} {
		n.process(pid, 1, "0::/\n", hostDev)
		n.uses(pid, 1, owner(id), "GPU-"+id)
	}
	n.joins(10, 1)
	n.joins(21, 20)
	n.joins(31, 30)
	n.joins(41, 1)
	n.sample()
	for _, pid := range []int{1, 20, 30, 40} {
		n.file(fmt.Sprintf("proc/%d/net/dev", pid), strings.ReplaceAll(hostDev, "900", "1000"))
	}
	got := n.sample()
	for id, reason := range map[string]string{"a/host": "host_network", "a/shared": "shared_network", "b/shared": "shared_network", "a/both": "host_network"} {
		w := got["pod:"+id]
		n.is(w, metric.WorkloadNetworkBytes, 0, absent)
		n.is(w, metric.WorkloadRemotes, 0, absent)
		n.says(w, "network", reason)
	}
	n.is(got["pod:a/own"], metric.WorkloadNetworkBytes, 0, 100) // two processes, one namespace, without loopback

	// Alone in the namespace again, it does not get what both moved.
	n.snap.Processes = slices.DeleteFunc(n.snap.Processes, func(p collector.Process) bool { return p.PID == 21 })
	n.file("proc/20/net/dev", strings.ReplaceAll(hostDev, "900", "5000"))
	n.is(n.sample()["pod:a/shared"], metric.WorkloadNetworkBytes, 0, 0)
	n.file("proc/20/net/dev", strings.ReplaceAll(hostDev, "900", "5001"))
	n.is(n.sample()["pod:a/shared"], metric.WorkloadNetworkBytes, 0, 1)
}

// The host's own namespace is told without any privilege.
func TestThisProcess(t *testing.T) {
	n := newNode(t)
	n.cfg.ProcFS = "/proc"
	me := collector.Owner{Kind: "user", ID: "1000"}
	n.uses(os.Getpid(), 0, me, "GPU-a")
	w := n.sample()[me.String()]
	if w.Readings.Vector() == nil {
		t.Fatal("nothing is told of a process that is there")
	}
	inHost := slices.Contains(w.Caveats, collector.Caveat{Fact: "network", Reason: "host_network"})
	if inHost == w.Has(metric.WorkloadNetworkBytes) {
		t.Errorf("in the host's network %v, and yet a network of its own: %v", inHost, w.Has(metric.WorkloadNetworkBytes))
	}
	// Who may look at both namespaces knows the answer.
	host, err := os.Readlink("/proc/1/ns/net")
	own, ownErr := os.Readlink("/proc/self/ns/net")
	if err == nil && ownErr == nil && inHost != (host == own) {
		t.Errorf("in the host's network %v; the namespaces are %s and %s", inHost, host, own)
	}
}

func TestRemotes(t *testing.T) {
	n := newNode(t)
	n.cfg.Addresses = true
	n.process(100, 7, "0::/\n", hostDev)
	n.uses(100, 7, pod, "GPU-a")
	addresses := []string{
		"8.8.8.8:443", "8.8.8.8:80", "1.1.1.1:443", // two public ones
		"10.1.2.3:2049", "100.64.0.9:1", "169.254.1.1:1", "192.168.0.1:1", "172.31.0.1:1", // private
		"127.0.0.1:5000", "10.0.0.7:1", // itself, by loopback and by its own address
	}
	tcp := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for _, a := range addresses {
		tcp += socket("10.0.0.7:33000", a, "01")
	}
	tcp += socket("10.0.0.7:33000", "9.9.9.9:1", "06") // over already
	n.file("proc/100/net/tcp", tcp)
	n.file("proc/100/net/tcp6", socket("[2001:db8::1]:1", "[2606:4700::1111]:443", "01")+socket("[::ffff:10.0.0.7]:1", "[::ffff:8.8.8.8]:443", "01")+
		socket("[fd00::1]:1", "[fd00::2]:443", "01")+socket("[::1]:1", "[::1]:443", "01")+socket("[fe80::1]:1", "[fe80::2]:1", "01"))
	w := n.sample()[pod.String()]
	n.is(w, metric.WorkloadRemotes, metric.RemoteRange.Index("public"), 3)
	n.is(w, metric.WorkloadRemotes, metric.RemoteRange.Index("private"), 7)
	if got := fmt.Sprint(w.Remotes); got != "[1.1.1.1 8.8.8.8 2606:4700::1111]" {
		t.Errorf("the evidence would name %s", got)
	}

	n.source.cfg.Addresses = false
	w = n.sample()[pod.String()]
	if got := w.Remotes; got != nil {
		t.Errorf("addresses are kept although nobody allowed it: %v", got)
	}
	if got := fmt.Sprint(w.Networks); got != "[1.1.0.0/16 8.8.0.0/16 2606:4700::/32]" {
		t.Errorf("the networks that it is connected to are %s", got)
	}

	n.file("proc/100/net/tcp", tcp+"nonsense\n")
	w = n.sample()[pod.String()]
	n.is(w, metric.WorkloadRemotes, 0, absent)
	n.says(w, "remotes", "malformed")
	n.is(w, metric.WorkloadNetworkBytes, 0, 0)

	n.file("proc/100/net/tcp", strings.Repeat(socket("10.0.0.7:33000", "8.8.8.8:443", "01"), largeFile/80))
	w = n.sample()[pod.String()]
	n.is(w, metric.WorkloadRemotes, 0, absent)
	n.says(w, "remotes", "too_large")
}

func TestNetworksOfVeryMany(t *testing.T) {
	var all []netip.Addr
	for i := range 3000 {
		all = append(all, netip.AddrFrom4([4]byte{byte(1 + i/200), byte(i % 200), 1, 1}))
	}
	slices.SortFunc(all, netip.Addr.Compare)
	if got := networks(all); len(got) != maxNetworks || !slices.IsSortedFunc(got, netip.Prefix.Compare) {
		t.Errorf("of 3,000 networks %d are told, want the first %d in order", len(got), maxNetworks)
	}
	if got := networks(nil); got != nil {
		t.Errorf("without addresses there are networks: %v", got)
	}
}

// socket writes a line of net/tcp or net/tcp6.
func socket(local, remote, state string) string {
	end := func(s string) string {
		a := netip.MustParseAddrPort(s)
		b := a.Addr().AsSlice()
		for i := 0; i < len(b); i += 4 {
			slices.Reverse(b[i : i+4]) // as a little-endian machine writes it
		}
		return fmt.Sprintf("%X:%04X", b, a.Port())
	}
	return fmt.Sprintf("   0: %s %s %s 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0000000000000000\n", end(local), end(remote), state)
}

func TestGPUs(t *testing.T) {
	n := newNode(t)
	other := collector.Owner{Kind: "job", ID: "slurm/1"}
	for pid, o := range map[int]collector.Owner{100: pod, 101: pod, 200: other} {
		n.process(pid, 7, "0::/\n", hostDev)
		n.uses(pid, 7, o, map[int]string{100: "GPU-a", 101: "GPU-b", 200: "GPU-c"}[pid])
	}
	gpu := func(uuid string, pcie, nvlink float64) {
		r := collector.NewReadings(metric.GPU)
		r.SetAt(metric.PCIeBytes, 0, pcie)
		r.SetAt(metric.NVLinkBytes, 1, nvlink)
		n.snap.GPUs = append(n.snap.GPUs, collector.GPU{UUID: uuid, Present: true, Readings: r})
	}
	bytes := func(a, b, c float64) map[string]collector.Workload {
		n.snap.GPUs = nil
		gpu("GPU-a", a, 2*a)
		gpu("GPU-b", b, 2*b)
		gpu("GPU-c", c, 2*c)
		return n.sample()
	}
	bytes(1000, 1000, 1000)
	got := bytes(1100, 1020, 1003)
	n.is(got[pod.String()], metric.WorkloadPCIeBytes, 0, 120)
	n.is(got[pod.String()], metric.WorkloadNVLinkBytes, 1, 240)
	n.is(got[pod.String()], metric.WorkloadNVLinkBytes, 0, absent)
	n.is(got[other.String()], metric.WorkloadPCIeBytes, 0, 3)

	n.process(300, 7, "0::/\n", hostDev)
	n.uses(300, 7, collector.Owner{}, "GPU-b") // nobody knows whose
	got = bytes(1200, 5000, 1004)
	n.is(got[pod.String()], metric.WorkloadPCIeBytes, 0, absent)
	n.says(got[pod.String()], "gpu", "shared_gpu")
	n.is(got[other.String()], metric.WorkloadPCIeBytes, 0, 4)

	n.snap.Processes = n.snap.Processes[:3]
	n.is(bytes(1300, 5010, 1004)[pod.String()], metric.WorkloadPCIeBytes, 0, 120) // what both moved is nobody's
	n.is(bytes(1301, 5011, 1004)[pod.String()], metric.WorkloadPCIeBytes, 0, 122)
}

const nfsMount = "2000 1000 0:53 / /data rw,relatime shared:7 - nfs4 nas:/imagenet rw,vers=4.2\n"

func nfsStats(read, written int) string {
	return fmt.Sprintf("device overlay mounted on / with fstype overlay\ndevice nas:/imagenet mounted on /data with fstype nfs4 statvers=1.1\n"+
		"\topts:\trw\n\tage:\t5\n\tbytes:\t9 9 9 9 %d %d 3 4\n\tRPC iostats version: 1.1\n", read, written)
}

func TestNetworkFiles(t *testing.T) {
	n := newNode(t)
	other := collector.Owner{Kind: "pod", ID: "b/b"}
	for pid, o := range map[int]collector.Owner{100: pod, 200: other} {
		n.process(pid, 7, "0::/\n", hostDev)
		n.uses(pid, 7, o, "GPU-a")
	}
	n.file("proc/100/mountinfo", "1100 1 0:21 / / rw - overlay overlay rw\n"+nfsMount)
	n.file("proc/100/mountstats", nfsStats(1000, 50))
	w := n.sample()[pod.String()]
	n.is(w, metric.WorkloadNetworkFileBytes, 0, absent)
	n.says(w, "network_file", "not_enabled")
	n.says(w, "block", "network_file_systems")

	n.source.cfg.Privileged = true
	n.is(n.sample()[pod.String()], metric.WorkloadNetworkFileBytes, 0, 0)
	n.file("proc/100/mountstats", nfsStats(1700, 58))
	w = n.sample()[pod.String()]
	n.is(w, metric.WorkloadNetworkFileBytes, 0, 700)
	n.is(w, metric.WorkloadNetworkFileBytes, 1, 8)

	n.file("proc/200/mountinfo", "1200 1 0:22 / / rw - overlay overlay rw\n"+nfsMount)
	for id, w := range n.sample() {
		if id == other.String() || id == pod.String() {
			n.is(w, metric.WorkloadNetworkFileBytes, 0, absent)
			n.says(w, "network_file", "shared_mounts")
		}
	}
	n.file("proc/200/mountinfo", "1001 1 0:21 / / rw - overlay overlay rw\n2000 1 0:54 / /home rw - nfs nas:/home rw\n")
	n.says(n.sample()[other.String()], "network_file", "host_mounts")
}

func TestFallbackToTheProcessesThemselves(t *testing.T) {
	n := newNode(t)
	job := collector.Owner{Kind: "job", ID: "slurm/1320003"}
	n.remove("sys/fs/cgroup/cgroup.controllers")
	for _, pid := range []int{100, 101} {
		n.process(pid, 7, recorded(t, "proc-cgroup-v1-slurm.txt"), hostDev)
		n.uses(pid, 7, job, "GPU-a")
	}
	n.file("sys/fs/cgroup/memory/slurm/uid_1000/job_1320003/memory.stat", "rss 1\ntotal_rss 4096\ntotal_shmem 512\n")
	n.file("proc/100/io", recorded(t, "proc-pid-io.txt"))
	n.file("proc/101/io", recorded(t, "proc-pid-io-negative-cancelled.txt"))
	w := n.sample()[job.String()]
	n.is(w, metric.WorkloadBlockBytes, 0, absent)
	n.says(w, "block", "no_cgroup")
	n.is(w, metric.WorkloadMemory, 0, 4096)
	n.is(w, metric.WorkloadMemory, 1, 512)

	n.source.cfg.Privileged = true
	n.sample()
	n.file("proc/100/io", strings.ReplaceAll(recorded(t, "proc-pid-io.txt"), "104857600", "104857700"))
	n.file("proc/101/io", strings.ReplaceAll(recorded(t, "proc-pid-io-negative-cancelled.txt"), "2048", "2055"))
	w = n.sample()[job.String()]
	n.is(w, metric.WorkloadBlockBytes, 0, 100)
	n.is(w, metric.WorkloadBlockBytes, 1, 7)
	n.says(w, "block", "processes_only")
	n.remove("proc/101")
	n.is(n.sample()[job.String()], metric.WorkloadBlockBytes, 1, 7)
}

func TestVersionOneGroups(t *testing.T) {
	n := newNode(t)
	n.remove("sys/fs/cgroup/cgroup.controllers")
	c := collector.Owner{Kind: "container", ID: "111111111111"}
	dir := "/docker/" + strings.Repeat("1", 64)
	n.process(100, 7, "4:cpu,cpuacct:"+dir+"\n3:memory:"+dir+"\n2:blkio:"+dir+"\n0::/\n", hostDev)
	n.uses(100, 7, c, "GPU-a")
	facts := func(read, usage int) collector.Workload {
		n.file("sys/fs/cgroup/blkio"+dir+"/blkio.throttle.io_service_bytes_recursive", fmt.Sprintf("8:0 Read %d\n8:0 Write 7\n8:0 Discard 0\n8:0 Total %d\nTotal %d\n", read, read, read))
		n.file("sys/fs/cgroup/cpuacct"+dir+"/cpuacct.usage", fmt.Sprintf("%d\n", usage))
		n.file("sys/fs/cgroup/cpu"+dir+"/cpu.stat", fmt.Sprintf("nr_periods 1\nnr_throttled 1\nthrottled_time %d\n", usage))
		return n.sample()[c.String()]
	}
	n.file("sys/fs/cgroup/cpu"+dir+"/cpu.cfs_quota_us", "-1\n")
	n.file("sys/fs/cgroup/cpu"+dir+"/cpu.cfs_period_us", "100000\n")
	n.file("sys/fs/cgroup/memory"+dir+"/memory.limit_in_bytes", "9223372036854771712\n")
	facts(100, 1e9)
	w := facts(150, 3e9)
	n.is(w, metric.WorkloadBlockBytes, 0, 50)
	n.is(w, metric.WorkloadBlockBytes, 1, 0)
	n.is(w, metric.WorkloadCPUSeconds, 0, 2)
	n.is(w, metric.WorkloadCPUThrottled, 0, 2)
	n.is(w, metric.WorkloadCPULimit, 0, absent)
	n.is(w, metric.WorkloadMemoryLimit, 0, absent)
	n.file("sys/fs/cgroup/cpu"+dir+"/cpu.cfs_quota_us", "250000\n")
	n.is(facts(150, 3e9), metric.WorkloadCPULimit, 0, 2.5)
}

// What one owner's files hold costs that owner's facts only.
func TestOddFilesCostOnlyTheirOwnFact(t *testing.T) {
	n := newNode(t)
	n.process(100, 7, "0::"+podPath+container+"\n", "eth0: nonsense\n")
	n.uses(100, 7, pod, "GPU-a")
	n.group(podPath)
	n.file("sys/fs/cgroup"+podPath+"/io.stat", "259:0 rbytes=many\n")
	service := collector.Owner{Kind: "service", ID: "ollama.service"}
	n.process(200, 7, "0::/system.slice/ollama.service\n", hostDev)
	n.uses(200, 7, service, "GPU-b")
	n.group("/system.slice/ollama.service")
	got := n.sample()
	w := got[pod.String()]
	n.is(w, metric.WorkloadBlockBytes, 0, absent)
	n.says(w, "block", "malformed")
	n.says(w, "network", "malformed")
	n.is(w, metric.WorkloadMemory, 0, 1000)
	n.is(got[service.String()], metric.WorkloadBlockBytes, 0, 0)

	n.remove("sys/fs/cgroup" + podPath + "/io.stat")
	n.says(n.sample()[pod.String()], "block", "no_controller")
}

func TestNothingToLookAt(t *testing.T) {
	n := newNode(t)
	if got := n.sample(); len(got) != 0 {
		t.Errorf("a node without GPU processes has workloads: %v", got)
	}
	n.uses(1, 0, collector.Owner{}, "GPU-a")
	if got := n.sample(); len(got) != 0 {
		t.Errorf("a process of nobody's has a workload: %v", got)
	}
	n.cfg.Snapshot = func() *collector.Snapshot { return nil }
	n.source = nil
	n.sample()
	n.cfg.ProcFS = "/nothing"
	if _, err := New(n.cfg); err == nil || !strings.Contains(err.Error(), "--path.procfs") {
		t.Errorf("a missing /proc gives %v, want what to do", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.source.cfg.Snapshot = func() *collector.Snapshot { return n.snap }
	n.uses(2, 0, pod, "GPU-a")
	if _, err := n.source.Sample(ctx); err == nil {
		t.Error("a look goes on after its deadline")
	}
}

// A process in a network namespace of its own is told apart from the host by the real
// kernel, without the right to look at its ns/net.
func TestRealNamespace(t *testing.T) {
	child := exec.Command("sleep", "60")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		t.Skipf("this user may not make a network namespace: %v", err)
	}
	defer func() {
		if err := child.Process.Kill(); err != nil {
			t.Error(err)
		}
		child.Wait() // was killed
	}()
	n := newNode(t)
	n.cfg.ProcFS = "/proc"
	n.uses(child.Process.Pid, 0, pod, "GPU-a")
	w := n.sample()[pod.String()]
	n.is(w, metric.WorkloadNetworkBytes, 0, 0)
	n.is(w, metric.WorkloadRemotes, 0, 0)
	for _, c := range w.Caveats {
		if c.Fact == "network" {
			t.Errorf("a namespace of its own is told to be %s", c.Reason)
		}
	}
}

// BenchmarkSample looks at 32 pods with four processes each.
func BenchmarkSample(b *testing.B) {
	n := newNode(b)
	for i := range 32 {
		dir := strings.Replace(podPath, "00000000000a", fmt.Sprintf("%012d", i), 1)
		n.group(dir)
		for j := range 4 {
			pid := 100 + 4*i + j
			n.process(pid, 7, "0::"+dir+container+"\n", hostDev)
			n.uses(pid, 7, collector.Owner{Kind: "pod", ID: fmt.Sprintf("a/%d", i)}, "GPU-a")
			if j > 0 {
				n.joins(pid, 100+4*i)
			}
		}
	}
	source, err := New(n.cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer source.Close()
	b.ReportAllocs()
	for b.Loop() {
		if part, err := source.Sample(b.Context()); err != nil || len(part.Workloads) != 32 {
			b.Fatalf("%d owners, %v", len(part.Workloads), err)
		}
	}
}
