package owner

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

const (
	containerA = "1111111111111111111111111111111111111111111111111111111111111111"
	containerB = "abababababababababababababababababababababababababababababababab"
	podA       = "0a1b2c3d-0000-4000-8000-00000000000a"
	podB       = "0a1b2c3d-0000-4000-8000-00000000000b"
	inPodA     = "0::/kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000a.slice/cri-containerd-" + containerA + ".scope\n"
	inPodB     = "0::/kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000b.slice/cri-containerd-" + containerB + ".scope\n"
)

// node is a machine in files.
type node struct {
	t    *testing.T
	dir  string
	snap *collector.Snapshot
	cfg  Config
}

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: t.TempDir(), snap: &collector.Snapshot{}}
	n.cfg = Config{ProcFS: n.path("proc"), SysFS: n.path("sys"), Snapshot: func() *collector.Snapshot { return n.snap }, Users: UserID,
		PodLogs: n.path("pods"), ContainerLogs: n.path("containers"), KubeletKeep: time.Minute}
	for i := range 10 {
		n.snap.GPUs = append(n.snap.GPUs, collector.GPU{Index: i, UUID: gpu(i), Present: true})
	}
	return n
}

// gpu is the uuid of the GPUs as the handed cases have them.
func gpu(i int) string { return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i) }

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

func (n *node) write(content string, parts ...string) {
	n.t.Helper()
	path := n.path(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// process puts a process with the cgroup on a GPU.
func (n *node) process(pid, uid, gpuIndex int, cgroup string) {
	n.t.Helper()
	dir := strconv.Itoa(pid)
	start := 1000 * pid
	n.write(fmt.Sprintf("%d (a) b (c) S 1 1 1 0 -1 4194304 0 0 0 0 100 20 0 0 20 0 1 0 %d 0 0\n", pid, start), "proc", dir, "stat")
	n.write(fmt.Sprintf("Name:\ta\nUid:\t%d\t0\t0\t0\n", uid), "proc", dir, "status")
	n.write(cgroup, "proc", dir, "cgroup")
	n.snap.Processes = append(n.snap.Processes, collector.Process{PID: pid, Start: uint64(start), UUID: gpu(gpuIndex), GPU: gpuIndex, UID: uid,
		Readings: collector.NewReadings(metric.Process)})
}

func (n *node) source() *Source {
	n.t.Helper()
	s, err := New(n.cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *node) sample(s *Source) *collector.Part {
	n.t.Helper()
	part, err := s.Sample(context.Background())
	if err != nil {
		n.t.Fatalf("the source fails: %v", err)
	}
	return part
}

// owners returns the owners of the part's processes by pid.
func owners(part *collector.Part) map[int]string {
	out := map[int]string{}
	for _, a := range part.Attributions {
		out[a.PID] = a.Owner.String()
		if a.Container != "" {
			out[a.PID] += " " + a.Container
		}
	}
	return out
}

// kubelet is a kubelet that serves one answer.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	answer func() (*podresources.ListPodResourcesResponse, error)
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return k.answer()
}

// serveKubelet serves at a socket in a directory, whose name is short: that of a socket
// may have 107 bytes.
func serveKubelet(t *testing.T, server podresources.PodResourcesListerServer) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.MaxSendMsgSize(maxAnswer))
	podresources.RegisterPodResourcesListerServer(s, server)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return dir
}

// handedAnswer is the case podresources-list.json.
func handedAnswer(t testing.TB) *podresources.ListPodResourcesResponse {
	t.Helper()
	content, err := os.ReadFile("testdata/podresources-list.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Pods []struct {
			Name, Namespace string
			Containers      []struct {
				Name    string
				Devices []struct {
					Resource string   `json:"resource_name"`
					IDs      []string `json:"device_ids"`
				}
				Dynamic []struct {
					Claims []struct {
						Driver string `json:"driver_name"`
						Pool   string `json:"pool_name"`
						Device string `json:"device_name"`
					} `json:"claim_resources"`
				} `json:"dynamic_resources"`
			}
		} `json:"pod_resources"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	list := &podresources.ListPodResourcesResponse{}
	for _, p := range file.Pods {
		pod := &podresources.PodResources{Name: p.Name, Namespace: p.Namespace}
		for _, c := range p.Containers {
			container := &podresources.ContainerResources{Name: c.Name}
			for _, d := range c.Devices {
				container.Devices = append(container.Devices, &podresources.ContainerDevices{ResourceName: d.Resource, DeviceIds: d.IDs})
			}
			for _, d := range c.Dynamic {
				claim := &podresources.DynamicResource{}
				for _, r := range d.Claims {
					claim.ClaimResources = append(claim.ClaimResources, &podresources.ClaimResource{DriverName: r.Driver, PoolName: r.Pool, DeviceName: r.Device})
				}
				container.DynamicResources = append(container.DynamicResources, claim)
			}
			pod.Containers = append(pod.Containers, container)
		}
		list.PodResources = append(list.PodResources, pod)
	}
	return list
}
