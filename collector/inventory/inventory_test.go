package inventory

import (
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

var (
	chat  = collector.Owner{Kind: "pod", ID: "inference/chat-0", Team: "assistants"}
	train = collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	noon  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

// bench is a source over a node that a test makes up.
type bench struct {
	t      *testing.T
	procfs string
	root   string
	snap   *collector.Snapshot
	source *Source
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	within(t, nil) // skips without openat2
	b := &bench{t: t, procfs: t.TempDir(), root: t.TempDir(), snap: &collector.Snapshot{}}
	put(t, b.procfs, map[string]string{"1/mountinfo": node, "sys/net/ipv4/ip_local_port_range": "32768\t60999\n"})
	gpu := collector.GPU{UUID: "GPU-0", Present: true, Readings: collector.NewReadings(metric.GPU)}
	gpu.Set(metric.ProcessCount, 1)
	b.snap.GPUs = []collector.GPU{gpu}
	cfg := Config{ProcFS: b.procfs, SysFS: t.TempDir(), Root: t.TempDir(), Runtimes: true,
		Snapshot: func() *collector.Snapshot { return b.snap }, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	b.source = New(cfg)
	b.source.now = func() time.Time { return noon }
	return b
}

// runs puts a process on the GPU that has the wheels loaded.
func (b *bench) runs(pid int, owner collector.Owner, change func(*fakeProcess)) {
	b.t.Helper()
	put(b.t, b.root, wheels)
	f := fakeProcess{pid: pid, start: 1000 + pid, mapped: "1000", root: b.root, mounts: csi, tcp: socket("00000000:1F40", "0A", 777)}
	for name := range wheels {
		if strings.Contains(name, ".so") {
			f.maps = append(f.maps, "/"+name)
		}
	}
	if change != nil {
		change(&f)
	}
	f.put(b.t, b.procfs)
	b.snap.Processes = slices.DeleteFunc(b.snap.Processes, func(p collector.Process) bool { return p.PID == pid })
	b.snap.Processes = append(b.snap.Processes, collector.Process{PID: pid, Start: uint64(f.start), UUID: "GPU-0", Owner: owner, Container: "main"})
}

func (b *bench) ends(pid int) {
	b.t.Helper()
	if err := os.RemoveAll(filepath.Join(b.procfs, strconv.Itoa(pid))); err != nil {
		b.t.Fatal(err)
	}
	b.snap.Processes = slices.DeleteFunc(b.snap.Processes, func(p collector.Process) bool { return p.PID == pid })
}

func (b *bench) sample() *collector.Part {
	b.t.Helper()
	part, err := b.source.Sample(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return part
}

// said are the events as words.
func said(p *collector.Part) []string {
	var out []string
	for _, e := range p.Events {
		out = append(out, strings.Join([]string{string(e.Kind), e.Owner.String(), e.Component, e.From, "→", e.To}, " "))
	}
	slices.Sort(out)
	return out
}

func runtimesOf(i *collector.Inventory, o collector.Owner) []string {
	var out []string
	for _, r := range i.Runtimes {
		if r.Owner == o {
			out = append(out, r.Component+" "+r.Version)
		}
	}
	return out
}

func TestInventoryOfANode(t *testing.T) {
	b := newBench(t, nil)
	b.runs(50, chat, nil)
	b.runs(51, chat, func(f *fakeProcess) { f.tcp = "" })
	b.runs(60, train, func(f *fakeProcess) { f.tcp, f.mounts = "", node })
	b.snap.Endpoints = []collector.Endpoint{{URL: "http://127.0.0.1:8000/metrics", Engine: "vllm", Model: "meta/llama", GPUs: []string{"GPU-0"}}}
	p := b.sample()
	i := p.Inventory
	if diff := cmp.Diff(inWheels, runtimesOf(i, chat)); diff != "" {
		t.Errorf("libraries of a pod (-want +told):\n%s", diff)
	}
	if n := i.Runtimes[len(i.Runtimes)-1].Processes; n != 2 {
		t.Errorf("two processes of a pod have a library loaded, told are %d", n)
	}
	no := false
	want := &collector.Inventory{
		At: noon,
		Datasets: []collector.Dataset{
			{Kind: "lustre", Source: "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch", Mount: "/scratch"}, {Kind: "nfs", Source: "nas:/export/home/*", Mount: "/home/*"},
			{Owner: chat, Kind: "claim", Source: "pvc-7d1f", Mount: "/data"},
		},
		APIs: []collector.API{{Owner: chat, Port: 8000, Scope: scopeAny, TLS: &no, Engine: "vllm", Model: "meta/llama"}},
	}
	got := *i
	got.Runtimes = nil
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Errorf("the rest of the inventory (-want +told):\n%s", diff)
	}
	if len(p.Events) > 0 {
		t.Errorf("the first look tells of changes: %v", said(p))
	}
	if n := p.Node.ValueAt(metric.InventoryUnread, 0); n != 0 {
		t.Errorf("%v processes were not read", n)
	}
}

func TestModelsAreComparedWithTheList(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Approved = []string{"meta-llama/*", "qwen?"} })
	b.runs(50, chat, func(f *fakeProcess) { f.tcp = "" })
	for model, want := range map[string]bool{"meta-llama/Llama-3.1-70B": true, "qwen3": true, "deepseek": false, "x/meta-llama/y": false} {
		b.snap.Endpoints = []collector.Endpoint{{URL: "https://host/metrics", Model: model}}
		apis := b.sample().Inventory.APIs
		if len(apis) != 1 || apis[0].Approved == nil || *apis[0].Approved != want || apis[0].Port != 443 || !*apis[0].TLS || apis[0].Scope != "" || apis[0].Owner != chat {
			t.Errorf("model %s, approved %v, behind https on this node: %+v", model, want, apis)
		}
	}
}

func TestChangesAreToldOnce(t *testing.T) {
	b := newBench(t, nil)
	b.runs(50, chat, nil)
	b.sample()
	if p := b.sample(); len(p.Events) > 0 {
		t.Fatalf("nothing has changed, told is %v", said(p))
	}
	b.ends(50)
	if got, want := said(b.sample()), []string{
		"inventory pod:inference/chat-0 api port 8000 → ", "inventory pod:inference/chat-0 dataset pvc-7d1f → ",
	}; !slices.Equal(got, want) {
		t.Errorf("a pod has ended; told is %q, want %q", got, want)
	}

	text, err := json.Marshal(b.source.Known()) // the agent is started again, and the pod comes back with another version
	if err != nil {
		t.Fatal(err)
	}
	known := new(collector.Inventory)
	if err := json.Unmarshal(text, known); err != nil {
		t.Fatal(err)
	}
	b.source = New(b.source.cfg)
	b.source.Restore(known)
	site := "usr/lib/python3.12/site-packages/"
	if err := os.RemoveAll(filepath.Join(b.root, site, "vllm-0.11.0.dist-info")); err != nil {
		t.Fatal(err)
	}
	delete(wheels, site+"vllm-0.11.0.dist-info/METADATA")
	defer func() { wheels[site+"vllm-0.11.0.dist-info/METADATA"] = "" }()
	put(t, b.root, map[string]string{site + "vllm-0.12.0.dist-info/METADATA": ""})
	b.runs(52, chat, func(f *fakeProcess) { f.mounts = "" })
	if got, want := said(b.sample()), []string{
		"inventory pod:inference/chat-0 api  → port 8000", "version pod:inference/chat-0 vllm 0.11.0 → 0.12.0",
	}; !slices.Equal(got, want) {
		t.Errorf("a pod came back with another vLLM; told is %q, want %q", got, want)
	}
	if p := b.sample(); len(p.Events) > 0 {
		t.Errorf("the same is told again: %v", said(p))
	}
}

func TestAnOwnerThatIsNotKnownYetIsWaitedFor(t *testing.T) {
	b := newBench(t, nil)
	b.sample()
	b.runs(50, collector.Owner{}, nil)
	if p := b.sample(); len(p.Events) > 0 || len(p.Inventory.Runtimes) > 0 {
		t.Errorf("a process that nobody has named yet: %v, %v", said(p), p.Inventory.Runtimes)
	}
	b.runs(50, chat, nil)
	for _, e := range b.sample().Events {
		if e.Owner != chat {
			t.Errorf("what is the pod's is told of %v: %+v", e.Owner, e)
		}
	}
	b.runs(51, collector.Owner{}, nil)
	b.sample()
	if p := b.sample(); len(runtimesOf(p.Inventory, collector.Owner{})) == 0 {
		t.Error("a process that stays without an owner is not in the inventory")
	}
}

func TestUnchangedLibrariesAreNotReadAgain(t *testing.T) {
	b := newBench(t, nil)
	b.runs(50, chat, nil)
	b.sample()
	if err := os.Remove(filepath.Join(b.procfs, "50/maps")); err != nil {
		t.Fatal(err)
	}
	if p := b.sample(); len(p.Inventory.Runtimes) == 0 || p.Inventory.Unread != nil {
		t.Errorf("a process that has mapped as much as before was read again: %+v", p.Inventory)
	}
	put(t, b.procfs, map[string]string{"50/status": "PPid:\t1\nVmLib:\t2000 kB\n", "50/maps": line + "/usr/lib/x86_64-linux-gnu/libnccl.so.2.27.5\n"})
	if got := runtimesOf(b.sample().Inventory, chat); !slices.Equal(got, []string{"nccl 2.27.5"}) {
		t.Errorf("a process that has mapped more has %q", got)
	}
}

// TestAProcessCostsItselfOnly has processes that cannot be read, for each reason,
// beside one that can. What is known of them is not told to be gone.
func TestAProcessCostsItselfOnly(t *testing.T) {
	b := newBench(t, nil)
	other := collector.Owner{Kind: "user", ID: "1000"}
	b.runs(50, chat, nil)
	b.runs(51, train, nil)
	b.runs(52, other, nil)
	b.sample()
	b.source.limit = 50 * time.Millisecond
	pipe := filepath.Join(b.procfs, "51/mountinfo")
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(b.procfs, "52")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p := b.sample()
		want := []collector.Unread{{Reason: "gone", Processes: 1}, {Reason: "hung", Processes: 1}}
		if diff := cmp.Diff(want, p.Inventory.Unread); diff != "" {
			t.Errorf("processes that were not read (-want +told):\n%s", diff)
		}
		if len(p.Events) > 0 {
			t.Errorf("what could not be seen is told to be gone: %v", said(p))
		}
		for _, o := range []collector.Owner{chat, train, other} {
			if len(runtimesOf(p.Inventory, o)) != len(inWheels) {
				t.Errorf("of %v remains %v", o, runtimesOf(p.Inventory, o))
			}
		}
	}
	if n := len(b.source.hung); n != 1 {
		t.Errorf("%d looks hang for one process whose files do not answer", n)
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // the file system is back
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	put(t, b.procfs, map[string]string{"51/mountinfo": csi})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		b.sample()
		if len(b.source.hung) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a process whose files answer again is still taken to hang")
		}
	}
}

func TestNothingIsGoneWhileTheDriverDoesNotAnswer(t *testing.T) {
	b := newBench(t, nil)
	b.runs(50, chat, nil)
	b.sample()
	b.snap.GPUs[0].Hung = true
	b.ends(50)
	if p := b.sample(); len(p.Events) > 0 {
		t.Errorf("a GPU hangs, so that its processes are not known; told is %v", said(p))
	}
}

func TestWithoutTheRightToTrace(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Runtimes, c.Root = false, "" })
	b.runs(50, chat, nil)
	i := b.sample().Inventory
	if len(i.Runtimes) > 0 || len(i.APIs) > 0 || len(i.Datasets) != 1 {
		t.Errorf("with tier 3 off: %+v", i)
	}
	if !slices.ContainsFunc(i.Absent, func(s string) bool { return strings.Contains(s, "inventory.runtimes") }) {
		t.Errorf("nothing says why libraries are missing: %q", i.Absent)
	}
}

func TestANodeWithoutProcessListsHasNoInventory(t *testing.T) {
	b := newBench(t, nil)
	b.source.waited = true
	b.snap.GPUs[0].Set(metric.ProcessCount, math.NaN())
	if p := b.sample(); p.Inventory != nil {
		t.Errorf("processes are not known, and the inventory is %+v", p.Inventory)
	}
	b.snap.Pages = []collector.Page{{Exporter: "dcgm-exporter", GPUs: true}}
	if i := b.sample().Inventory; i == nil || len(i.Absent) == 0 || !strings.Contains(i.Absent[len(i.Absent)-1], "dcgm-exporter, which lists no processes") {
		t.Errorf("processes will never be known, and the inventory is %+v", i)
	}
}

func BenchmarkSample(b *testing.B) {
	dir := b.TempDir()
	if err := writeFiles(dir, wheels); err != nil {
		b.Fatal(err)
	}
	if err := mapAll(dir); err != nil {
		b.Fatal(err)
	}
	n := newNodeMounts()
	look := task{procfs: "/proc", pid: os.Getpid(), runtimes: true, node: &n, sockets: newTables("/proc")}
	first := look.run()
	b.Run("new", func(b *testing.B) {
		for range b.N {
			look.run()
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		look := look
		look.before = first
		for range b.N {
			look.run()
		}
	})
}
