package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/encoding/protowire"
)

// generated is a fleet as dcgm-exporter tells of it, with samples of chosen times: nodes of
// eight GPUs that are busy, until somebody says otherwise.
type generated struct {
	nodes    int
	names    []string // of its metrics; each GPU has one series of each
	external []string // further labels, as a Prometheus adds them: name, value, …

	// value is a GPU's, 0 if the metric is not one that means something to it; NaN is no sample.
	value func(name string, node, gpu int, at time.Time) float64
}

// The metrics that mean something to a detector; what is beyond them only costs.
var meaningful = []string{
	"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_SM_CLOCK",
	"DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
	"DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
}

// busy is a GPU that trains.
func busy(name string, node, gpu int, at time.Time) float64 {
	// The same in each run, and never quite still.
	wave := math.Sin(float64(at.Unix())/40 + float64(node) + float64(gpu)/8)
	counted := float64(at.Unix() % 10_000_000)
	switch name {
	case "DCGM_FI_DEV_GPU_UTIL":
		return math.Round(95 + 4*wave)
	case "DCGM_FI_DEV_POWER_USAGE":
		return 560 + 60*wave
	case "DCGM_FI_DEV_GPU_TEMP":
		return math.Round(58 + 3*wave)
	case "DCGM_FI_DEV_FB_USED":
		return 70_000
	case "DCGM_FI_DEV_FB_FREE":
		return 11_000
	case "DCGM_FI_DEV_SM_CLOCK":
		return 1980
	case "DCGM_FI_DEV_MEM_CLOCK":
		return 2619
	case "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE":
		return 0.6 + 0.05*wave
	case "DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES":
		return 40e9 + 3e9*wave
	case "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":
		return counted * 560e3
	}
	return 0
}

func generatedNode(i int) string { return fmt.Sprintf("gpu-node-%05d", i) }

// requests are the samples of an instant as remote write has them, a node in each series'
// labels and some nodes in each request.
func (g *generated) requests(at time.Time, use func(body []byte) error) error {
	const nodesAtOnce = 8
	var out []byte
	for node := range g.nodes {
		for gpu := range 8 {
			labels := g.labels(node, gpu)
			for _, name := range g.names {
				v := g.value(name, node, gpu, at)
				if math.IsNaN(v) {
					continue
				}
				one := appendMessage(nil, 1, appendMessage(appendMessage(nil, 1, []byte("__name__")), 2, []byte(name)))
				one = append(one, labels...)
				m := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(v))
				one = appendMessage(one, 2, protowire.AppendVarint(protowire.AppendTag(m, 2, protowire.VarintType), uint64(at.UnixMilli())))
				out = appendMessage(out, 1, one)
			}
		}
		if node%nodesAtOnce == nodesAtOnce-1 || node == g.nodes-1 {
			if err := use(snappy.Encode(nil, out)); err != nil {
				return err
			}
			out = out[:0]
		}
	}
	return nil
}

func appendMessage(b []byte, number protowire.Number, of []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), of)
}

// labels are those of a GPU, in the order that Prometheus sends them.
func (g *generated) labels(node, gpu int) (out []byte) {
	host := generatedNode(node)
	for _, l := range [][2]string{
		{"DCGM_FI_DRIVER_VERSION", "570.124.06"}, {"Hostname", host}, {"UUID", fmt.Sprintf("GPU-%08x-0000-4000-8000-%012d", node, gpu)},
		{"container", "trainer"}, {"device", fmt.Sprintf("nvidia%d", gpu)}, {"gpu", fmt.Sprint(gpu)}, {"instance", host + ":9400"}, {"job", "dcgm-exporter"},
		{"modelName", "NVIDIA H100 80GB HBM3"}, {"namespace", "vision"}, {"pci_bus_id", fmt.Sprintf("00000000:%02X:00.0", 16+gpu)}, {"pod", fmt.Sprintf("train-%d", node)},
	} {
		out = appendMessage(out, 1, appendMessage(appendMessage(nil, 1, []byte(l[0])), 2, []byte(l[1])))
	}
	for i := 0; i < len(g.external); i += 2 {
		out = appendMessage(out, 1, appendMessage(appendMessage(nil, 1, []byte(g.external[i])), 2, []byte(g.external[i+1])))
	}
	return out
}

// send sends the samples of an instant, and fails the test if they are not taken.
func (g *generated) send(t testing.TB, url string, at time.Time) {
	t.Helper()
	if err := g.requests(at, func(body []byte) error { return post(url, body) }); err != nil {
		t.Fatalf("send the samples of %s: %v", at.UTC().Format(time.TimeOnly), err)
	}
}

var writer = http.Client{Timeout: time.Minute}

// post sends a request of remote write.
func post(url string, body []byte) error {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	resp, err := writer.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 500))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("it answers %s: %s", resp.Status, strings.TrimSpace(string(said)))
	}
	return err
}
