package owner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"gpuvigil/collector"
)

const (
	// KubeletName is the name of the source Kubelet.
	KubeletName = "kubelet"

	socketName  = "kubelet.sock"
	kubeletWait = 2 * time.Second
	// maxAnswer is above the 23 MB that nodes with many small virtual devices answered.
	maxAnswer = 64 << 20
	// maxGrants is how many (container, device) pairs are taken from an answer.
	maxGrants = 16384
)

// Kubelet is the source "kubelet": it asks the kubelet, through the socket of its
// pod-resources service, which pod was given which GPU. The source "owner" makes
// owners of the last answer.
type Kubelet struct {
	dir    string
	wait   time.Duration // for an answer
	last   atomic.Pointer[answer]
	absent atomic.Bool // the last look found no kubelet that could be asked
}

var _ collector.Source = (*Kubelet)(nil)

// answer is what the kubelet said at one time. It is not changed.
type answer struct {
	at     time.Time
	grants []grant
}

// grant says that a container was given a device.
type grant struct {
	namespace, pod, container string
	resource                  string
	device                    device
	claimed                   bool   // by a claim (DRA), which names no device that is known here
	pool, claim               string // what its driver calls the claim's device, and its pool
	count                     int    // of shares of the device; 0: all of it
}

// NewKubelet returns a source that asks the kubelet whose socket is in the directory.
// The directory is looked into at each sample: a kubelet that starts again makes a new
// socket.
func NewKubelet(dir string) *Kubelet { return &Kubelet{dir: dir, wait: kubeletWait} }

// Name is "kubelet".
func (k *Kubelet) Name() string { return KubeletName }

// Inherit takes over the last answer of a source that asked the same kubelet. It is
// called before the first sample.
func (k *Kubelet) Inherit(old *Kubelet) {
	if k.dir == old.dir {
		k.last.Store(old.last.Load())
	}
}

// known reports whether it is known what the kubelet has given to whom: its answer is
// not older than keep, or there never was a kubelet to ask.
func (k *Kubelet) known(now time.Time, keep time.Duration) bool {
	if last := k.last.Load(); last != nil {
		return now.Sub(last.at) <= keep
	}
	return k.absent.Load()
}

// Sample asks once. Its part is empty. The error wraps collector.ErrAbsent where there
// is no kubelet, or one without the service.
func (k *Kubelet) Sample(ctx context.Context) (*collector.Part, error) {
	part, err := k.sample(ctx)
	k.absent.Store(errors.Is(err, collector.ErrAbsent))
	return part, err
}

func (k *Kubelet) sample(ctx context.Context) (*collector.Part, error) {
	path := filepath.Join(k.dir, socketName)
	part := &collector.Part{Time: time.Now()}
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return part, fmt.Errorf("look for the kubelet's socket %s: %w", path, collector.ErrAbsent)
	case errors.Is(err, fs.ErrPermission) || err == nil && unix.Access(path, unix.W_OK) != nil:
		return part, fmt.Errorf("connect to the kubelet's socket %s: this user may not (tier 1): %w", path, collector.ErrAbsent)
	case err != nil:
		return part, fmt.Errorf("look for the kubelet's socket: %w: mount its directory, or set kubernetes.pod_resources to \"\"", err)
	}
	ctx, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	list, err := ask(ctx, path)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return part, fmt.Errorf("ask the kubelet at %s who was given the GPUs: it is too old for pod-resources v1: %w", path, collector.ErrAbsent)
	case err != nil:
		return part, fmt.Errorf("ask the kubelet at %s who was given the GPUs: %w: the last answer stands for kubernetes.keep", path, err)
	}
	k.last.Store(&answer{at: time.Now(), grants: grants(list)})
	return part, nil
}

// ask opens a connection of its own: at one question in ten seconds it costs little,
// and none outlives the kubelet that it was made to.
func ask(ctx context.Context, path string) (list *podresources.ListPodResourcesResponse, err error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	conn, err := grpc.NewClient("passthrough:///kubelet", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
}

// grants keeps of an answer what is about GPUs: of 23 MB a few kilobytes.
func grants(list *podresources.ListPodResourcesResponse) []grant {
	var out []grant
	for _, p := range list.GetPodResources() {
		if !dnsName(p.GetNamespace()) || !dnsName(p.GetName()) {
			continue
		}
		for _, c := range p.GetContainers() {
			g := grant{namespace: p.GetNamespace(), pod: p.GetName(), container: c.GetName()}
			out = append(out, devicesOf(c, g)...)
			out = append(out, claimsOf(c, g)...)
			if len(out) > maxGrants {
				grantsCapped.Add(len(out) - maxGrants)
				return out[:maxGrants]
			}
		}
	}
	return out
}

// devicesOf has one grant for each device; several shares of one device are one grant.
func devicesOf(c *podresources.ContainerResources, g grant) []grant {
	var out []grant
	at := map[device]int{}
	for _, d := range c.GetDevices() {
		g.resource = d.GetResourceName()
		for _, id := range d.GetDeviceIds() {
			dev, ok := parseDevice(id, strings.HasPrefix(g.resource, "nvidia.com/"))
			if !ok {
				continue
			}
			if i, seen := at[dev]; seen {
				out[i].count++
				continue
			}
			g.device, g.count = dev, 0
			if dev.shared {
				g.count = 1
			}
			at[dev] = len(out)
			out = append(out, g)
		}
	}
	return out
}

// gpuDriver is the name of NVIDIA's driver for claims.
const gpuDriver = "gpu.nvidia.com"

// claimsOf has the claims. An answer names the device of a claim as the driver in the
// cluster does, in a pool, and gives no uuid: that is in a ResourceSlice of the API
// server, which is asked only if the configuration says so.
func claimsOf(c *podresources.ContainerResources, g grant) []grant {
	var out []grant
	for _, d := range c.GetDynamicResources() {
		for _, r := range d.GetClaimResources() {
			if r.GetDriverName() != gpuDriver {
				continue
			}
			g.pool, g.claim = r.GetPoolName(), r.GetDeviceName()
			g.resource, g.claimed = gpuDriver+"/"+r.GetPoolName()+"/"+r.GetDeviceName(), true
			if r.ShareId != nil {
				g.count = 1
			}
			out = append(out, g)
		}
	}
	return out
}
