package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
)

// running is what an owner runs.
func running(now time.Time, o collector.Owner) *collector.Inventory {
	yes, no := true, false
	return &collector.Inventory{
		At: now.Add(-20 * time.Second),
		Runtimes: []collector.Runtime{
			{Owner: o, Component: "cudnn", Version: "unknown", Processes: 1}, {Owner: o, Component: "vllm", Version: "0.11.0", Processes: 2},
		},
		Images:   []collector.Image{{Owner: o, Container: "vllm", Name: "registry.example/vllm:stable", Digest: "sha256:ab12"}},
		Datasets: []collector.Dataset{{Kind: "lustre", Source: "mgs@o2ib:/scratch", Mount: "/scratch"}, {Owner: o, Kind: "claim", Source: "pvc-7d1f", Mount: "/models"}},
		APIs: []collector.API{{Owner: o, Port: 8000, Scope: "any", TLS: &no, Engine: "vllm", Model: `ll"ama`, Approved: &yes},
			{Owner: o, Port: 9000, Scope: "loopback"}},
		Unread: []collector.Unread{{Reason: "forbidden", Processes: 3}},
		Absent: []string{"images: permission denied"},
	}
}

func TestInventoryIsASeriesForEachThing(t *testing.T) {
	page := get(t, node(soon()).server(t), "/metrics").Body.String()
	const owner = `owner="chat/chat-70b-0",owner_kind="pod"`
	for _, want := range []string{
		`vigil_runtime_info{component="vllm",` + owner + `,team="assistants",version="0.11.0"} 1`,
		`vigil_runtime_info{component="cudnn",` + owner + `,team="assistants",version="unknown"} 1`,
		`vigil_image_info{container="vllm",digest="sha256:ab12",image="registry.example/vllm:stable",` + owner + `,team="assistants"} 1`,
		`vigil_dataset_info{kind="lustre",mount="/scratch",owner="unattributed",owner_kind="unattributed",source="mgs@o2ib:/scratch",team=""} 1`,
		`vigil_inference_api_info{approved="true",engine="vllm",model="ll\"ama",` + owner + `,port="8000",scope="any",team="assistants",tls="false"} 1`,
		`vigil_inference_api_info{approved="",engine="",model="",` + owner + `,port="9000",scope="loopback",team="assistants",tls=""} 1`,
	} {
		if !sameSeries(page, want) {
			t.Errorf("the scrape does not have %s; it has\n%s", want, grep(page, want[:20]))
		}
	}
}

// sameSeries reports whether the page has the series, whatever the order of its labels.
func sameSeries(page, want string) bool {
	for line := range strings.Lines(page) {
		if key(line) == key(want) {
			return true
		}
	}
	return false
}

func key(line string) string {
	name, rest, _ := strings.Cut(strings.TrimSpace(line), "{")
	labels := strings.Split(rest, ",")
	for i := range labels {
		labels[i] = strings.TrimSuffix(labels[i], "} 1")
	}
	slices.Sort(labels)
	return name + strings.Join(labels, ",")
}

func grep(page, text string) string {
	var found []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, text) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

func TestInventoryHasALimitOfSeries(t *testing.T) {
	w := node(soon())
	var i collector.Inventory
	for n := range 5000 {
		text := fmt.Sprint(n)
		i.Runtimes = append(i.Runtimes, collector.Runtime{Component: text})
		i.Images = append(i.Images, collector.Image{Name: text})
		i.Datasets = append(i.Datasets, collector.Dataset{Source: text})
		i.APIs = append(i.APIs, collector.API{Port: n})
	}
	w.snap.Inventory = &i
	before := cappedRuntimes.Get()
	page := get(t, w.server(t), "/metrics").Body.String()
	for name, most := range map[string]int{"vigil_runtime_info{": maxRuntimes, "vigil_image_info{": maxImages, "vigil_dataset_info{": maxDatasets, "vigil_inference_api_info{": maxAPIs} {
		if n := strings.Count(page, "\n"+name); n != most {
			t.Errorf("%s has %d series for 5000 things, the limit is %d", name, n, most)
		}
	}
	if n := cappedRuntimes.Get() - before; n != 5000-maxRuntimes {
		t.Errorf("%d runtimes are counted as left out, want %d", n, 5000-maxRuntimes)
	}
}

func TestInventoryOfANodeThatWasNotLookedAt(t *testing.T) {
	w := node(soon())
	w.snap.Inventory = nil
	var answer Inventory
	if err := json.Unmarshal(get(t, w.server(t), "/api/v1/inventory").Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if !answer.At.IsZero() || answer.Runtimes == nil || len(answer.Versions) == 0 {
		t.Errorf("before the first look the inventory is %+v, want versions and empty lists", answer)
	}
}
