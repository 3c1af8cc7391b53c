package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/config"
	"gpuvigil/internal/server"
)

func TestInventoryIsPrinted(t *testing.T) {
	no := false
	pod := collector.Owner{Kind: "pod", ID: "chat/a\x1b[2J", Team: "nlp"}
	a := &server.Inventory{
		Time: time.Now(), At: time.Now().Add(-20 * time.Second), Node: "gpu-117", Simulated: true,
		Versions: []collector.Version{{Component: "kubelet", Value: "1.33.4"}},
		Runtimes: []collector.Runtime{{Owner: pod, Component: "torch", Version: "2.9.1", Processes: 8}},
		Images:   []collector.Image{{Owner: pod, Container: "main", Name: "train:7"}},
		Datasets: []collector.Dataset{{Kind: "lustre", Source: "mgs:/scratch", Mount: "/scratch"}},
		APIs:     []collector.API{{Owner: pod, Port: 8000, Scope: "any", TLS: &no, Model: "llama"}},
		Unread:   []collector.Unread{{Reason: "forbidden", Processes: 3}},
		Absent:   []string{"images: permission denied"},
		Changes: []collector.Event{
			{Time: time.Now(), Kind: collector.VersionEvent, Owner: pod, Component: "torch", From: "2.8.0", To: "2.9.1"},
			{Time: time.Now(), Kind: collector.InventoryEvent, Component: "dataset", To: "mgs:/scratch", Text: "lustre"},
		},
	}
	var out strings.Builder
	if err := printInventory(&out, a); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"gpu-117  as of ", "SIMULATED", "kubelet    1.33.4", "pod:chat/a [2J (team nlp)  torch   2.9.1    8", "main       train:7  -",
		"everybody  lustre  mgs:/scratch  /scratch", "8000  any           no   -       llama  -", "torch changed from 2.8.0 to 2.9.1",
		"node            lustre data set mgs:/scratch came", "not all was read of 3 processes: forbidden", "not known: images: permission denied",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the inventory does not say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("a name moves the cursor: %q", out.String())
	}
	out.Reset()
	if err := printInventory(&out, &server.Inventory{Node: "gpu-117"}); err != nil || !strings.Contains(out.String(), "not looked at yet") {
		t.Errorf("an inventory that was not taken: %v, %q", err, out.String())
	}
}

func TestInventoryWithoutAnAgent(t *testing.T) {
	if code, _, errs := gpuvigil(t, "inventory", "--state.dir="+t.TempDir()); code != 1 || !strings.Contains(errs, "--state.dir") {
		t.Errorf("inventory without an agent: exit %d, %q, want 1 and what to do", code, errs)
	}
	if code, _, errs := gpuvigil(t, "inventory", "--format=xml"); code != 3 || !strings.Contains(errs, "table") {
		t.Errorf("a format that there is not: exit %d, %q", code, errs)
	}
}

func TestDoctorSaysWhatTracingBuys(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		d := tracing(fs.ErrPermission, wanted)
		if d.ok || !strings.Contains(d.advice, "CAP_SYS_PTRACE") || !strings.Contains(d.advice, "libraries") {
			t.Errorf("without the right to trace the doctor says %+v", d)
		}
	}
	c := config.Default()
	c.Inventory.Runtimes = true
	c.Host.ProcFS = t.TempDir()
	if d := doctorTracing(c); d.ok || strings.Contains(d.advice, "CAP_SYS_PTRACE") || !strings.Contains(d.advice, "host.procfs") {
		t.Errorf("where there is no process 1 the doctor says %+v", d)
	}
	if err := writeProc(c.Host.ProcFS); err != nil {
		t.Fatal(err)
	}
	if d := doctorTracing(c); !d.ok {
		t.Errorf("with the right to trace and the wish to the doctor says %+v", d)
	}
	c.Inventory.Runtimes = false
	if d := doctorTracing(c); d.ok || !strings.Contains(d.advice, "inventory.runtimes") {
		t.Errorf("with the right to trace only the doctor says %+v", d)
	}
}

// writeProc makes a procfs in which process 1 may be traced.
func writeProc(dir string) error {
	if err := os.Mkdir(filepath.Join(dir, "1"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "1", "io"), nil, 0o600)
}
