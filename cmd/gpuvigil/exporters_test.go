package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/metric"
)

func TestStatusSaysThatGPUsComeFromAPage(t *testing.T) {
	dir := fakeAgent(t, func(s *collector.Snapshot, _ *detect.View) {
		onPage(s)
		s.GPUs[1].Present = false
		s.GPUs[1].Set(metric.GPUPresent, 0)
	})
	var out bytes.Buffer
	node, err := ask(t.Context(), dir)
	if err == nil {
		err = node.printStatus(&out, node.missing(asSeen))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"http://127.0.0.1:9400/metrics, dcgm-exporter, names until 4.8, utilization in percent", "not listed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("status does not say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "LOST") {
		t.Errorf("status calls a GPU lost that the page leaves out:\n%s", out.String())
	}
}

func TestDoctorOnPages(t *testing.T) {
	page := "go_goroutines 8\n"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
	defer srv.Close()
	c := config.Default()
	c.NVML.Source.URL, c.Host.Source.URL = srv.URL, srv.URL
	f := func(d diagnosis, ok bool, found, advice string) {
		t.Helper()
		if d.ok != ok || !d.needed || !strings.Contains(d.found, found) || !strings.Contains(d.advice, advice) {
			t.Errorf("the doctor says %+v, want ok %v, %q and %q", d, ok, found, advice)
		}
	}
	gpus, n, _ := doctorGPUPage(t.Context(), c)
	f(gpus[0], false, "names such as go_goroutines", "curl")
	f(doctorHostPage(t.Context(), c), false, "names such as go_goroutines", "curl")
	if d := doctorBus(withSysFS(busWith(t, "nvidia")), n); d.needed && !d.ok {
		t.Errorf("that the page cannot be read is told a second time: %+v", d)
	}
	page = `DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 9` + "\nnode_load1 1\n"
	gpus, n, _ = doctorGPUPage(t.Context(), c)
	f(gpus[0], true, "1 GPUs; "+srv.URL+", dcgm-exporter, names until 4.8, utilization in percent; the driver is not touched", "the page does not tell processes")
	f(doctorHostPage(t.Context(), c), false, "nothing of CPUs", "cpu collector")
	if n != 1 {
		t.Errorf("the doctor counts %d GPUs, want 1", n)
	}
}
