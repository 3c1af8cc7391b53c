package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// filler makes an object about as long as those of a cluster that is in use: a pod has
// 8 KiB of JSON and more, most of it not read here.
var filler = strings.Repeat(`{"name": "a-variable-of-the-environment", "value": "with some value in it", "type": "x"},`, 80)

func largePod(i int) string {
	return fmt.Sprintf(`{"metadata": {"name": "pod-%[1]d", "namespace": "ml-%[2]d", "uid": "uid-%[1]d", "resourceVersion": "%[1]d", "labels": {"app": "train", "team": "nlp", "pod-template-hash": "5f6"}},
		"spec": {"nodeName": "node-%[3]d", "containers": [{"name": "main", "env": [%[4]s {"name": "last"}], "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}}}]},
		"status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}}`, i, i%50, i%1000, filler)
}

func largeNode(i int) string {
	return fmt.Sprintf(`{"metadata": {"name": "node-%[1]d", "uid": "uid-%[1]d", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}, "spec": {},
		"status": {"images": [%[2]s {"name": "last"}], "conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}}}`, i, filler)
}

// BenchmarkList lists 5,000 pods and 1,000 nodes over the loopback interface, in pages,
// with TLS, and keeps what is kept of them.
func BenchmarkList(b *testing.B) {
	page := func(one func(int) string, from, count int, next string) []byte {
		var all []string
		for i := range count {
			all = append(all, one(from+i))
		}
		return []byte(fmt.Sprintf(`{"metadata": {"resourceVersion": "1", "continue": %q}, "items": [%s]}`, next, strings.Join(all, ",")))
	}
	pages := map[string][]byte{}
	add := func(path string, one func(int) string, count int) {
		for from := 0; from < count; from += pageSize {
			at, next := "", ""
			if from > 0 {
				at = fmt.Sprint(from)
			}
			if from+pageSize < count {
				next = fmt.Sprint(from + pageSize)
			}
			pages["/"+path+"?"+at] = page(one, from, pageSize, next)
		}
	}
	add(Pods.Paths[0], largePod, 5000)
	add(Nodes.Paths[0], largeNode, 1000)
	s := newServer(b)
	s.onList = func(_ int, w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write(pages[r.URL.Path+"?"+r.URL.Query().Get("continue")]); err != nil {
			b.Error(err)
		}
	}
	c := s.client()
	b.ReportAllocs()
	var read int64
	for b.Loop() {
		read = 0
		for _, k := range []Kind{Pods, Nodes} {
			kept := 0
			_, size, err := c.list(context.Background(), k, k.Paths[0], func(raw json.RawMessage) {
				var err error
				if k.Name == Pods.Name {
					_, err = DecodePod(raw)
				} else {
					_, err = DecodeNode(raw)
				}
				if err != nil {
					b.Fatal(err)
				}
				kept++
			})
			if err != nil || kept == 0 {
				b.Fatalf("%s: kept %d, error %v", k, kept, err)
			}
			read += size
		}
	}
	b.ReportMetric(float64(read), "bytes_read/op")
}
